"""All methods in one figure: a dot at each mean, a line over its interval; an oracle is hollow and set apart."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ntmp_cli.evaluation.comparisons import Entry, entry_of
from ntmp_cli.evaluation.metrics import LOWER_IS_BETTER
from ntmp_cli.evaluation.summary import Cell, SummaryRow, cell_of, t_interval
from ntmp_cli.reporting.drawing import DPI, PALETTE, house_style, svg_and_png
from ntmp_cli.reporting.tables import PERCENT, is_ceiling, metric_header, metric_number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_COLUMNS = 3
_ORACLE = "0.45"  # grey


def method_dots(summary: Sequence[SummaryRow], metric: str) -> dict[str, bytes]:
    """A panel per data set, tuples and prior, methods in the same order in all of them: the best mean on top.

    Returns `svg` and `png`; nothing where the metric is undefined everywhere.
    """
    rows = [row for row in summary if row["metric"] == metric and row["mean"] is not None]
    if not rows:
        return {}
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys(map(cell_of, rows)))
    entries = _order(rows)
    across = min(MOST_COLUMNS, len(cells))
    down = math.ceil(len(cells) / across)
    with house_style():
        size = (10, down * (0.85 + 0.3 * (len(entries) + _gap(entries))))
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel().tolist()
        for ax, cell in zip(axes, cells, strict=False):
            _panel(ax, cell, {entry_of(row): row for row in rows if cell_of(row) == cell}, entries)
        for ax in axes[len(cells) :]:
            ax.set_axis_off()
        for ax in axes[-across:]:
            ax.set_xlabel(metric_header(metric) + (", lower is better" if metric in LOWER_IS_BETTER else ""))
        return svg_and_png(figure)


def dots_caption(summary: Sequence[SummaryRow], metric: str) -> str:
    """What dots, lines and hollow dots stand for, as far as there are any."""
    rows = [row for row in summary if row["metric"] == metric and row["mean"] is not None]
    sentences = ["Dots: means over seeds." if any(row["seeds"] > 1 for row in rows) else "Dots: values of one seed."]
    sentences += ["Lines: 95 % t intervals of the mean."] if any(t_interval(row) for row in rows) else []
    sentences += (
        ["Hollow: trained on labels, an upper bound."] if any(is_ceiling(row["method"]) for row in rows) else []
    )
    return " ".join(sentences)


def _order(rows: Sequence[SummaryRow]) -> list[Entry]:
    """By the mean over cells, the best first, oracles last."""
    means: dict[Entry, list[float]] = {}
    for row in rows:
        means.setdefault(entry_of(row), []).append(row["mean"] or 0.0)
    sign = 1 if rows[0]["metric"] in LOWER_IS_BETTER else -1

    def place(entry: Entry) -> tuple[bool, float, Entry]:
        return is_ceiling(entry.method), sign * sum(means[entry]) / len(means[entry]), entry

    return sorted(means, key=place)


def _gap(entries: Sequence[Entry]) -> float:
    """Room between the methods and the oracles, in rows."""
    oracles = sum(is_ceiling(entry.method) for entry in entries)
    return 0.6 if 0 < oracles < len(entries) else 0.0


def _panel(ax: Axes, cell: Cell, rows: dict[Entry, SummaryRow], entries: Sequence[Entry]) -> None:
    gap = _gap(entries)
    places = {entry: at + gap * is_ceiling(entry.method) for at, entry in enumerate(entries)}
    for entry, row in rows.items():
        _dot(ax, places[entry], row)
    if gap:
        first_oracle = min(place for entry, place in places.items() if is_ceiling(entry.method))
        ax.axhline(first_oracle - (1 + gap) / 2, color="0.6", linewidth=0.8, linestyle=":")
    ax.set_title(textwrap.fill(str(cell), 60), loc="left", fontsize=10, fontweight="bold")
    ax.set_yticks(list(places.values()), [str(entry) for entry in entries])
    ax.set_ylim(len(entries) - 0.4 + gap, -0.6)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.1)


def _dot(ax: Axes, place: float, row: SummaryRow) -> None:
    metric, mean = row["metric"], row["mean"] or 0.0
    scale = 100 if metric in PERCENT else 1
    oracle = is_ceiling(row["method"])
    color = _ORACLE if oracle else PALETTE[0]
    interval = t_interval(row)
    if interval:
        ax.plot([scale * limit for limit in interval], [place, place], color=color, linewidth=2, solid_capstyle="butt")
    filled = "white" if oracle else color
    ax.plot([scale * mean], [place], "o", markersize=8, color=color, markerfacecolor=filled, markeredgewidth=1.6)
    ax.annotate(
        metric_number(metric, mean),
        (scale * mean, place),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        va="bottom",
        fontsize=8,
        color="0.25",
    )
