"""Values as text: metrics, differences, intervals and settings, as tables and sentences show them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ntmp_cli.evaluation.comparisons import Comparison
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.summary import SummaryRow
from ntmp_cli.reporting.rendering import TableCell

UNDEFINED = "undefined"


ABSENT = "—"


def label_cells(row: SummaryRow, seeds: int) -> list[TableCell]:
    """Data set, tuples, prior, Δ_op, method, variant and number of seeds."""
    return [
        TableCell(row["dataset"], (row["dataset"],)),
        TableCell(row["tuples"], (row["tuples"], row["n"], row["m"])),
        TableCell(f"{row['prior']:g}", (row["prior"],)),
        gap_cell(row.get("gap")),
        TableCell(row["method"], (row["method"],)),
        TableCell(row["variant"], (row["variant"],)),
        TableCell(str(seeds), (seeds,)),
    ]


def gap_cell(gap: float | None) -> TableCell:
    """Δ_op = |ᾱ − π̂|."""
    return TableCell(ABSENT if gap is None else f"{gap:.2f}", (gap,))


def best_rows(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """The rows with the best mean of one metric in one cell, as printed; empty if no row is to be marked."""
    if len(rows) < 2 or facts_of(metric := rows[0]["metric"]).descriptive:
        return []
    means = [
        (float(metric_number(metric, row["mean"])), row)
        for row in rows
        if row["mean"] is not None and not row["undefined"] and not row["is_oracle"]
    ]
    best = (min if facts_of(metric).lower_is_better else max)((mean for mean, _ in means), default=None)
    return [row for mean, row in means if mean == best]


def metric_number(metric: str, value: float) -> str:
    """A value as it is printed: in percent for metrics with this unit, otherwise unchanged."""
    return f"{100 * value:.2f}" if in_percent(metric) else f"{value:.4f}"


def in_percent(metric: str) -> bool:
    return facts_of(metric).unit == "percent"


def metric_header(metric: str) -> str:
    return f"{metric} (%)" if in_percent(metric) else metric


def metric_cell(metric: str, row: SummaryRow | None, *, best: bool, interval: bool = False) -> TableCell:
    """A mean with its standard deviation and, with `interval`, its interval."""
    if row is None:
        return TableCell(ABSENT, (None,) * 5)
    mean, std, undefined = row["mean"], row["std"], row["undefined"]
    if mean is None:
        return TableCell(UNDEFINED, (math.nan, None, undefined, None, None))
    text = metric_number(metric, mean)
    if std is not None:
        text += f" ± {metric_number(metric, std)}"
    low, high = row.get("ci_low"), row.get("ci_high")
    if interval and low is not None and high is not None:
        text += f" [{metric_number(metric, low)}, {metric_number(metric, high)}]"
    if undefined:
        text += f" ({undefined} of {row['seeds']} {UNDEFINED})"
    return TableCell(text, (mean, std, undefined, low, high), best)


def signed(metric: str, value: float) -> str:
    text = metric_number(metric, abs(value))
    return ("" if not float(text) else "+" if value > 0 else "−") + text


def statistics_cells(metric: str, comparison: Comparison | None) -> list[TableCell]:
    """Interval of the difference, corrected p and effect size."""
    if comparison is None or comparison["p"] is None or comparison["p_holm"] is None or comparison["cliff"] is None:
        return [TableCell(ABSENT, (None,) * count) for count in (2, 3, 4)]
    low, high = comparison["difference_low"], comparison["difference_high"]
    interval = ABSENT if low is None or high is None else f"[{signed(metric, low)}, {signed(metric, high)}]"
    fewer = f" ({pairs_word(comparison['pairs'])})" if comparison["missing"] else ""
    cliff = f"{abs(comparison['cliff']):.2f}"
    sign = "" if not float(cliff) else "+" if comparison["cliff"] > 0 else "−"
    effect = (comparison["cliff"], comparison["cliff_low"], comparison["cliff_high"], comparison["cliff_word"])
    return [
        TableCell(interval, (low, high)),
        TableCell(f"{comparison['p_holm']:.3g}{fewer}", (comparison["p_holm"], comparison["p"], comparison["pairs"])),
        TableCell(f"{sign}{cliff} ({comparison['cliff_word']})", effect),
    ]


def pairs_word(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)}"


def setting_words(rows: Sequence[SummaryRow]) -> str:
    """The setting of the numbers: seeds, (n, m) with α = m/n, and π."""
    fewest, most = (pick(row["seeds"] for row in rows) for pick in (min, max))
    if most == 1:
        statistic = "Values of one seed"
    else:
        statistic = f"Mean ± standard deviation over {most if fewest == most else f'{fewest} to {most}'} seeds"
    specs = dict.fromkeys(_spec(row) for row in rows)
    priors = sorted({row["prior"] for row in rows})
    return f"{statistic}; {', '.join(specs)}; π = {', '.join(f'{prior:g}' for prior in priors)}"


def _spec(row: SummaryRow) -> str:
    n, m = row["n"], row["m"]
    if n is None or m is None:
        return f"tuples {row['tuples']}"
    return f"(n, m) = ({n}, {m}) with α = {m / n:.4g}"
