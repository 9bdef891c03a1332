"""A small share of `make torture`. All but the first test start it as a user does: it forks, and pytest has threads."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import corpus
import inputs
import pytest
from removed_fixes import FIXES, ROOT, Fix
from results import Case, Part

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


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.about)
def test_every_fix_that_can_be_removed_is_where_it_is_looked_for(fix: Fix) -> None:
    module, (tests, _, name) = (ROOT / fix.module).read_text(encoding="utf-8"), fix.test.partition("::")
    assert module.count(fix.with_fix) == 1
    assert f"def {name.partition('[')[0]}(" in (ROOT / tests).read_text(encoding="utf-8")


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


def counting_part(tmp_path: Path, numbers: list[int], failing: set[int], more: int, seed: int = 3) -> Part:
    """A part of which every case is noted in `numbers`, and some fail."""

    def run(number: int) -> Case:
        numbers.append(number)
        case = Case("reader", "exit 3")
        if number in failing:
            case.fail("exit 1", error="text")
        return case

    part = Part.read("inputs", tmp_path)
    part.go_on(run, seed, more, tmp_path, math.inf)
    return Part.read("inputs", tmp_path)


def test_a_run_goes_on_where_the_last_one_of_its_seed_stopped(tmp_path):
    numbers: list[int] = []
    counting_part(tmp_path, numbers, set(), 3)
    part = counting_part(tmp_path, numbers, {4}, 2)
    assert numbers == [0, 1, 2, 3, 4]
    assert (part.cases, part.outcomes, part.by_target) == (5, {"exit 3": 5}, {"reader": 5})
    failure = {"seed": 3, "number": 4, "target": "reader", "outcome": "exit 3", "kind": "exit 1", "error": "text"}
    assert part.failures == [failure]
    part = counting_part(tmp_path, numbers, set(), 2, seed=4)
    assert numbers[5:] == [0, 1]
    assert (part.cases, part.done) == (7, {"3": 5, "4": 2})


def test_a_failed_case_is_repeated_until_it_is_mended(tmp_path):
    part = counting_part(tmp_path, [], {1, 2}, 4)
    repeated = []

    def run(number: int) -> Case:
        repeated.append(number)
        case = Case("reader", "exit 0")
        if number == 2:
            case.fail("exit 1")
        return case

    part.repeat_failed(lambda seed: run, tmp_path)
    part = Part.read("inputs", tmp_path)
    assert repeated == [1, 2]
    assert (part.cases, part.mended, part.failed) == (4, {"exit 1": 1}, {"exit 1": 1})
    assert part.outcomes == {"exit 0": 1, "exit 3": 3}
    assert [failure["number"] for failure in part.failures] == [2]


def test_no_case_starts_when_the_time_is_up(tmp_path):
    part = Part("inputs")
    part.go_on(lambda number: Case("reader", "exit 0"), 0, 5, tmp_path, until=-math.inf)
    assert (part.cases, Part.read("inputs", tmp_path).done) == (0, {})


@pytest.mark.slow
def test_mutated_inputs_are_used_or_refused(tmp_path):
    facts = figures(tmp_path, "inputs", "--inputs", 64)
    assert facts["cases"] == 64
    assert {"exit 0", "exit 3"} <= set(facts["outcomes"])


@pytest.mark.slow
def test_killed_stages_leave_whole_outputs(tmp_path):
    facts = figures(tmp_path, "kills", "--kills", 12)
    assert facts["cases"] == 12
    assert facts["by_target"]["run"] == 1


@pytest.mark.slow
def test_a_full_disk_at_any_write_leaves_nothing(tmp_path):
    facts = figures(tmp_path, "full-disk", "--writes", 3)
    assert facts["cases"] == 3 * len(facts["by_target"]) == 12
    # The first write of every stage; late ones can come after the output is complete.
    assert facts["outcomes"]["exit 3"] >= len(facts["by_target"])


@pytest.mark.slow
def test_eight_writers_leave_one_output(tmp_path):
    assert figures(tmp_path, "writers")["outcomes"] == {"clean": 6}
