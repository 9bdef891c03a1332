"""Every block of the guides runs as it is printed, in an empty folder with data of the kind that the page names."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ntmp_cli.app import run

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# Lines that no test can run: they install something, or need a download or a second machine.
NOT_RUN = (
    *("pip install", "uv tool", "docker ", "ntmp --install-completion"),
    "ntmp make-tuples --dataset mnist",  # its data are downloaded
    "torchrun",  # tests/pipeline/test_torchrun.py
    "ntmp predict work/run 's3://",  # tests/pipeline/test_predict_partitions.py
)
# Less training, fewer cells: what is tested is that the words fit together.
SHORTER = {
    "train": ["--epochs", "1"],
    "run": ["--set", "train.epochs=1", "--set", "seeds=[0]"],
    "sweep": ["--set", "train.epochs=1", "--set", "make_tuples.num_tuples=60", "--set", "seeds=[0]"],
    "estimate-prior": ["--epochs", "1", "--resamples", "100"],
    "audit": ["--epochs", "1", "--resamples", "100"],
}


def table(path: str, rows: int, **columns: list[object]) -> None:
    """Two features, the second of which tells the classes apart, below the given columns."""
    rng = np.random.default_rng(0)
    positive = rng.random(rows) < 0.4
    cells = [*columns.values(), rng.normal(size=rows).round(3), (rng.normal(size=rows) + 3 * positive).round(3)]
    lines = [",".join([*columns, "age", "weight"]), *(",".join(map(str, row)) for row in zip(*cells, strict=True))]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def tables_of_your_own() -> None:
    ids = np.repeat(np.arange(60), 4)
    positive = np.random.default_rng(0).random(240) < 0.4  # the same as in `table`
    counts = np.bincount(ids, positive).astype(int)[ids]
    table("tuples.csv", 240, tuple_id=list(ids), count=list(counts))
    table("unlabeled.csv", 100)
    table("test.csv", 100, label=list((np.random.default_rng(0).random(100) < 0.4).astype(int)))
    table("new.csv", 20)


def folder_of_tables() -> None:
    tables_of_your_own()
    assert run(shlex.split("import-tuples tuples.csv --unlabeled unlabeled.csv --out work/tuples")) == 0
    assert run(shlex.split("train --tuples work/tuples --model linear --prior 0.4 --out work/run")) == 0
    Path("new").mkdir()
    Path("rows").mkdir()
    for number, name in enumerate(("a", "b")):
        table(f"new/{name}.csv", 20)
        ids = [4 * number + row // 3 for row in range(60)]  # some tuples have rows in both
        table(f"rows/{name}.csv", 60, tuple_id=list(ids), count=[1] * 60)


def counts_of_three_classes() -> None:
    rng = np.random.default_rng(0)
    ids, kind = np.repeat(np.arange(60), 4), rng.integers(0, 3, 240)
    counts = np.stack([np.bincount(ids, kind == k)[ids] for k in range(3)], axis=1).astype(int)
    features = rng.normal(size=(240, 3)) + 4 * np.eye(3)[kind]
    rows = [[i, *count, *row.round(3)] for i, count, row in zip(ids, counts, features, strict=True)]
    lines = [",".join(map(str, row)) for row in [["tuple_id", "cats", "dogs", "birds", "a", "b", "c"], *rows]]
    Path("boxes.csv").write_text("\n".join(lines), encoding="utf-8")
    Path("new.csv").write_text("a,b,c\n4,0,0\n0,4,0\n0,0,4\n", encoding="utf-8")


def kinds_of_counts() -> None:
    counts_of_three_classes()
    rng = np.random.default_rng(1)
    positives, pool = rng.normal(size=(60, 2)) + 3, rng.normal(size=(200, 2)) + 3 * (rng.random(200) < 0.2)[:, None]
    rows = [f"{number},1,{a:.3f},{b:.3f}" for number, (a, b) in enumerate(positives)]
    Path("positives.csv").write_text("\n".join(["tuple_id,count,a,b", *rows]), encoding="utf-8")
    Path("pool.csv").write_text("\n".join(["a,b", *(f"{a:.3f},{b:.3f}" for a, b in pool)]), encoding="utf-8")


def simulated_tuples() -> None:
    assert run(shlex.split("make-tuples --dataset digits --n 3 --m 1 --prior 0.5 --out work/tuples")) == 0
    assert run(shlex.split("train --tuples work/tuples --prior 0.5 --epochs 1 --out work/run")) == 0


def labelled_data() -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    table("my.csv", 400, sick=list((np.random.default_rng(0).random(400) < 0.4).astype(int)))
    labels = {"y_train": np.arange(400) % 10, "y_test": np.arange(100) % 10}
    np.savez("my.npz", x_train=rng.random((400, 5)), x_test=rng.random((100, 5)), **labels)
    for split in ("train", "test"):
        for label in ("cat", "dog", "bird"):
            folder = Path("my-images", split, label)
            folder.mkdir(parents=True)
            for number in range(60):
                Image.fromarray(rng.integers(0, 255, (40, 36), dtype=np.uint8)).save(folder / f"{number}.png")


def names_of_python() -> dict[str, object]:
    """What blocks of Python take for granted."""
    from ntmp_cli import NTMPClassifier

    rng = np.random.default_rng(0)
    positive = rng.random(300) < 0.4
    x = rng.normal(size=(300, 3)) + 3 * positive[:, None]
    ids = np.repeat([*"abc", *map(str, range(57))], 4)
    counts = {name: int(positive[:240][ids == name].sum()) for name in dict.fromkeys(ids.tolist())}
    published = {name: count + float(rng.normal(scale=1.5)) for name, count in counts.items()}
    same = {"X": x[:240], "counts": counts, "NTMPClassifier": NTMPClassifier, "np": np, "pd": pd}
    return {**same, "ids": ids, "tuple_ids": ids, "published": published, "U": x[240:], "X_new": x[:5]}


PREPARED: dict[str, Callable[[], None]] = {
    "guides/own-data.md": tables_of_your_own,
    "guides/counts.md": kinds_of_counts,
    "guides/prior.md": simulated_tuples,
    "guides/methods.md": simulated_tuples,
    "guides/pipeline.md": labelled_data,
    "guides/scale.md": folder_of_tables,
}
# Pages whose blocks are run elsewhere: test_tutorial.py, test_guide.py, test_plugins_cli.py, test_docs.py.
ELSEWHERE = {"tutorial.md", "guides/python.md", "plugins.md", "commands.md", "api.md"}
# Pages with commands of hours: their options are checked by test_docs.py, their outputs are in docs/results/.
MEASURED = {"reproduction.md", "tables.md", "promises.md", "paper.md", "reliability.md", "method.md"}


def blocks_of(page: str) -> list[tuple[str, str]]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(sh|python)\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
RUN_HERE = [page for page in PAGES if page not in ELSEWHERE | MEASURED and blocks_of(page)]


def test_no_page_with_blocks_is_forgotten():
    assert {"first-run.md", "guides/images.md", "guides/design.md", "guides/wrong-counts.md"} <= set(RUN_HERE)
    assert set(PAGES) >= ELSEWHERE | MEASURED


def run_shell(block: str) -> None:
    """A block of shell, line by line; loops and pipes by bash."""
    text = block.replace("\\\n", " ")
    if re.search(r"^for |\|", re.sub(r"'[^']*'|#.*", "", text), flags=re.MULTILINE):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        bash = ["bash", "-e", "-o", "pipefail", "-c", text]
        done = subprocess.run(bash, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"
        return
    for line in text.splitlines():
        # A Ray cluster: tests/sweeps/engines/test_ray.py
        if not line.strip() or line.startswith(NOT_RUN) or "--engine ray" in line:
            continue
        program, *words = shlex.split(line, comments=True)
        assert program == "ntmp", line
        words = [path for word in words for path in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        given = {word for word in words if word.startswith("--")}
        shorter = SHORTER.get(words[0], [])
        assert run([*words, *([] if shorter[:1] == ["--epochs"] and "--epochs" in given else shorter)]) == 0, line


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN_HERE)
def test_every_block_of_a_guide_runs(page, tmp_path, monkeypatch):
    (tmp_path / "sample_configs").symlink_to(ROOT / "sample_configs")
    monkeypatch.chdir(tmp_path)
    PREPARED.get(page, lambda: None)()
    names = names_of_python()
    for kind, text in blocks_of(page):
        if kind == "python":
            exec(compile(text, page, "exec"), names)
        else:
            run_shell(text)
