"""All methods in one figure: a dot at each mean, a line over its interval; an oracle is hollow and set apart.

Vertical lines mark a constant score, such as the majority class, and the upper bound.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ntmp_cli.evaluation.comparisons import MethodVariant, method_variant_of
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.reporting.baselines import Baseline
from ntmp_cli.reporting.formatting import in_percent, metric_header, metric_number
from ntmp_cli.reporting.plotting import DPI, PALETTE, Dash, figure_style, svg_and_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS = 3
_ORACLE = "0.45"  # grey
_BASELINE = PALETTE[1]
Baselines = Mapping[DataCell, Baseline]
NO_BASELINES: Baselines = {}


def method_dots(summary: Sequence[SummaryRow], metric: str, baselines: Baselines = NO_BASELINES) -> dict[str, bytes]:
    """A panel per data set, tuples and prior, methods in the same order in all of them: the best mean on top.

    `baselines` are the values of a constant score by panel. Returns `svg` and `png`; nothing where the
    metric is undefined everywhere.
    """
    rows = [row for row in summary if row["metric"] == metric and row["mean"] is not None]
    if not rows:
        return {}
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys(map(cell_of, rows)))
    entries, oracles = _order(rows), _oracles(rows)
    across = min(MOST_COLUMNS, len(cells))
    down = math.ceil(len(cells) / across)
    with figure_style():
        size = (10, 0.25 + down * (0.85 + 0.3 * (len(entries) + _gap(entries, oracles))))
        figure = Figure(figsize=size, dpi=DPI, layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True).ravel().tolist()
        for ax, cell in zip(axes, cells, strict=False):
            _panel(ax, cell, {method_variant_of(row): row for row in rows if cell_of(row) == cell}, entries, oracles)
            _lines(ax, [row for row in rows if cell_of(row) == cell], baselines.get(cell))
        for ax in axes[len(cells) :]:
            ax.set_axis_off()
        for ax in axes[-across:]:
            ax.set_xlabel(metric_header(metric) + (", lower is better" if facts_of(metric).lower_is_better else ""))
        _legend(figure, rows, [baselines[cell] for cell in cells if cell in baselines])
        return svg_and_png(figure)


def dots_caption(summary: Sequence[SummaryRow], metric: str, baselines: Baselines = NO_BASELINES) -> str:
    """The legend of the dots and lines that the figure has."""
    rows = [row for row in summary if row["metric"] == metric and row["mean"] is not None]
    sentences = ["Dots: means over seeds." if any(row["seeds"] > 1 for row in rows) else "Dots: values of one seed."]
    sentences += ["Lines: 95 % t intervals of the mean."] if any(row["ci_low"] is not None for row in rows) else []
    if _oracles(rows):
        sentences.append("Hollow, with a dashed line: trained on labels, an upper bound.")
    if baselines:
        sentences.append(f"Dotted line: {next(iter(baselines.values())).meaning}.")
    return " ".join(sentences)


def dots_as_text(summary: Sequence[SummaryRow], metric: str) -> str:
    """The figure for readers who do not see it: every panel with its means, the best first."""
    rows = [row for row in summary if row["metric"] == metric and row["mean"] is not None]
    order = _order(rows) if rows else []
    panels = []
    for cell in dict.fromkeys(map(cell_of, rows)):
        means = {method_variant_of(row): row["mean"] or 0.0 for row in rows if cell_of(row) == cell}
        values = [f"{entry} {metric_number(metric, means[entry])}" for entry in order if entry in means]
        panels.append(f"{cell}: {', '.join(values)}.")
    return " ".join([f"Mean {metric_header(metric)} of every method.", *panels])


def _oracles(rows: Sequence[SummaryRow]) -> set[MethodVariant]:
    return {method_variant_of(row) for row in rows if row["is_oracle"]}


def _order(rows: Sequence[SummaryRow]) -> list[MethodVariant]:
    """By the mean over cells, the best first, oracles last."""
    means: dict[MethodVariant, list[float]] = {}
    for row in rows:
        means.setdefault(method_variant_of(row), []).append(row["mean"] or 0.0)
    sign = 1 if facts_of(rows[0]["metric"]).lower_is_better else -1
    oracles = _oracles(rows)

    def place(entry: MethodVariant) -> tuple[bool, float, MethodVariant]:
        return entry in oracles, sign * sum(means[entry]) / len(means[entry]), entry

    return sorted(means, key=place)


def _gap(entries: Sequence[MethodVariant], oracles: set[MethodVariant]) -> float:
    """Space between the methods and the oracles, in rows."""
    return 0.6 if 0 < len(oracles) < len(entries) else 0.0


def _panel(
    ax: Axes,
    cell: DataCell,
    rows: dict[MethodVariant, SummaryRow],
    entries: Sequence[MethodVariant],
    oracles: set[MethodVariant],
) -> None:
    gap = _gap(entries, oracles)
    places = {entry: at + gap * (entry in oracles) for at, entry in enumerate(entries)}
    for entry, row in rows.items():
        _dot(ax, places[entry], row)
    if gap:
        first_oracle = min(places[entry] for entry in oracles)
        ax.axhline(first_oracle - (1 + gap) / 2, color="0.6", linewidth=0.8, linestyle=":")
    ax.set_title(textwrap.fill(str(cell), 60), loc="left", fontsize=10, fontweight="bold")
    ax.set_yticks(list(places.values()), [str(entry) for entry in entries])
    ax.set_ylim(len(entries) - 0.4 + gap, -0.6)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    ax.margins(x=0.1)


def _lines(ax: Axes, rows: Sequence[SummaryRow], baseline: Baseline | None) -> None:
    """The upper bound, the best of several, and the constant score."""
    metric = rows[0]["metric"]
    scale = 100 if in_percent(metric) else 1
    bounds = [row["mean"] or 0.0 for row in rows if row["is_oracle"]]
    if bounds:
        best = min(bounds) if facts_of(metric).lower_is_better else max(bounds)
        ax.axvline(scale * best, color=_ORACLE, linewidth=1.2, linestyle="--", zorder=0.8)
    if baseline is not None:
        ax.axvline(scale * baseline.value, color=_BASELINE, linewidth=1.4, linestyle=":", zorder=0.8)


def _legend(figure: Figure, rows: Sequence[SummaryRow], baselines: Sequence[Baseline]) -> None:
    from matplotlib.lines import Line2D

    lines: dict[str, tuple[str, Dash]] = {str(entry): (_ORACLE, "--") for entry in sorted(_oracles(rows))[:1]}
    lines |= {baseline.name: (_BASELINE, ":") for baseline in baselines[:1]}
    if lines:
        handles = [Line2D([], [], color=color, linestyle=dash, linewidth=1.4) for color, dash in lines.values()]
        names = [f" {name}" if name.startswith("_") else name for name in lines]
        figure.legend(handles, names, loc="outside upper right", ncols=2, fontsize=8.5)


def _dot(ax: Axes, place: float, row: SummaryRow) -> None:
    metric, mean = row["metric"], row["mean"] or 0.0
    scale = 100 if in_percent(metric) else 1
    color = _ORACLE if row["is_oracle"] else PALETTE[0]
    low, high = row["ci_low"], row["ci_high"]
    if low is not None and high is not None:
        ax.plot([scale * low, scale * high], [place, place], color=color, linewidth=2, solid_capstyle="butt")
    filled = "white" if row["is_oracle"] else color
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
