"""Every comparison with the reference as a row of one table."""

from __future__ import annotations

from collections.abc import Sequence

from ntmp_cli.evaluation.comparisons import Comparison, method_variant_of
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.reporting.formatting import ABSENT, in_percent, signed, statistics_cells
from ntmp_cli.reporting.rendering import Column, Table, TableCell
from ntmp_cli.reporting.words import LEVEL, reference_words, tested_words, winner_of


def comparison_table(comparisons: Sequence[Comparison], metrics: Sequence[str], *, title: str) -> Table | None:
    """A block per cell, and per metric if there are several methods; all cells together come first.

    None where nothing was compared by these metrics.
    """
    rows = [comparison for comparison in comparisons if comparison["metric"] in metrics]
    if not rows:
        return None
    order = list(dict.fromkeys(map(_where, rows)))
    rows.sort(
        key=lambda comparison: (
            comparison["scope"] != "overall",
            order.index(_where(comparison)),
            metrics.index(comparison["metric"]),
        )
    )
    several = len({method_variant_of(comparison) for comparison in rows}) > 1
    blocks: dict[tuple[str, str], list[tuple[TableCell, ...]]] = {}
    for comparison in rows:
        blocks.setdefault((_where(comparison), comparison["metric"] if several else ""), []).append(_row(comparison))
    columns = (
        Column("where", ("dataset", "tuples", "prior"), shown=len({where for where, _ in blocks}) > 1),
        Column("metric", ("metric",)),
        Column("method", ("method", "variant")),
        Column("conclusion", ("conclusion",)),
        Column(f"difference to {reference_words(rows)}", ("difference",), numeric=True),
        Column("95 % CI of the difference", ("difference_low", "difference_high"), numeric=True),
        Column("better in", ("better", "pairs"), numeric=True),
        Column("p (Holm)", ("p_holm", "p", "tested_pairs"), numeric=True),
        Column("Cliff's δ", ("cliff", "cliff_low", "cliff_high", "cliff_word"), numeric=True),
    )
    return Table(_caption(comparisons, metrics, title), columns, tuple(map(tuple, blocks.values())))


def _row(comparison: Comparison) -> tuple[TableCell, ...]:
    metric, difference = comparison["metric"], comparison["difference"]
    lower_is_better = facts_of(metric).lower_is_better
    better = comparison["losses" if lower_is_better else "wins"]
    conclusion = conclude(comparison)
    interval, p, cliff = statistics_cells(metric, comparison)
    return (
        TableCell(_where(comparison), (comparison["dataset"], comparison["tuples"], comparison["prior"])),
        TableCell(f"{metric} (lower is better)" if lower_is_better else metric, (metric,)),
        TableCell(str(method_variant_of(comparison)), (comparison["method"], comparison["variant"])),
        TableCell(conclusion, (conclusion,), best=conclusion == "better"),
        TableCell(ABSENT if difference is None else signed(metric, difference), (difference,)),
        interval,
        TableCell(f"{better} of {comparison['pairs']}", (better, comparison["pairs"])),
        p,
        cliff,
    )


def conclude(comparison: Comparison) -> str:
    """The conclusion of the test about the method, in a few words."""
    p, least = comparison["p_holm"], comparison["smallest_p_holm"] or 0.0
    if p is None:
        return "no run in common"
    if p >= LEVEL:
        return "too few pairs" if least >= LEVEL else "not significant"
    side = winner_of(comparison)
    if side is None:
        return "differs, direction unclear"
    if comparison["reference_is_oracle"]:
        return "differs from the upper bound"
    return "better" if side > 0 else "worse"


def _where(comparison: Comparison) -> str:
    if comparison["scope"] == "overall":
        return f"all {comparison['cells']} cells"
    return f"{comparison['dataset']} {comparison['tuples']} π={comparison['prior']:g}"


def _caption(comparisons: Sequence[Comparison], metrics: Sequence[str], title: str) -> str:
    reference = reference_words(comparisons)
    points = [metric for metric in metrics if in_percent(metric)]
    unit = f", {', '.join(points)} in percentage points" if points else ""
    sentences = [
        f"{title.rstrip('.')}: every method minus {reference} on the same seeds{unit}",
        tested_words(comparisons, metrics[0]).rstrip("."),
        "p: two-sided Wilcoxon signed-rank test, after Holm",
        "CI: t interval over pairs",
        "Cliff's δ: of the paired differences, the share of pairs won minus the share lost",
    ]
    if any(comparison["scope"] == "overall" for comparison in comparisons):
        sentences.append("Over all cells, pairs of one seed count as independent, although cells may share data")
    return ". ".join(sentences) + "."
