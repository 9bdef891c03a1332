"""Sweeps as figures: means over seeds with their intervals, windows shaded, critical points as red dashed lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ntmp_cli.reporting.plotting import DPI, PALETTE, Dash, figure_style, svg_and_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CRITICAL = "#C00000"
WINDOW = "#009E73"
BAND: Any = {"alpha": 0.18, "linewidth": 0}


@dataclass(frozen=True)
class Series:
    """Means and their intervals along x; None where nothing is known, and the line is broken there."""

    label: str
    x: Sequence[float]
    mean: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]
    stars: Sequence[str] = ()
    color: int = 0
    dash: Dash = "-"
    marker: str = "o"
    bars: bool = False
    """Intervals as error bars at every point; by default as a band, and as bars only where a point has no neighbour."""


@dataclass(frozen=True)
class Mark:
    """Critical points of one kind, plotted as red vertical lines."""

    label: str
    xs: Sequence[float]
    dash: Dash = "--"


@dataclass(frozen=True)
class Shade:
    """A window, shaded; `color` is that of the lines it belongs to, if there are others."""

    left: float
    right: float
    label: str = "window W"
    color: int | None = None


@dataclass(frozen=True)
class Panel:
    """Lines on one axis, with the windows and the critical points that belong to them."""

    ylabel: str
    lines: Sequence[Series]
    shades: Sequence[Shade] = ()
    marks: Sequence[Mark] = ()


@dataclass(frozen=True)
class GridColumn:
    """One metric of a grid: mean, lower and upper limit per combination; None where unknown."""

    xlabel: str
    points: Sequence[tuple[float | None, float | None, float | None]]


def sweep_figure(panels: Sequence[Panel], *, xlabel: str, title: str, note: str = "") -> dict[str, bytes]:
    """Panels in two columns (one panel alone takes the width), as `svg` and `png`."""
    from matplotlib.figure import Figure

    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)
    heading, foot = textwrap.fill(title, 95), textwrap.fill(note, 130)
    height = 0.35 * (1 + heading.count("\n")) + 3.0 * rows + 0.6 + (0.2 * (1 + foot.count("\n")) if foot else 0)
    with figure_style():
        figure = Figure(figsize=(9.0 if columns > 1 else 7.5, height), dpi=DPI, layout="constrained")
        figure.suptitle(heading, fontsize=12)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, panel in zip(axes, panels, strict=False):
            _plot_panel(ax, panel, xlabel)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        _legend(figure, list(axes[: len(panels)]), foot)
        return svg_and_png(figure)


def grid_figure(
    labels: Sequence[str], columns: Sequence[GridColumn], *, title: str, note: str = ""
) -> dict[str, bytes]:
    """One line of text per combination, and its mean with its interval in the column of each metric."""
    from matplotlib.figure import Figure

    heading, foot = textwrap.fill(title, 95), textwrap.fill(note, 150)
    with figure_style():
        height = 0.35 * (1 + heading.count("\n")) + 0.28 * len(labels) + 0.9 + 0.2 * (1 + foot.count("\n"))
        figure = Figure(figsize=(6.0 + 2.0 * len(columns), height), dpi=DPI, layout="constrained")
        figure.suptitle(heading, fontsize=12)
        axes = figure.subplots(1, len(columns), sharey=True, squeeze=False).ravel()
        for ax, column in zip(axes, columns, strict=True):
            _plot_column(ax, column)
        axes[0].set_yticks(range(len(labels)), [textwrap.shorten(label, 70, placeholder=" …") for label in labels])
        axes[0].set_ylim(len(labels) - 0.5, -0.5)
        figure.supxlabel(foot, fontsize=8.5)
        return svg_and_png(figure)


def _plot_column(ax: Axes, column: GridColumn) -> None:
    for row, (mean, low, high) in enumerate(column.points):
        if mean is None:
            ax.text(0.01, row, "none", transform=ax.get_yaxis_transform(), va="center", color="0.5")
            continue
        if low is not None and high is not None:
            ax.plot([low, high], [row, row], color=PALETTE[0], linewidth=2.2, solid_capstyle="butt", alpha=0.55)
        ax.plot([mean], [row], "o", color=PALETTE[0], markersize=5)
    ax.set_xlabel(column.xlabel)


def _plot_panel(ax: Axes, panel: Panel, xlabel: str) -> None:
    ax.set_xlabel(xlabel)
    ax.set_ylabel(panel.ylabel)
    for shade in panel.shades:
        color = WINDOW if shade.color is None else PALETTE[shade.color % len(PALETTE)]
        ax.axvspan(shade.left, shade.right, color=color, alpha=0.13, linewidth=0, label=shade.label)
        if shade.left == shade.right:  # a window of one point has no area
            ax.axvline(shade.left, color=color, alpha=0.4, linewidth=3)
    for mark in panel.marks:
        for number, x in enumerate(mark.xs):
            label = "_" if number else f"critical: {mark.label}"
            ax.axvline(x, color=CRITICAL, linestyle=mark.dash, linewidth=1.3, label=label)
    for line in panel.lines:
        _plot_line(ax, line)


def _plot_line(ax: Axes, line: Series) -> None:
    """The means, a band where neighbours have one too, bars where a point has no neighbour, and marks above points."""
    mean, low, high = (_with_gaps(values) for values in (line.mean, line.low, line.high))
    color = PALETTE[line.color % len(PALETTE)]
    style: dict[str, Any] = {"color": color, "linestyle": line.dash, "marker": line.marker, "markersize": 3.5}
    ax.plot(line.x, mean, label=line.label, **style)
    ax.fill_between(line.x, *((np.full(len(low), np.nan),) * 2 if line.bars else (low, high)), **BAND, color=color)
    barred = np.isfinite(low) & np.isfinite(high) & (line.bars | alone(mean))
    if barred.any():
        spread = np.stack([mean - low, high - mean])[:, barred].clip(0)
        ax.errorbar(np.asarray(line.x)[barred], mean[barred], spread, fmt="none", ecolor=color, capsize=2.5, lw=1)
    for x, y, stars in zip(line.x, np.fmax(mean, high), line.stars, strict=False):
        if stars and np.isfinite(y):
            place: Any = {"xytext": (0, 2), "textcoords": "offset points", "ha": "center", "fontsize": 10}
            ax.annotate(stars, (x, float(y)), color=color, annotation_clip=False, **place)


def alone(mean: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which points have no neighbour, so that neither line nor band shows them."""
    known = np.concatenate([[False], np.isfinite(mean), [False]])
    isolated: np.ndarray[Any, np.dtype[np.bool_]] = known[1:-1] & ~known[:-2] & ~known[2:]
    return isolated


def _with_gaps(values: Sequence[float | None]) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _legend(figure: Figure, axes: Sequence[Axes], note: str) -> None:
    """Every label once, whichever panel it is in, and a note above them."""
    entries = {label: handle for ax in axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if entries:
        widest = max(map(len, entries))
        columns = max(1, min(len(entries), 110 // (widest + 10)))
        handles = list(entries.values())
        place: Any = {"loc": "outside lower center", "ncols": columns}
        figure.legend(handles, list(entries), title=note or None, title_fontsize=8.5, fontsize=8.5, **place)
