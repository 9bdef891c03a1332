from __future__ import annotations

from typing import Any

import pytest
from summary_rows import comparison

from ntmp_cli.evaluation.comparisons import Comparison
from ntmp_cli.reporting.comparison_table import comparison_table, conclude
from ntmp_cli.reporting.rendering import Table, to_csv

LOST = {"difference": -0.05, "difference_low": -0.06, "difference_high": -0.04, "wins": 0, "losses": 12, "cliff": -0.8}
NOTHING: dict[str, Any] = dict.fromkeys(("difference", "p", "p_holm", "smallest_p", "smallest_p_holm", "cliff"))


def table(*comparisons: Comparison, metrics: tuple[str, ...] = ("accuracy", "ece")) -> Table:
    made = comparison_table(comparisons, metrics, title="Study")
    assert made is not None
    return made


def test_a_comparison_is_a_row() -> None:
    made = table(comparison())
    assert made.headers == (
        *(
            "metric",
            "method",
            "conclusion",
            "difference to theirs",
            "95 % CI of the difference",
            "better in",
            "p (Holm)",
            "Cliff's δ",
        ),
    )
    assert [cell.text for cell in made.shown(made.rows[0])] == [
        *("accuracy", "ours", "better", "+5.00", "[+4.00, +6.00]", "12 of 12", "0.002", "+0.80 (large)"),
    ]


def test_the_caption_says_what_was_tested_and_how() -> None:
    few = comparison(pairs=3, p=0.25, p_holm=0.25, smallest_p=0.25, smallest_p_holm=0.25)
    assert table(few).caption == (
        "Study: every method minus theirs on the same seeds, accuracy in percentage points. "
        "Tested against theirs by accuracy, cell by cell: 1 comparison, which cannot reach p < 0.05 with 3 pairs; "
        "every difference within a cell is descriptive. p: two-sided Wilcoxon signed-rank test, after Holm. "
        "CI: t interval over pairs. "
        "Cliff's δ: of the paired differences, the share of pairs won minus the share lost."
    )
    over_cells = " Over all cells, pairs of one seed count as independent, although cells may share data."
    assert table(comparison(scope="overall")).caption.endswith(over_cells)
    assert over_cells not in table(comparison(scope="cell")).caption


@pytest.mark.parametrize(
    ("changes", "conclusion"),
    [
        ({}, "better"),
        (LOST, "worse"),
        ({"metric": "ece"}, "worse"),
        ({**LOST, "metric": "ece"}, "better"),
        ({"wins": 5, "losses": 7}, "differs, direction unclear"),
        ({"p_holm": 0.3}, "not significant"),
        ({"p_holm": 0.75, "smallest_p_holm": 0.75}, "too few pairs"),
        ({"reference": "supervised", **LOST}, "differs from the upper bound"),
        ({**NOTHING, "pairs": 0}, "no run in common"),
    ],
)
def test_the_conclusion_is_no_more_than_the_test_allows(changes: dict[str, Any], conclusion: str) -> None:
    compared = comparison(**changes)
    assert conclude(compared) == conclusion
    (row,) = table(compared).rows
    assert [cell.text for cell in row if cell.best] == (["better"] if conclusion == "better" else [])


def test_pairs_are_counted_for_the_better_side() -> None:
    (row,) = table(comparison(metric="ece", wins=3, losses=9)).rows
    assert [cell.text for cell in row if " of " in cell.text] == ["9 of 12"]


def test_all_cells_together_come_first_then_cell_by_cell_in_the_order_of_metrics() -> None:
    cells = [
        comparison(metric=metric, method=method, prior=prior)
        for metric in ("ece", "accuracy")
        for prior in (0.5, 0.2)
        for method in ("a", "b")
    ]
    overall = comparison(scope="overall", cells=2, dataset=None, tuples=None, prior=None, method="a")
    made = table(*cells, overall)
    assert made.headers[0] == "where"
    assert [(row[0].text, row[1].values[0], row[2].text) for row in made.rows] == [
        ("all 2 cells", "accuracy", "a"),
        *((f"mnist 3:1 π={p}", metric, m) for p in (0.5, 0.2) for metric in ("accuracy", "ece") for m in "ab"),
    ]
    assert [len(block) for block in made.blocks] == [1, 2, 2, 2, 2]


def test_other_metrics_are_left_out_and_nothing_is_no_table() -> None:
    assert len(table(comparison(), comparison(metric="ap")).rows) == 1
    assert comparison_table([comparison(metric="ap")], ["accuracy"], title="Study") is None


def test_csv_has_every_number_under_a_name_of_its_own() -> None:
    header, row = to_csv(table(comparison())).splitlines()
    names = header.split(",")
    assert len(set(names)) == len(names) == len(row.split(","))
    assert dict(zip(names, row.split(","), strict=True))["difference_low"] == "0.04"
