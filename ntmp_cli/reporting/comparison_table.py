"""Every comparison with the reference as a row of one table."""

from __future__ import annotations

from collections.abc import Sequence

from ntmp_cli.evaluation.comparisons import Comparison, entry_of
from ntmp_cli.evaluation.metrics import LOWER_IS_BETTER
from ntmp_cli.reporting.rendering import Cell, Column, Table
from ntmp_cli.reporting.tables import ABSENT, PERCENT, is_ceiling, signed, statistics_cells
from ntmp_cli.reporting.words import LEVEL, tested_words, winner_of


def comparison_table(comparisons: Sequence[Comparison], metrics: Sequence[str], *, title: str) -> Table | None:
    """A block per cell, and per metric if there are several methods; all cells together come first.

    None where nothing was compared by these metrics.
    """
    rows = [found for found in comparisons if found["metric"] in metrics]
    if not rows:
        return None
    order = list(dict.fromkeys(map(_where, rows)))
    rows.sort(
        key=lambda found: (found["scope"] != "overall", order.index(_where(found)), metrics.index(found["metric"]))
    )
    several = len({entry_of(found) for found in rows}) > 1
    blocks: dict[tuple[str, str], list[tuple[Cell, ...]]] = {}
    for found in rows:
        blocks.setdefault((_where(found), found["metric"] if several else ""), []).append(_row(found))
    columns = (
        Column("where", ("dataset", "tuples", "prior"), shown=len({where for where, _ in blocks}) > 1),
        Column("metric", ("metric",)),
        Column("method", ("method", "variant")),
        Column("conclusion", ("conclusion",)),
        Column(f"Δ to {rows[0]['reference']}", ("difference",), numeric=True),
        Column("95 % CI of Δ", ("difference_low", "difference_high"), numeric=True),
        Column("better in", ("better", "pairs"), numeric=True),
        Column("p (Holm)", ("p_holm", "p", "tested_pairs"), numeric=True),
        Column("Cliff's δ", ("cliff", "cliff_low", "cliff_high", "cliff_word"), numeric=True),
    )
    return Table(_caption(comparisons, metrics, title), columns, tuple(map(tuple, blocks.values())))


def _row(found: Comparison) -> tuple[Cell, ...]:
    metric, difference = found["metric"], found["difference"]
    better = found["losses" if metric in LOWER_IS_BETTER else "wins"]
    conclusion = conclude(found)
    interval, p, cliff = statistics_cells(metric, found)
    return (
        Cell(_where(found), (found["dataset"], found["tuples"], found["prior"])),
        Cell(f"{metric} (lower is better)" if metric in LOWER_IS_BETTER else metric, (metric,)),
        Cell(str(entry_of(found)), (found["method"], found["variant"])),
        Cell(conclusion, (conclusion,), best=conclusion == "better"),
        Cell(ABSENT if difference is None else signed(metric, difference), (difference,)),
        interval,
        Cell(f"{better} of {found['pairs']}", (better, found["pairs"])),
        p,
        cliff,
    )


def conclude(found: Comparison) -> str:
    """What the test allows to say of the method, in a word or two."""
    p, least = found["p_holm"], found["smallest_p_holm"] or 0.0
    if p is None:
        return "no run in common"
    if p >= LEVEL:
        return "too few pairs to tell" if least >= LEVEL else "not told apart"
    side = winner_of(found)
    if side is None:
        return "differs, direction unclear"
    if is_ceiling(found["reference"]):
        return "differs from the upper bound"
    return "better" if side > 0 else "worse"


def _where(found: Comparison) -> str:
    if found["scope"] == "overall":
        return f"all {found['cells']} cells"
    return f"{found['dataset']} {found['tuples']} π={found['prior']:g}"


def _caption(comparisons: Sequence[Comparison], metrics: Sequence[str], title: str) -> str:
    reference = comparisons[0]["reference"]
    points = [metric for metric in metrics if metric in PERCENT]
    unit = f", {', '.join(points)} in percentage points" if points else ""
    sentences = [
        f"{title.rstrip('.')}: every method minus {reference} on the same seeds{unit}",
        tested_words(comparisons, metrics[0]).rstrip("."),
        "p: two-sided Wilcoxon signed-rank test, after Holm",
        "CI: bootstrap over pairs, too narrow where pairs are few",
    ]
    return ". ".join(sentences) + "."
