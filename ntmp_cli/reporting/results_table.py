"""Summary rows to the table of results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.comparisons import Comparison, MethodVariant, Reference, method_variant_of
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.reporting.formatting import (
    ABSENT,
    UNDEFINED,
    best_rows,
    in_percent,
    label_cells,
    metric_cell,
    metric_header,
    pairs_word,
    setting_words,
    signed,
    statistics_cells,
)
from ntmp_cli.reporting.rendering import Column, Table, TableCell


@dataclass(frozen=True, eq=False)
class _MethodMetrics:
    """One table row before it is formatted: a method with its metrics in one cell."""

    first: SummaryRow
    by_metric: dict[str, SummaryRow]

    @property
    def method(self) -> str:
        return self.first["method"]

    @property
    def key(self) -> MethodVariant:
        return method_variant_of(self.first)

    @property
    def seeds(self) -> int:
        return max(row["seeds"] for row in self.by_metric.values())

    def mean(self, metric: str) -> float | None:
        return self.by_metric[metric]["mean"] if metric in self.by_metric else None


# Of the first metric: the comparison of each line of the table.
Compared = dict[tuple[DataCell, MethodVariant], Comparison]


def results_table(
    summary: Sequence[SummaryRow],
    *,
    title: str,
    metrics: Sequence[str] = (),
    reference: str | None = None,
    comparisons: Sequence[Comparison] = (),
    intervals: bool = False,
) -> Table:
    """One row per (data set, tuples, prior, method, variant), one column per metric as mean ± std.

    The best mean of each block of equal data set, tuples and prior is marked, ties together, "equal"
    meaning equal as printed. Not marked: a method that uses the labels, a mean that leaves out
    undefined seeds, and the only method of a block. With a reference, a further column holds the
    difference of the first metric's mean to the reference's; with comparisons, three more hold its
    interval, the corrected p and the effect size. With `intervals` every mean has its own, in brackets.
    """
    names = list(dict.fromkeys(metrics or (row["metric"] for row in summary)))
    _check(summary, names, reference)
    blocks = _blocks(summary)
    entries = [entry for block in blocks for entry in block]
    compared = _compared(comparisons, names[0])
    chosen = None if reference is None else Reference.named(reference, (entry.key for entry in entries))
    cells = tuple(_block_cells(block, names, chosen, compared, intervals=intervals) for block in blocks)
    marked = any(cell.best for block in cells for row in block for cell in row)
    sentences = [title.rstrip("."), setting_words([entry.first for entry in entries])]
    sentences += ["Brackets: 95 % t interval of the mean over seeds"] if intervals else []
    sentences += _legend(entries, names[0], reference, marked=marked)
    sentences += _statistics_legend(list(compared.values()))
    columns = _columns(entries, names, reference, compared=bool(compared))
    return Table(". ".join(filter(None, sentences)) + ".", columns, cells)


def _check(summary: Sequence[SummaryRow], metrics: Sequence[str], reference: str | None) -> None:
    if not summary:
        raise UsageError("there are no results to report")
    known = {row["metric"] for row in summary}
    for name in metrics:
        if name not in known:
            raise UsageError(
                f"metric '{name}' is not in the evaluation; {did_you_mean(name, known)}",
                hint="`ntmp evaluate` computes every metric by default.",
            )
    methods = {name for row in summary for name in (row["method"], str(method_variant_of(row)))}
    if reference is not None and reference not in methods:
        raise UsageError(f"reference '{reference}' is not among the methods; {did_you_mean(reference, methods)}")


def _columns(
    entries: Sequence[_MethodMetrics], metrics: Sequence[str], reference: str | None, *, compared: bool
) -> tuple[Column, ...]:
    """Labels, metrics, comparison; variant and seeds are shown only where they tell rows apart."""
    return (
        Column("dataset", ("dataset",)),
        Column("tuples", ("tuples", "n", "m")),
        Column("π", ("prior",), numeric=True),
        Column("Δ_op", ("gap",), numeric=True, shown=any(entry.first.get("gap") is not None for entry in entries)),
        Column("method", ("method",)),
        Column("variant", ("variant",), shown=any(entry.first["variant"] for entry in entries)),
        Column("seeds", ("seeds",), numeric=True, shown=len({entry.seeds for entry in entries}) > 1),
        *(_metric_column(name) for name in metrics),
        *([] if reference is None else [_difference_column(metrics[0])]),
        *(_statistics_columns(metrics[0]) if compared else []),
    )


def _blocks(summary: Sequence[SummaryRow]) -> list[list[_MethodMetrics]]:
    """Blocks of entries, both in the order of the summary."""
    blocks: dict[tuple[object, ...], dict[tuple[str, str], _MethodMetrics]] = {}
    for row in summary:
        block = blocks.setdefault((row["dataset"], row["tuples"], row["n"], row["m"], row["prior"]), {})
        entry = block.setdefault((row["method"], row["variant"]), _MethodMetrics(row, {}))
        entry.by_metric[row["metric"]] = row
    return [list(block.values()) for block in blocks.values()]


def _block_cells(
    block: Sequence[_MethodMetrics],
    metrics: Sequence[str],
    reference: Reference | None,
    compared: Compared,
    *,
    intervals: bool,
) -> tuple[tuple[TableCell, ...], ...]:
    best = {
        metric: best_rows([entry.by_metric[metric] for entry in block if metric in entry.by_metric])
        for metric in metrics
    }
    rows, entries = [], {entry.key: entry for entry in block}
    for entry in block:
        cells = label_cells(entry.first, entry.seeds)
        for metric in metrics:
            row = entry.by_metric.get(metric)
            cells.append(metric_cell(metric, row, best=row in best[metric], interval=intervals))
        if reference is not None:
            other = reference.of(entry.key, entries)
            cells.append(_difference_cell(metrics[0], entry, entries[other] if other else None))
        if compared:
            cells += statistics_cells(metrics[0], compared.get((cell_of(entry.first), entry.key)))
        rows.append(tuple(cells))
    return tuple(rows)


# Metrics -------------------------------------------------------------------------------------------


def _metric_column(metric: str) -> Column:
    fields = ("mean", "std", "undefined", "ci_low", "ci_high")
    return Column(metric_header(metric), tuple(f"{metric}_{field}" for field in fields), numeric=True)


# The reference -------------------------------------------------------------------------------------


def _difference_column(metric: str) -> Column:
    return Column(f"difference of {metric}", (f"{metric}_minus_reference",), numeric=True)


def _difference_cell(metric: str, entry: _MethodMetrics, reference: _MethodMetrics | None) -> TableCell:
    if reference is None or not (metric in entry.by_metric and metric in reference.by_metric):
        return TableCell(ABSENT, (None,))
    if entry is reference:
        return TableCell("reference", (0.0,))
    mean, reference_mean = entry.mean(metric), reference.mean(metric)
    if mean is None or reference_mean is None:
        return TableCell(UNDEFINED, (math.nan,))
    return TableCell(signed(metric, mean - reference_mean), (mean - reference_mean,))


def _compared(comparisons: Sequence[Comparison], metric: str) -> Compared:
    return {
        (cell_of(comparison), method_variant_of(comparison)): comparison  # type: ignore[arg-type]
        for comparison in comparisons
        if comparison["scope"] == "cell" and comparison["metric"] == metric
    }


def _statistics_columns(metric: str) -> list[Column]:
    def named(*fields: str) -> tuple[str, ...]:
        return tuple(f"{metric}_{field}" for field in fields)

    return [
        Column("95 % CI of the difference", named("difference_low", "difference_high"), numeric=True),
        Column("p (Holm)", named("p_holm", "p", "pairs"), numeric=True),
        Column("Cliff's δ", named("cliff", "cliff_low", "cliff_high", "cliff_word"), numeric=True),
    ]


# The caption ---------------------------------------------------------------------------------------


def _legend(entries: Sequence[_MethodMetrics], metric: str, reference: str | None, *, marked: bool) -> Iterator[str]:
    """The meaning of bold and of the difference, and the methods that are not ranked."""
    if marked:
        yield "Bold: best mean of each data set, tuples and π"
    unranked = dict.fromkeys(entry.method for entry in entries if entry.first["is_oracle"])
    if unranked:
        yield f"Not ranked, because it uses the labels: {', '.join(unranked)}"
    if reference is not None:
        unit = ", in percentage points" if in_percent(metric) else ""
        yield f"Difference: of the means, to {reference}{unit}"


def _statistics_legend(compared: Sequence[Comparison]) -> Iterator[str]:
    """Which test, corrected over what, and how small its p can get: with few seeds no p is small."""
    tested = [comparison for comparison in compared if comparison["p"] is not None]
    if not tested:
        return
    sizes = sorted({comparison["family_size"] for comparison in tested})
    over = f"{sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''} comparison{'s' * (sizes != [1])}"
    yield f"p: paired Wilcoxon signed-rank test, two-sided, after Holm over {over}"
    reachable = sorted(
        {(comparison["pairs"], comparison["smallest_p"], comparison["smallest_p_holm"]) for comparison in tested},
        reverse=True,
    )
    yield "Smallest reachable p: " + ", ".join(
        f"{alone:.3g} with {pairs_word(pairs)} ({corrected:.3g} after Holm)"
        for pairs, alone, corrected in reachable[:3]
    )
    yield "CI: t interval over seeds"
    yield "Cliff's δ: of the paired differences, the share of pairs won minus the share lost"
    missing = [f"{comparison['method']} {reason}" for comparison in compared for reason in comparison["missing"]]
    if missing:
        more = f" and {len(missing) - 5} more (comparisons.jsonl)" if len(missing) > 5 else ""
        yield f"Missing pairs: {'; '.join(missing[:5])}{more}"
