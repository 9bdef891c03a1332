"""docs/paper.md names tests, commands and sample configurations that exist, and every part of the paper."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from test_docs import OPTIONS

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| paper |", "| --- |"))]
CELLS = [re.split(r"(?<!\\) \| ", line.strip("| ")) for line in ROWS]
# What the paper holds, in its order.
STATEMENTS = [
    *(f"Lemma {number}," for number in (1, 3, 5)),
    *(f"Theorem {number}" for number in (2, 4, 6, 7, 8, 9)),
    "Corollary 10",
]
SECTIONS = ["2.1", "2.2", "3.1", "3.2", "3.3", "3.4", "3.5", "3.6", "3.7", "4.1", "4.2", "4.3", "4.4", "5"]


def test_every_row_has_a_command_a_test_and_a_verdict() -> None:
    for cells in CELLS:
        assert len(cells) == 4, cells
        _, command, test, verdict = cells
        assert "`" in test or verdict == "not built", cells
        assert "`ntmp " in command or "](" in command or verdict == "not built", cells


def test_every_statement_table_figure_and_section_has_a_row() -> None:
    first = [cells[0] for cells in CELLS]
    for name in [*STATEMENTS, *(f"Table {n}," for n in range(1, 7)), *(f"Figure {n}" for n in range(1, 5))]:
        assert any(name in cell for cell in first), name
    for section in SECTIONS:
        number = re.escape(section)
        assert re.search(rf"§{number}\b|\(sections? [\d., to]*\b{number}\b", PAGE), section


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(tests/[^`]+)`", PAGE))))
def test_named_tests_exist(name: str) -> None:
    file, _, function = name.partition("::")
    path = ROOT / file
    assert path.is_file(), name
    assert not function or f"\ndef {function}(" in path.read_text(encoding="utf-8"), name


@pytest.mark.parametrize("name", sorted(set(re.findall(r"sample_configs/[\w/.-]+\.yaml", PAGE))))
def test_named_sample_configurations_exist(name: str) -> None:
    assert (ROOT / name).is_file(), name


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`(ntmp [^`]+)`", PAGE))))
def test_named_commands_have_options_that_exist(line: str) -> None:
    words = shlex.split(line)[1:]
    known = OPTIONS.get(tuple(words[:2]), OPTIONS.get(tuple(words[:1])))
    assert known is not None, line
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


def test_named_equations_exist() -> None:
    equations = set(re.findall(r"\((\d+[a-z]?)\) +\[", (ROOT / "docs" / "method.md").read_text(encoding="utf-8")))
    ours = re.findall(r"\(Eqs?\. ([\d, –and]+)\)", PAGE)
    numbers = {number for text in ours for number in re.findall(r"\d+", text)}
    assert numbers
    assert numbers <= equations
