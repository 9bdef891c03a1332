"""Summary of an evaluation: the verdict, and a table that fits a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ntmp_cli.evaluation.comparisons import method_variant_of
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.reporting.formatting import (
    ABSENT,
    UNDEFINED,
    best_rows,
    label_cells,
    metric_header,
    metric_number,
)
from ntmp_cli.reporting.rendering import Column, Table, TableCell
from ntmp_cli.reporting.verdict import rank

DEFAULT_METRICS = ("accuracy", "auroc", "ap")
LABELS = ("dataset", "tuples", "prior", "gap", "method", "variant", "seeds")
SIGNS = {"prior": "π", "gap": "Δ_op"}


@dataclass(frozen=True)
class Overview:
    """What the terminal shows of an evaluation."""

    verdict: str
    upper_bound: str
    table: Table


def overview_table(summary: Sequence[SummaryRow], metrics: Sequence[str]) -> Table:
    """A row per method, best first in each cell, an oracle last; the first metric with its interval over seeds.

    A label that all rows share is in the caption instead of a column.
    """
    first = [row for row in summary if row["metric"] == metrics[0]]
    by_cell: dict[DataCell, list[SummaryRow]] = {}
    for row in first:
        by_cell.setdefault(cell_of(row), []).append(row)
    varies = {name: len({row.get(name) for row in first}) > 1 for name in LABELS}
    columns = [
        # The gap of a cell follows from its tuples and prior: it has a column in wide tables only.
        Column(SIGNS.get(name, name), (name,), numeric=name in ("prior", "gap", "seeds"), shown=shown)
        for name, shown in {**varies, "gap": False, "method": True}.items()
    ]
    columns += [Column(metric_header(metric), (f"{metric}_mean",), numeric=True) for metric in metrics]
    blocks = tuple(_block(_ordered(rows), summary, metrics) for rows in by_cell.values())
    return Table(_caption(first, varies), tuple(columns), blocks)


def _ordered(rows: Sequence[SummaryRow]) -> list[SummaryRow]:
    ranked = rank(rows)
    return [*ranked, *sorted((row for row in rows if row not in ranked), key=lambda row: row["is_oracle"])]


def _block(
    rows: Sequence[SummaryRow], summary: Sequence[SummaryRow], metrics: Sequence[str]
) -> tuple[tuple[TableCell, ...], ...]:
    cell = cell_of(rows[0])
    rows_of_cell = {(method_variant_of(row), row["metric"]): row for row in summary if cell_of(row) == cell}
    best = {metric: best_rows([row for (_, name), row in rows_of_cell.items() if name == metric]) for metric in metrics}
    return tuple(
        (
            *label_cells(row, row["seeds"]),
            *(
                _value(rows_of_cell.get((method_variant_of(row), metric)), best[metric], with_interval=not position)
                for position, metric in enumerate(metrics)
            ),
        )
        for row in rows
    )


def _value(row: SummaryRow | None, best: Sequence[SummaryRow], *, with_interval: bool) -> TableCell:
    if row is None:
        return TableCell(ABSENT, (None,))
    metric, mean = row["metric"], row["mean"]
    if mean is None:
        return TableCell(UNDEFINED, (None,))
    low, high = row["ci_low"], row["ci_high"]
    shown = with_interval and low is not None and high is not None
    brackets = f" [{metric_number(metric, low or 0.0)}, {metric_number(metric, high or 0.0)}]" if shown else ""
    partly = f" ({row['undefined']} of {row['seeds']} {UNDEFINED})" if row["undefined"] else ""
    return TableCell(f"{metric_number(metric, mean)}{brackets}{partly}", (mean,), row in best)


def _caption(rows: Sequence[SummaryRow], varies: dict[str, bool]) -> str:
    first = rows[0]
    shared = [
        *([] if varies["dataset"] else [first["dataset"]]),
        *([] if varies["tuples"] else [f"tuples {first['tuples']}"]),
        *([] if varies["prior"] else [f"π = {first['prior']:g}"]),
        *([first["variant"]] if first["variant"] and not varies["variant"] else []),
    ]
    most = max(row["seeds"] for row in rows)
    of = "Values of one seed" if most == 1 else "Means over seeds" if varies["seeds"] else f"Means over {most} seeds"
    brackets = " [95 % t interval]" if any(row["ci_low"] is not None for row in rows) else ""
    return ". ".join([*([", ".join(shared)] if shared else []), f"{of}{brackets}"]) + "."
