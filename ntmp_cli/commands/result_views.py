"""Terminal output for evaluations, reports, studies and sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ntmp_cli.commands.view_text import GAP, new_table, print_line, print_table, print_text, shown

if TYPE_CHECKING:
    from ntmp_cli.reporting.overview import Overview
    from ntmp_cli.reporting.rendering import Table as ResultsTable
    from ntmp_cli.stages.pipeline import Step
    from ntmp_cli.stages.sweep import Sweep
    from ntmp_cli.sweeps.plans import SweepPlan

# Minimum width of a column of names.
NAME = 8


def overview_view(console: Console, overview: Overview, *, wide: bool = False) -> None:
    """The verdict, then the table."""
    _show_verdict(console, overview)
    _show_table(console, overview.table, wide=wide)


def _show_verdict(console: Console, overview: Overview) -> None:
    print_text(console, overview.verdict, style="bold")
    print_text(console, overview.upper_bound)
    console.print()


def _show_table(console: Console, table: ResultsTable, *, wide: bool) -> None:
    """If `wide`, all columns, then the caption; otherwise the caption, then the columns that fit."""
    if wide:
        console.print(results_view(table))
        print_text(console, table.caption, width=max(_natural_width(table), 80))
    else:
        print_text(console, table.caption)
        console.print(results_view(_fitting(table, console.width), console.width))
        print_text(console, "More columns and the tests: --wide", style="dim")
    console.print()


def _fitting(table: ResultsTable, width: int) -> ResultsTable:
    """Drop metrics from the right until the table fits; the first metric is always kept."""
    metrics = [at for at, column in enumerate(table.columns) if column.fields[0].endswith("_mean")]
    while len(metrics) > 1 and _natural_width(table) > width:
        last = metrics.pop()
        columns = tuple(replace(c, shown=c.shown and at != last) for at, c in enumerate(table.columns))
        table = replace(table, columns=columns)
    return table


def _natural_width(table: ResultsTable) -> int:
    widths = _column_widths(table)
    return sum(widths) + GAP * (len(widths) - 1)


def _column_widths(table: ResultsTable) -> list[int]:
    texts = [table.headers, *(tuple(cell.text for cell in table.shown(row)) for row in table.rows)]
    return [max(map(cell_len, column)) for column in zip(*texts, strict=True)]


def results_view(table: ResultsTable, width: int = 0) -> Table:
    """A results table with separated blocks and the best cells in bold; to fit `width`, names wrap before numbers."""
    columns = [column for column in table.columns if column.shown]
    least = [
        width_of if column.numeric else NAME for width_of, column in zip(_column_widths(table), columns, strict=True)
    ]
    fits = sum(least) + GAP * (len(least) - 1) <= width
    # Text objects everywhere: plain strings would have their [brackets] read as markup.
    grid = new_table()
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        grid.add_column(Text(column.header), justify=justify, overflow="fold", no_wrap=fits and column.numeric)
    for block in table.blocks:
        for row in block:
            grid.add_row(*(Text(cell.text, style="bold" if cell.best else "") for cell in table.shown(row)))
        grid.add_section()
    return grid


def report_view(
    console: Console,
    overview: Overview,
    tables: Sequence[ResultsTable],
    files: Sequence[str],
) -> None:
    """The verdict, every table of a report, and the paths of its files."""
    _show_verdict(console, overview)
    for table in tables:
        _show_table(console, table, wide=True)
    for name in files:
        print_line(console, name)


def pipeline_view(
    console: Console, overview: Overview, out: Path, steps: Sequence[Step], *, wide: bool = False
) -> None:
    """The verdict and the table of the study, and the path of its report."""
    overview_view(console, overview, wide=wide)
    skipped = sum(step.skipped for step in steps)
    console.print(f"{len(steps) - skipped} steps done, {skipped} unchanged")
    print_line(console, f"report: {out / 'report' / 'index.html'}")


def plan_view(console: Console, plan: SweepPlan, finished: set[str]) -> None:
    """The cells of a sweep, and which of them are finished."""
    for cell in plan.cells:
        print_line(console, f"{'done   ' if cell.name in finished else 'to do  '} {cell.name}")
    for left in plan.left_out:
        print_text(console, f"left out {_coordinates(left.position)}: {left.why}")
    console.print(f"{len(plan.cells)} cells, {len(finished)} done, {len(plan.cells) - len(finished)} to train")


def sweep_view(console: Console, sweep: Sweep, *, wide: bool = False) -> None:
    """The judged metric at every point, the windows, and the path of the results."""
    from ntmp_cli.reporting.words import window_words

    summary, tally = sweep.results.summary, sweep.tally
    by_metric = {
        metric: [point for point in sweep.points if point["metric"] == metric]
        for metric in (summary.metric, *sweep.plan.config.metrics)
    }
    print_table(console, _points_table(by_metric, wide=wide))
    for left in sweep.plan.left_out:
        print_text(console, f"left out {_coordinates(left.position)}: {left.why}")
    for window in summary.windows:
        print_text(console, window_words(window.to_json()))
    console.print(f"{tally.trained} cells trained, {tally.kept} unchanged, {len(tally.failures)} failed")
    note = "" if summary.complete else " (incomplete)"
    print_line(console, f"results: {sweep.results.path}{note}")


def _points_table(by_metric: Mapping[str, Sequence[Mapping[str, Any]]], *, wide: bool) -> Table:
    """One row per point: the judged metric (the first) with its interval; if `wide`, also the means of the others.

    Otherwise names are shortened, and `run` and `seeds` are left out if they are the same in all rows.
    """
    judged, *others = by_metric
    points = by_metric[judged]
    known = ("run", "metric", "planned", "seeds", "mean", "std", "low", "high")
    keys = [key for key in points[0] if key not in known]
    columns = {
        "run": [p["run"] for p in points],
        **{key: [shown(p[key]) for p in points] for key in keys},
        "seeds": [f"{p['seeds']}" + f" of {p['planned']}" * (p["seeds"] != p["planned"]) for p in points],
        judged: [_four_digits(p["mean"]) for p in points],
        "std": [_four_digits(p["std"]) for p in points],
        "95 % interval": ["none" if p["low"] is None else f"{p['low']:.4f} to {p['high']:.4f}" for p in points],
        **{metric: [_four_digits(p["mean"]) for p in by_metric[metric]] for metric in others},
    }
    headers = {name: name for name in columns}
    if not wide:
        for name in ("std", *others):
            del columns[name]
        for name in ("run", "seeds"):
            if keys and len(set(columns[name])) == 1:
                del columns[name]
        short = [key.rpartition(".")[2] for key in keys]
        headers |= {key: name for key, name in zip(keys, short, strict=True) if short.count(name) == 1}
    table = new_table()
    for name in columns:
        table.add_column(Text(headers[name]), justify="left" if name == "run" else "right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _four_digits(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _coordinates(position: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={shown(value)}" for key, value in position.items())
