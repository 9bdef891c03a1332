"""Many strata: the list is in a file beside the manifest, and is read and checked like the rest of the summary."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from ntmp_cli.app import run
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.layout import STRATA
from ntmp_cli.artifacts.long_fields import MOST_ROWS

LONGEST = 34  # tuples of 2 to 34 with every count: 627 strata


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tuples of one each of many strata, and a run."""
    folder, rng = tmp_path_factory.mktemp("strata"), np.random.default_rng(0)
    lines = ["tuple_id,count,x"]
    for n in range(2, LONGEST + 1):
        for m in range(n + 1):
            lines += [f"{n}-{m},{m},{(i < m) + rng.normal():.3f}" for i in range(n)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    assert run(["import-tuples", str(folder / "t.csv"), "--heldout-share", "0", "--out", str(folder / "tuples")]) == 0
    assert run(["train", "--tuples", str(folder / "tuples"), "--model", "linear", "--out", str(folder / "run")]) == 0
    return folder


def test_a_manifest_of_many_strata_is_small_and_its_summary_whole(made: Path) -> None:
    expected = [(n, m, 1) for n in range(2, LONGEST + 1) for m in range(n + 1)]
    assert len(expected) > MOST_ROWS
    tuples, trained = open_artifact(made / "tuples", "tuples"), open_artifact(made / "run", "run")
    assert [(row.n, row.m, row.tuples) for row in tuples.summary.strata.train] == expected
    assert list(trained.summary.task.strata) == expected
    for path in (tuples.path, trained.path):
        assert (path / "manifest.json").stat().st_size < 6_000
        assert run(["inspect", str(path)]) == 0


def test_few_strata_stay_in_the_manifest(tmp_path: Path) -> None:
    made = ["make-tuples", "--dataset", "gaussians", "--n", "3", "--m", "1", "--prior", "0.5", "--num-tuples", "20"]
    assert run([*made, "--out", str(tmp_path / "t")]) == 0
    assert not (tmp_path / "t" / STRATA).exists()
    assert json.loads((tmp_path / "t" / "manifest.json").read_bytes())["summary"]["strata"]["train"][0]["n"] == 3


@pytest.mark.parametrize("kind", ["tuples", "run"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "listed in the manifest but missing"),
        (b"{}", "truncated"),
        ("rehash {}", "summary."),
        ("rehash []", "summary."),
        ("rehash {", "not valid JSON"),
    ],
)
def test_a_damaged_list_is_refused(
    made: Path, tmp_path: Path, kind: str, content: bytes | str | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / kind
    shutil.copytree(made / kind, damaged)
    if content is None:
        (damaged / STRATA).unlink()
    elif isinstance(content, bytes):
        (damaged / STRATA).write_bytes(content)
    else:
        raw = content.removeprefix("rehash ").encode()
        (damaged / STRATA).write_bytes(raw)
        manifest = json.loads((damaged / "manifest.json").read_bytes())
        entry = next(one for one in manifest["files"] if one["path"] == STRATA)
        entry.update(bytes=len(raw), sha256=hashlib.sha256(raw).hexdigest())
        (damaged / "manifest.json").write_text(json.dumps(manifest))
    capsys.readouterr()
    assert run(["inspect", str(damaged)]) == 3
    assert said in " ".join(capsys.readouterr().err.split())
