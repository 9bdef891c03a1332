"""docs/kinds-of-counts.md: true to the kept results, verdicts to the numbers; a repetition measures the rest."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.kinds.store import Cell, Results, Study, run
from docs.write_kinds_of_counts import PAGE, equivalent, page

DEFAULT, LABELS = "default (auto)", "labels: boosting"


def results(**means: float) -> Results:
    kept = Results()
    for row, mean in means.items():
        for draw, shift in enumerate((-0.01, 0.01)):
            cell = Cell("proportions", "magic-8-low", row.replace("_", " "), draw)
            kept.add(cell, {"auroc": mean + shift}, "code", 1.0)
    return kept


def line(text: str, start: str) -> str:
    (found,) = [line for line in text.splitlines() if line.startswith(start)]
    return found


def test_the_page_is_what_the_kept_results_give() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(Results.load())


def test_numbers_are_means_over_draws_and_what_was_not_measured_is_a_dash() -> None:
    text = page(results(**{LABELS: 0.92, DEFAULT: 0.91, "naive": 0.8}))
    assert line(text.partition("[½, 1]:")[0], "| magic 8 |").split(" | ")[1:5] == ["0.920", "–", "0.800", "0.910"]
    assert "test rows, draws: 2." in text.replace("\n", " ")


def test_rows_of_a_line_are_compared_on_the_draws_that_all_of_them_have() -> None:
    kept = results(**{LABELS: 0.91, DEFAULT: 0.90})
    kept.add(Cell("proportions", "magic-8-low", "trees", 1), {"auroc": 0.91}, "code", 1.0)  # an easier draw
    text = page(kept)
    assert line(text.partition("[½, 1]:")[0], "| magic 8 |").split(" | ")[1:7] == [
        "0.920",
        "–",
        "–",
        "0.910",
        "–",
        "0.910",
    ]
    assert "2 of 2 goals held." in text


def test_other_methods_stand_beside_the_default_on_their_own_draws() -> None:
    kept = results(**{LABELS: 0.92, DEFAULT: 0.91})
    kept.add(Cell("proportions", "magic-8-low", "llp-bagce", 1), {"auroc": 0.9}, "code", 1.0)
    text = page(kept)
    assert (
        line(text.partition("### Other methods")[0].partition("[½, 1]:")[0], "| magic 8 |").split(" | ")[4] == "0.910"
    )
    others = text.partition("### Other methods")[2]
    assert line(others.partition("[½, 1]:")[0], "| magic 8 |").split(" | ")[1:3] == ["0.920", "0.900"]
    assert "Draws: 1." in others
    assert "magic 8, [0, ½]: the default has 0.920, the best other row without labels 0.900 (llp-bagce)" in others


def test_fits_with_the_classes_exchanged_are_named() -> None:
    assert "exchanged" not in page(results(mlp=0.8))
    assert "`mlp` on magic 8, [0, ½] (0.190), `mlp` on magic 8, [0, ½] (0.210)" in page(results(mlp=0.2)).replace(
        "\n", " "
    )


@pytest.mark.parametrize(
    ("default", "trees", "labels", "held"),
    [(0.906, 0.910, 0.92, (True, True)), (0.90, 0.91, 0.915, (False, True)), (0.89, 0.88, 0.92, (True, False))],
)
def test_verdicts_follow_from_the_numbers(default: float, trees: float, labels: float, held: tuple[bool, bool]) -> None:
    text = page(results(**{LABELS: labels, DEFAULT: default, "trees": trees}))
    verdicts = re.findall(r"^- (Held|\*\*Not held\*\*): magic 8, \[0, ½\]", text, flags=re.MULTILINE)
    assert [verdict == "Held" for verdict in verdicts] == list(held)
    assert f"{sum(held)} of 2 goals held." in text


def test_a_repetition_measures_what_is_missing_or_was_measured_by_other_code(tmp_path: Path) -> None:
    measured: list[str] = []

    def measure(cell: Cell) -> dict[str, float] | None:
        measured.append(cell.row)
        return None if cell.row == "peer" else {"auroc": 0.5}

    rows = ("known", "old", "missing", "peer")
    code = ("benchmarks/kinds/store.py",)
    study = Study("s", lambda _: [Cell("s", "d", row, 0) for row in rows], measure, lambda _: code)
    kept = Results()
    run([Study("s", lambda _: [Cell("s", "d", "known", 0)], measure, lambda _: code)], kept, quick=True)
    kept.add(Cell("s", "d", "old", 0), {"auroc": 0.4}, "another hash", 1.0)
    measured.clear()
    assert run([study], kept, quick=True, minutes=-1) == 3
    assert run([study], kept, quick=True, missing=True) == 0
    assert measured == ["missing", "peer"]
    run([study], kept, quick=True)
    assert measured == ["missing", "peer", "old", "peer"]
    kept.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json").by_cell == kept.by_cell
    assert kept.values("s", "d", "old", "auroc") == [0.5]


def test_tuples_of_equal_worth_lie_between_the_points_of_the_curve() -> None:
    curve = [(50, 0.6), (100, 0.7), (400, 0.8)]
    assert equivalent(curve, 0.75) == "about 200"
    assert equivalent(curve, 0.59) == "at most 50"
    assert equivalent(curve, 0.81) == "more than 400"


def test_a_section_of_which_nothing_was_measured_says_so() -> None:
    text = page(results(**{LABELS: 0.92, DEFAULT: 0.91}))
    sections = dict(part.split("\n\n", 1) for part in re.split(r"^###? ", text, flags=re.MULTILINE)[1:])
    assert sections["Counts with noise for privacy"].strip() == (
        "    python -m benchmarks.kinds_of_counts --only noise\n\nNot measured.".strip()
    )
    assert "Not measured." not in sections["Label proportions"]
    assert len(sections) == 10
