"""One metric as a grid: a row per tuples, prior and data set, a column per method as in the paper, the best in bold."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ntmp_cli.evaluation.comparisons import MethodVariant, method_variant_of
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.reporting.formatting import best_rows, gap_cell, in_percent, metric_cell, setting_words
from ntmp_cli.reporting.paper import paper_column
from ntmp_cli.reporting.rendering import Column, Table, TableCell


def metric_grid(summary: Sequence[SummaryRow], metric: str, *, title: str) -> Table:
    """Means with their spread; rows of equal tuples and prior form a block, as in the paper."""
    rows = [row for row in summary if row["metric"] == metric]
    oracles = {method_variant_of(row) for row in rows if row["is_oracle"]}
    entries = sorted(
        {method_variant_of(row) for row in rows}, key=lambda entry: (entry in oracles, paper_column(entry))
    )
    by_cell: dict[DataCell, dict[MethodVariant, SummaryRow]] = {}
    for row in rows:
        by_cell.setdefault(cell_of(row), {})[method_variant_of(row)] = row
    blocks: dict[tuple[str, float], list[tuple[TableCell, ...]]] = {}
    for cell in sorted(by_cell, key=_paper_order):
        best = {method_variant_of(row) for row in best_rows(list(by_cell[cell].values()))}
        line = [metric_cell(metric, by_cell[cell].get(entry), best=entry in best) for entry in entries]
        gaps = [gap for row in by_cell[cell].values() if (gap := row.get("gap")) is not None]
        labels = (*_labels(cell), gap_cell(fmean(gaps) if gaps else None))
        blocks.setdefault((cell.tuples, cell.prior), []).append((*labels, *line))
    unit = " (%)" if in_percent(metric) else ""
    marked = any(cell.best for block in blocks.values() for row in block for cell in row)
    unranked = dict.fromkeys(entry.method for entry in entries if entry in oracles)
    sentences = [
        f"{title.rstrip('.')}: {metric}{unit} on the test split",
        setting_words(rows),
        *(["Bold: best mean of each row"] if marked else []),
        *([f"Not ranked, because it uses the labels: {', '.join(unranked)}"] if unranked else []),
    ]
    fields = ("mean", "std", "undefined", "ci_low", "ci_high")
    columns = (
        Column("tuples", ("tuples", "n", "m")),
        Column("π", ("prior",), numeric=True),
        Column("dataset", ("dataset",)),
        Column("Δ_op", ("gap",), numeric=True, shown=any(row.get("gap") is not None for row in rows)),
        *(Column(str(entry), tuple(f"{entry} {field}" for field in fields), numeric=True) for entry in entries),
    )
    return Table(". ".join(sentences) + ".", columns, tuple(tuple(block) for block in blocks.values()))


def _labels(cell: DataCell) -> list[TableCell]:
    return [
        TableCell(cell.tuples, (cell.tuples, cell.n, cell.m)),
        TableCell(f"{cell.prior:g}", (cell.prior,)),
        TableCell(cell.dataset, (cell.dataset,)),
    ]


def _paper_order(cell: DataCell) -> tuple[float, float, str, float, str]:
    """Tuples, then priors, then data sets; mixed specs last."""
    n, m = (float("inf") if count is None else count for count in (cell.n, cell.m))
    return n, m, cell.tuples, cell.prior, cell.dataset
