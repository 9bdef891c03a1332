from __future__ import annotations

import io

import pytest
from summary_rows import group

from ntmp_cli.commands.result_views import overview_view
from ntmp_cli.evaluation.summary import SummaryRow
from ntmp_cli.reporting.overview import Overview, overview_table

METRICS = ("accuracy", "auroc", "ap")


def rows(*methods: tuple[str, float], **changes: object) -> list[SummaryRow]:
    return [group(method, mean, metric, seeds=3, std=0.01, **changes) for method, mean in methods for metric in METRICS]


def texts(summary: list[SummaryRow], metrics: tuple[str, ...] = METRICS) -> list[list[str]]:
    table = overview_table(summary, metrics)
    return [list(table.headers), *([cell.text for cell in table.shown(row)] for row in table.rows)]


def test_the_best_comes_first_and_an_oracle_last_and_only_the_first_metric_has_an_interval() -> None:
    table = texts(rows(("a", 0.8), ("supervised", 0.95), ("b", 0.9)))
    assert table == [
        ["method", "accuracy (%)", "auroc", "ap"],
        ["b", "90.00 [87.52, 92.48]", "0.9000", "0.9000"],
        ["a", "80.00 [77.52, 82.48]", "0.8000", "0.8000"],
        ["supervised", "95.00 [92.52, 97.48]", "0.9500", "0.9500"],
    ]


def test_a_label_is_a_column_where_it_tells_rows_apart_and_in_the_caption_where_not() -> None:
    one = overview_table(rows(("a", 0.8), ("b", 0.9)), METRICS)
    assert one.caption == "mnist, tuples 3:1, π = 0.5. Means over 3 seeds [95 % t interval]."
    two = overview_table(rows(("a", 0.8)) + rows(("a", 0.7), prior=0.2), METRICS)
    assert two.headers == ("π", "method", "accuracy (%)", "auroc", "ap")
    assert two.caption == "mnist, tuples 3:1. Means over 3 seeds [95 % t interval]."
    assert len(two.blocks) == 2


def test_one_seed_has_no_interval() -> None:
    table = overview_table([group("a", 0.8, seeds=1, std=None)], ["accuracy"])
    assert (table.caption, table.rows[0][-1].text) == ("mnist, tuples 3:1, π = 0.5. Values of one seed.", "80.00")


def test_undefined_and_absent_values_are_told_apart() -> None:
    summary = [group("a", 0.8), group("b", None, undefined=5, std=None), group("a", 0.7, "ap", undefined=1)]
    assert texts(summary, ("accuracy", "ap"))[1:] == [
        ["a", "80.00 [78.76, 81.24]", "0.7000 (1 of 5 undefined)"],
        ["b", "undefined", "—"],
    ]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_screen_fits_its_width_and_folds_no_number(width: int) -> None:
    """Last metrics give way, then long names are folded."""
    from rich.console import Console

    name = "npz:a-rather-long-name-of-a-data-set.npz"
    summary = rows(("cluster-classifier", 0.9), ("ure", 0.8), dataset=name) + rows(("ure", 0.7), prior=0.2)
    console = Console(file=io.StringIO(), width=width, highlight=False)
    table = overview_table(summary, METRICS)
    overview_view(console, Overview("A verdict that is longer than a line. " * 5, "", table))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert max(map(len, lines)) <= width
    assert sum("70.00 [67.52, 72.48]" in line for line in lines) == 1
    assert not any("…" in line for line in lines)


def test_every_column_is_shown_on_request() -> None:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=1000, highlight=False)
    overview_view(console, Overview("verdict.", "bound.", overview_table(rows(("a", 0.9)), METRICS)), wide=True)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert shown.startswith("verdict.\nbound.\n\nmethod")
    assert "--wide" not in shown
