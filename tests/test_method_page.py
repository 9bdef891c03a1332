"""docs/method.md and the code: every equation that is cited exists, and every equation has code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ntmp_cli.registry import REGISTRIES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "ntmp_cli"
PAGE = (ROOT / "docs" / "method.md").read_text(encoding="utf-8")
# A number at the end of a line, and behind it the paper's section, or that it is ours.
EQUATION = re.compile(r"\((\d+[a-z]?)\) +\[([^\]]+)\]$", flags=re.MULTILINE)
# "Eq. 7", "Eqs. 7, 8 and 9", "Eqs. 7–9".
CITATION = re.compile(r"\bEqs?\. (\d+[a-z]?(?:(?:, | and |–)\d+[a-z]?)*)")
# Packages and modules of which every module with mathematics cites the page.
MATHEMATICS = (
    *("counting/*", "prior/*", "theory/*", "evaluation/*", "learning/tables/*"),
    *("learning/groups", "learning/risk", "learning/discriminant", "learning/count_kernel"),
    *("learning/orientation_evidence", "sweeps/windows"),
)
# Modules that hold, sort or carry values and compute none of the page's.
WITHOUT = {
    *("counting/__init__", "prior/__init__", "theory/__init__", "evaluation/__init__", "learning/tables/__init__"),
    *("counting/recorded", "theory/changes", "evaluation/bounded_minimum", "evaluation/comparisons"),
    "evaluation/summary",
    *("learning/tables/data", "learning/tables/estimator_scorer", "learning/tables/exporting"),
    "learning/tables/lightgbm_library",
    *("learning/tables/scorer", "learning/tables/sound_trees", "learning/tables/training", "learning/tables/trees"),
}


def numbers_of(citation: str) -> list[str]:
    """All numbers of a citation, those between the ends of a range too."""
    numbers: list[str] = []
    for part in re.split(r", | and ", citation):
        first, _, last = part.partition("–")
        numbers += [str(n) for n in range(int(first), int(last) + 1)] if last else [first]
    return numbers


def citations() -> dict[str, set[str]]:
    """For every module of the package the equations that it cites."""
    cited = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        text = re.sub(r"\s*\n\s*(?:# )?", " ", path.read_text(encoding="utf-8"))
        name = str(path.relative_to(PACKAGE).with_suffix(""))
        # The paper's own equations and those of other papers are called otherwise.
        cited[name] = {number for found in CITATION.findall(text) for number in numbers_of(found)}
    return cited


EQUATIONS = dict(EQUATION.findall(PAGE))
CITED = citations()


def test_ranges_and_lists_of_a_citation_are_read() -> None:
    assert [numbers_of(found) for found in CITATION.findall("Eq. 7; Eqs. 8, 9 and 10a; Eqs. 21–24")] == [
        *(["7"], ["8", "9", "10a"], ["21", "22", "23", "24"]),
    ]


def test_equations_are_numbered_in_order_and_say_where_they_are_from() -> None:
    found = EQUATION.findall(PAGE)
    order = [(int(re.sub("[a-z]", "", number)), number) for number, _ in found]
    assert order == sorted(set(order))
    assert {number for number, _ in order} == set(range(1, len({number for number, _ in order}) + 1))
    for number, source in found:
        assert re.match(r"ours|§[1-5]", source), number
    # Nothing in a block of formulas looks like a number without being one.
    blocks = "".join(re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL))
    assert blocks.count("[ours]") + len(re.findall(r"\[§[^\]]*\]$", blocks, flags=re.MULTILINE)) == len(found)


def test_every_cited_equation_exists() -> None:
    unknown = {(module, number) for module, numbers in CITED.items() for number in numbers - set(EQUATIONS)}
    assert unknown == set()


def test_every_equation_is_cited_or_background() -> None:
    anywhere = set().union(*CITED.values())
    uncited = [number for number, source in EQUATIONS.items() if number not in anywhere and "background" not in source]
    assert uncited == []
    cited_background = [number for number, source in EQUATIONS.items() if number in anywhere and "background" in source]
    assert cited_background == []


def test_modules_of_mathematics_cite_the_page() -> None:
    modules = {
        str(path.relative_to(PACKAGE).with_suffix("")) for kind in MATHEMATICS for path in PACKAGE.glob(f"{kind}.py")
    }
    assert modules >= WITHOUT
    assert sorted(module for module in modules - WITHOUT if not CITED[module]) == []
    assert sorted(module for module in WITHOUT if CITED[module]) == []


@pytest.mark.parametrize("kind", sorted(REGISTRIES))
def test_what_users_are_shown_names_no_document_that_they_do_not_have(kind: str) -> None:
    for name, shown in REGISTRIES[kind].summaries().items():
        assert not re.search(r"\bSPEC\b|\bEqs?\. \d", str(shown)), name
