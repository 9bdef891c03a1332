"""A small share of `make torture`. All but the first test start it as a user does: it forks, and pytest has threads."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import corpus
import inputs
import pytest

from ntmp_cli.app import run

PROGRAM = Path(__file__).with_name("torture.py")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users' files of every kind that an import reads."""
    folder = tmp_path_factory.mktemp("corpus")
    corpus._write_tables(folder)
    corpus._write_arrays(folder)
    corpus._write_binary_tables(folder)
    corpus._write_images(folder)
    return folder


@pytest.mark.parametrize(
    "name", ["rows.csv", "rows.tsv", "rows.csv.gz", "rows.parquet", "parquet types", "arrays", "pictures"]
)
def test_mutated_files_of_users_are_imported_or_refused(name, files, tmp_path, capsys):
    target = next(target for target in inputs.targets(complete=False) if target.name == name)
    codes = set()
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        words = target.prepare(files, folder, random.Random(f"{name} {number}"))
        if words[0] == "predict":
            continue
        code = run([str(word) for word in words])
        said = capsys.readouterr()
        result = inputs.Ended(code, said.out, said.err)
        assert inputs.problem_of(target, result, folder) is None, (number, words, said.err)
        codes.add(code)
    assert codes <= {0, 2, 3}


def figures(tmp_path: Path, part: str, *words: object) -> dict[str, Any]:
    arguments = [sys.executable, str(PROGRAM), "--only", part, "--small", "--results", str(tmp_path), *map(str, words)]
    ended = subprocess.run(arguments, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    facts: dict[str, Any] = json.loads((tmp_path / f"{part}.json").read_text())
    assert facts["failed"] == {}
    return facts


@pytest.mark.slow
def test_mutated_inputs_are_used_or_refused(tmp_path):
    facts = figures(tmp_path, "inputs", "--inputs", 64)
    assert facts["cases"] == 64
    assert {"exit 0", "exit 3"} <= set(facts["outcomes"])


@pytest.mark.slow
def test_killed_stages_leave_whole_outputs(tmp_path):
    assert figures(tmp_path, "kills", "--kills", 12, "--pipeline-kills", 1)["cases"] == 13


@pytest.mark.slow
def test_a_full_disk_at_any_write_leaves_nothing(tmp_path):
    facts = figures(tmp_path, "full-disk", "--writes", 3)
    assert facts["cases"] == 3 * len(facts["by_target"]) == 12
    # The first write of every stage; late ones can come after the output is complete.
    assert facts["outcomes"]["exit 3"] >= len(facts["by_target"])


@pytest.mark.slow
def test_eight_writers_leave_one_output(tmp_path):
    assert figures(tmp_path, "writers")["outcomes"] == {"clean": 6}
