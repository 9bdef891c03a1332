"""Summary rows to the table of results."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.comparisons import Comparison, Entry, reference_of
from ntmp_cli.evaluation.metrics import DESCRIPTIVE, LOWER_IS_BETTER
from ntmp_cli.evaluation.summary import Cell as DataCell
from ntmp_cli.evaluation.summary import SummaryRow, cell_of
from ntmp_cli.reporting.rendering import Cell, Column, Table

# How a metric is shown; one that is not named here is a fraction.
PERCENT = frozenset({"accuracy", "accuracy_at_prior"})
# Methods that see the hidden labels: a ceiling to compare with, never the best of a block.
CEILINGS = frozenset({"supervised"})


def is_ceiling(method: str) -> bool:
    return method.partition("+")[0] in CEILINGS


UNDEFINED = "undefined"
ABSENT = "—"


@dataclass(frozen=True, eq=False)
class _Entry:
    """One table row before it is formatted: a method with its metrics."""

    first: SummaryRow
    by_metric: dict[str, SummaryRow]

    @property
    def method(self) -> str:
        return self.first["method"]

    @property
    def key(self) -> Entry:
        return Entry(self.method, self.first["variant"])

    @property
    def seeds(self) -> int:
        return max(row["seeds"] for row in self.by_metric.values())

    def mean(self, metric: str) -> float | None:
        return self.by_metric[metric]["mean"] if metric in self.by_metric else None


# Of the first metric: what was found for each line of the table.
Compared = dict[tuple[DataCell, Entry], Comparison]


def results_table(
    summary: Sequence[SummaryRow],
    *,
    title: str,
    metrics: Sequence[str] = (),
    reference: str | None = None,
    comparisons: Sequence[Comparison] = (),
    intervals: bool = False,
    notes: Sequence[str] = (),
) -> Table:
    """One row per (data set, tuples, prior, method, variant), one column per metric as mean ± std.

    The best mean of each block of equal data set, tuples and prior is marked, ties together, "equal"
    meaning equal as printed. Not marked: a method that sees the labels, a mean that leaves out
    undefined seeds, and the only method of a block. With a reference, a further column holds the
    difference of the first metric's mean to the reference's; with comparisons, three more hold its
    interval, the corrected p and the effect size. With `intervals` every mean has its own, in brackets. `notes` are
    further sentences of the caption.
    """
    names = list(dict.fromkeys(metrics or (row["metric"] for row in summary)))
    _check(summary, names, reference)
    blocks = _blocks(summary)
    entries = [entry for block in blocks for entry in block]
    compared = _compared(comparisons, names[0])
    cells = tuple(_block_cells(block, names, reference, compared, intervals=intervals) for block in blocks)
    marked = any(cell.best for block in cells for row in block for cell in row)
    sentences = [title.rstrip("."), setting_words([entry.first for entry in entries])]
    sentences += ["Brackets: 95 % bootstrap interval of the mean over seeds"] if intervals else []
    sentences += _legend(entries, names[0], reference, marked=marked)
    sentences += [*_statistics_legend(list(compared.values())), *notes]
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
                hint="`ntmp evaluate` computes every metric unless it is told which.",
            )
    methods = {row["method"] for row in summary}
    if reference is not None and reference not in methods:
        raise UsageError(f"reference '{reference}' is not among the methods; {did_you_mean(reference, methods)}")


def _columns(
    entries: Sequence[_Entry], metrics: Sequence[str], reference: str | None, *, compared: bool
) -> tuple[Column, ...]:
    """Labels, metrics, comparison; variant and seeds are shown only where they tell rows apart."""
    return (
        Column("dataset", ("dataset",)),
        Column("tuples", ("tuples", "n", "m")),
        Column("π", ("prior",), numeric=True),
        Column("method", ("method",)),
        Column("variant", ("variant",), shown=any(entry.first["variant"] for entry in entries)),
        Column("seeds", ("seeds",), numeric=True, shown=len({entry.seeds for entry in entries}) > 1),
        *(_metric_column(name) for name in metrics),
        *([] if reference is None else [_difference_column(metrics[0])]),
        *(_statistics_columns(metrics[0]) if compared else []),
    )


def _blocks(summary: Sequence[SummaryRow]) -> list[list[_Entry]]:
    """Blocks of entries, both in the order of the summary."""
    blocks: dict[tuple[object, ...], dict[tuple[str, str], _Entry]] = {}
    for row in summary:
        block = blocks.setdefault((row["dataset"], row["tuples"], row["n"], row["m"], row["prior"]), {})
        entry = block.setdefault((row["method"], row["variant"]), _Entry(row, {}))
        entry.by_metric[row["metric"]] = row
    return [list(block.values()) for block in blocks.values()]


def _block_cells(
    block: Sequence[_Entry], metrics: Sequence[str], reference: str | None, compared: Compared, *, intervals: bool
) -> tuple[tuple[Cell, ...], ...]:
    best = {
        metric: best_rows([entry.by_metric[metric] for entry in block if metric in entry.by_metric])
        for metric in metrics
    }
    rows = []
    for entry in block:
        cells = label_cells(entry.first, entry.seeds)
        for metric in metrics:
            row = entry.by_metric.get(metric)
            cells.append(metric_cell(metric, row, best=row in best[metric], interval=intervals))
        if reference is not None:
            cells.append(_difference_cell(metrics[0], entry, _reference_of(entry, block, reference)))
        if compared:
            cells += statistics_cells(metrics[0], compared.get((cell_of(entry.first), entry.key)))
        rows.append(tuple(cells))
    return tuple(rows)


def label_cells(row: SummaryRow, seeds: int) -> list[Cell]:
    """Data set, tuples, prior, method, variant and number of seeds."""
    return [
        Cell(row["dataset"], (row["dataset"],)),
        Cell(row["tuples"], (row["tuples"], row["n"], row["m"])),
        Cell(f"{row['prior']:g}", (row["prior"],)),
        Cell(row["method"], (row["method"],)),
        Cell(row["variant"], (row["variant"],)),
        Cell(str(seeds), (seeds,)),
    ]


# Metrics -------------------------------------------------------------------------------------------


def best_rows(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    """Of one metric in one cell: those that share the best mean, as printed; none where none is to be singled out."""
    if len(rows) < 2 or rows[0]["metric"] in DESCRIPTIVE:
        return []
    metric = rows[0]["metric"]
    means = [
        (float(metric_number(metric, row["mean"])), row)
        for row in rows
        if row["mean"] is not None and not row["undefined"] and not is_ceiling(row["method"])
    ]
    best = (min if metric in LOWER_IS_BETTER else max)((mean for mean, _ in means), default=None)
    return [row for mean, row in means if mean == best]


def metric_number(metric: str, value: float) -> str:
    """A value as it is printed: accuracy in percent, the others as fractions."""
    return f"{100 * value:.2f}" if metric in PERCENT else f"{value:.4f}"


def metric_header(metric: str) -> str:
    return f"{metric} (%)" if metric in PERCENT else metric


def _metric_column(metric: str) -> Column:
    fields = ("mean", "std", "undefined", "ci_low", "ci_high")
    return Column(metric_header(metric), tuple(f"{metric}_{field}" for field in fields), numeric=True)


def metric_cell(metric: str, row: SummaryRow | None, *, best: bool, interval: bool = False) -> Cell:
    """A mean with its standard deviation and, if asked for, its interval."""
    if row is None:
        return Cell(ABSENT, (None,) * 5)
    mean, std, undefined = row["mean"], row["std"], row["undefined"]
    if mean is None:
        return Cell(UNDEFINED, (math.nan, None, undefined, None, None))
    text = metric_number(metric, mean)
    if std is not None:
        text += f" ± {metric_number(metric, std)}"
    low, high = row.get("ci_low"), row.get("ci_high")
    if interval and low is not None and high is not None:
        text += f" [{metric_number(metric, low)}, {metric_number(metric, high)}]"
    if undefined:
        text += f" ({undefined} of {row['seeds']} {UNDEFINED})"
    return Cell(text, (mean, std, undefined, low, high), best)


# The reference -------------------------------------------------------------------------------------


def _difference_column(metric: str) -> Column:
    return Column(f"Δ {metric}", (f"{metric}_minus_reference",), numeric=True)


def _reference_of(entry: _Entry, block: Sequence[_Entry], reference: str) -> _Entry | None:
    entries = {other.key: other for other in block}
    found = reference_of(entry.key, entries, reference)
    return entries[found] if found else None


def _difference_cell(metric: str, entry: _Entry, reference: _Entry | None) -> Cell:
    if reference is None or not (metric in entry.by_metric and metric in reference.by_metric):
        return Cell(ABSENT, (None,))
    if entry is reference:
        return Cell("reference", (0.0,))
    ours, theirs = entry.mean(metric), reference.mean(metric)
    if ours is None or theirs is None:
        return Cell(UNDEFINED, (math.nan,))
    return Cell(signed(metric, ours - theirs), (ours - theirs,))


def signed(metric: str, value: float) -> str:
    text = metric_number(metric, abs(value))
    return ("" if not float(text) else "+" if value > 0 else "−") + text


def _compared(comparisons: Sequence[Comparison], metric: str) -> Compared:
    return {
        (cell_of(own), Entry(own["method"], own["variant"])): own  # type: ignore[arg-type]
        for own in comparisons
        if own["scope"] == "cell" and own["metric"] == metric
    }


def _statistics_columns(metric: str) -> list[Column]:
    def named(*fields: str) -> tuple[str, ...]:
        return tuple(f"{metric}_{field}" for field in fields)

    return [
        Column("95 % CI of Δ", named("difference_low", "difference_high"), numeric=True),
        Column("p (Holm)", named("p_holm", "p", "pairs"), numeric=True),
        Column("Cliff's δ", named("cliff", "cliff_low", "cliff_high", "cliff_word"), numeric=True),
    ]


def statistics_cells(metric: str, found: Comparison | None) -> list[Cell]:
    """Interval of the difference, corrected p and effect size."""
    if found is None or found["p"] is None or found["p_holm"] is None or found["cliff"] is None:
        return [Cell(ABSENT, (None,) * count) for count in (2, 3, 4)]
    low, high = found["difference_low"], found["difference_high"]
    interval = ABSENT if low is None or high is None else f"[{signed(metric, low)}, {signed(metric, high)}]"
    fewer = f" ({pairs_word(found['pairs'])})" if found["missing"] else ""
    cliff = f"{abs(found['cliff']):.2f}"
    sign = "" if not float(cliff) else "+" if found["cliff"] > 0 else "−"
    effect = (found["cliff"], found["cliff_low"], found["cliff_high"], found["cliff_word"])
    return [
        Cell(interval, (low, high)),
        Cell(f"{found['p_holm']:.3g}{fewer}", (found["p_holm"], found["p"], found["pairs"])),
        Cell(f"{sign}{cliff} ({found['cliff_word']})", effect),
    ]


def pairs_word(count: int) -> str:
    return f"{count} pair{'s' * (count != 1)}"


# The caption ---------------------------------------------------------------------------------------


def setting_words(rows: Sequence[SummaryRow]) -> str:
    """What the numbers are of: seeds, (n, m) with α = m/n, and π."""
    fewest, most = (pick(row["seeds"] for row in rows) for pick in (min, max))
    if most == 1:
        what = "Values of one seed"
    else:
        what = f"Mean ± standard deviation over {most if fewest == most else f'{fewest} to {most}'} seeds"
    specs = dict.fromkeys(_spec(row) for row in rows)
    priors = sorted({row["prior"] for row in rows})
    return f"{what}; {', '.join(specs)}; π = {', '.join(f'{prior:g}' for prior in priors)}"


def _legend(entries: Sequence[_Entry], metric: str, reference: str | None, *, marked: bool) -> Iterator[str]:
    """What bold and Δ stand for, and who was not ranked."""
    if marked:
        yield "Bold: best mean of each data set, tuples and π"
    unranked = dict.fromkeys(entry.method for entry in entries if is_ceiling(entry.method))
    if unranked:
        yield f"Not ranked, because it sees the labels: {', '.join(unranked)}"
    if reference is not None:
        unit = ", in percentage points" if metric in PERCENT else ""
        yield f"Δ: difference of the means to {reference}{unit}"


def _statistics_legend(compared: Sequence[Comparison]) -> Iterator[str]:
    """Which test, corrected over what, and how small its p can get: with few seeds no p is small."""
    tested = [own for own in compared if own["p"] is not None]
    if not tested:
        return
    sizes = sorted({own["family_size"] for own in tested})
    over = f"{sizes[0]}{f' to {sizes[-1]}' if len(sizes) > 1 else ''} comparison{'s' * (sizes != [1])}"
    yield f"p: paired Wilcoxon signed-rank test, two-sided, after Holm over {over}"
    reachable = sorted({(own["pairs"], own["smallest_p"], own["smallest_p_holm"]) for own in tested}, reverse=True)
    yield "Smallest reachable p: " + ", ".join(
        f"{alone:.3g} with {pairs_word(pairs)} ({corrected:.3g} after Holm)"
        for pairs, alone, corrected in reachable[:3]
    )
    yield "CI: bootstrap over seeds"
    missing = [f"{own['method']} {what}" for own in compared for what in own["missing"]]
    if missing:
        more = f" and {len(missing) - 5} more (comparisons.jsonl)" if len(missing) > 5 else ""
        yield f"Missing pairs: {'; '.join(missing[:5])}{more}"


def _spec(row: SummaryRow) -> str:
    n, m = row["n"], row["m"]
    if n is None or m is None:
        return f"tuples {row['tuples']}"
    return f"(n, m) = ({n}, {m}) with α = {m / n:.4g}"
