"""Curves and tuples to figures, as bytes: the same values give the same bytes."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.evaluation.intervals import wilson_interval
from ntmp_cli.reporting.plotting import DPI, LINE_STYLES, PALETTE, Dash, figure_style, png, svg_and_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """One run over its epochs.

    `group` names the block it belongs to and `label` its method; runs that share both differ in the
    seed. Values that were not recorded are None. Accuracy is a fraction, at the epochs it was traced.
    """

    label: str
    group: str
    seed: int
    epochs: list[int]
    train_loss: Sequence[float | None]
    heldout_risk: Sequence[float | None]
    accuracy: list[tuple[int, float]]
    iterations: Sequence[int] = ()
    """Steps of the optimiser until the end of each epoch; none for methods without steps."""
    warmup_end: int | None = None
    """The last epoch whose objective has a warm-up term; None without a warm-up."""


class Band(NamedTuple):
    """Mean over seeds at each epoch, with the sample standard deviation; nan where one seed is all."""

    epochs: NDArray[np.int64]
    mean: NDArray[np.float64]
    std: NDArray[np.float64]


class Look(NamedTuple):
    """Colour and dash of a label in every panel."""

    color: str
    linestyle: Dash


Points = list[tuple[int, float]]

# The panels of a row: the name of the axis and the points that a curve has on it.
_PANELS: dict[str, Callable[[Curve], Points]] = {
    "training objective": lambda curve: _recorded(curve.epochs, curve.train_loss),
    "held-out objective (label-free)": lambda curve: _recorded(curve.epochs, curve.heldout_risk),
    "test accuracy (%)": lambda curve: [
        (epoch, 100 * value) for epoch, value in curve.accuracy if math.isfinite(value)
    ],
}


def learning_curves(curves: Sequence[Curve], *, title: str) -> dict[str, bytes]:
    """Per group a row of up to three panels: training objective, held-out risk, test accuracy.

    Lines are means over seeds and bands one standard deviation to either side; a dotted line is the end of the warm-up.
    Returns the figure as `svg` and `png`; nothing where all was computed at once. Panels without points are left out.
    """
    rows = {curve.group for curve in curves if any(len(points(curve)) > 1 for points in _PANELS.values())}
    curves = [curve for curve in curves if curve.group in rows]
    names = [name for name, points in _PANELS.items() if any(map(points, curves))]
    looks = looks_of(list(dict.fromkeys(curve.label for curve in curves)))

    def plot_row(group: str, row: Sequence[Axes]) -> None:
        members = [curve for curve in curves if curve.group == group]
        for ax, name in zip(row, names, strict=True):
            _plot_panel(ax, name, members, looks)

    return panel_grid([curve.group for curve in curves], len(names), looks, plot_row, title=title)


@dataclass(frozen=True)
class Diagram:
    """One run's bins of equal mass: mean probability, share of positives, effective number of instances.

    `scaling` says what the temperature was fitted to. Runs that share label, group and scaling differ in the seed.
    """

    label: str
    group: str
    scaling: str
    confidence: Sequence[float]
    frequency: Sequence[float]
    instances: Sequence[float]


# The panels of a row of reliability diagrams.
_SCALINGS = {"none": "as scored", "labels": "temperature by labels", "counts": "temperature by counts"}


def reliability_diagrams(diagrams: Sequence[Diagram], *, title: str) -> dict[str, bytes]:
    """Per group a row of panels, one per temperature: share of positives against probability, bin by bin.

    Bins hold the same share of the instances each; their points are means over seeds with 95 % intervals, and on the
    diagonal probabilities are what they say. Returns `svg` and `png`; nothing when there are no diagrams. A temperature
    that no run has is left out.
    """
    looks = looks_of(list(dict.fromkeys(diagram.label for diagram in diagrams)))
    scalings = [scaling for scaling in _SCALINGS if any(diagram.scaling == scaling for diagram in diagrams)]

    def plot_row(group: str, row: Sequence[Axes]) -> None:
        for ax, scaling in zip(row, scalings, strict=True):
            members = [diagram for diagram in diagrams if (diagram.group, diagram.scaling) == (group, scaling)]
            _plot_reliability(ax, _SCALINGS[scaling], members, looks)

    return panel_grid(
        [diagram.group for diagram in diagrams], len(scalings), looks, plot_row, title=title, row_height=3.4
    )


def tuple_montage(images: NDArray[np.floating[Any]], captions: Sequence[str], title: str) -> bytes:
    """A PNG with one row of images per tuple and its caption beside it, such as "1 of 3 positive".

    Images have shape (T, n, H, W) or (T, n, H, W, 3) and values in [0, 1]; shorter tuples are padded
    with NaN, which stays empty.
    """
    if len(captions) != len(images) or not len(images):
        raise ValueError(f"{len(captions)} captions for {len(images)} tuples; at least one is needed")
    from matplotlib.figure import Figure

    canvas, centres = _mosaic(images)
    height, width = canvas.shape[:2]
    with figure_style():
        # The axes fill the figure, so that one pixel of the canvas is one pixel of the file; text
        # goes outside, and the tight box leaves space for it.
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
        ax = figure.add_axes((0, 0, 1, 1))
        ax.imshow(canvas, interpolation="nearest", aspect="auto")
        ax.set_yticks(centres, [textwrap.fill(caption, 40) for caption in captions])
        ax.set_xticks([])
        ax.tick_params(length=0, pad=8, labelsize=11)
        ax.spines[:].set_visible(False)
        ax.grid(False)
        ax.set_title(textwrap.fill(title, 80), loc="left", fontsize=12, pad=10)
        return png(figure, bbox_inches="tight", pad_inches=0.12)


# Reliability ---------------------------------------------------------------------------------------


def mean_bins(diagrams: Sequence[Diagram]) -> tuple[NDArray[np.float64], ...]:
    """Confidence, frequency and its 95 % limits, bin by bin, as means over seeds.

    Seeds share their test instances, so that more seeds do not narrow an interval: it is that of one test split.
    """
    confidence, frequency, instances = (
        np.mean([getattr(diagram, name) for diagram in diagrams], axis=0)
        for name in ("confidence", "frequency", "instances")
    )
    limits = [wilson_interval(*bin_) for bin_ in zip(frequency.tolist(), instances.tolist(), strict=True)]
    low, high = np.array(limits).T
    return confidence, frequency, low, high


def _plot_reliability(ax: Axes, name: str, diagrams: Sequence[Diagram], looks: dict[str, Look]) -> None:
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    ax.set(xlabel=f"probability, {name}", ylabel="share of positives")
    ax.plot([0, 1], [0, 1], color="0.6", linestyle="--", linewidth=1)
    for label, look in looks.items():
        members = [diagram for diagram in diagrams if diagram.label == label]
        if members:
            confidence, frequency, low, high = mean_bins(members)
            spread = np.maximum([frequency - low, high - frequency], 0)
            ax.errorbar(confidence, frequency, spread, fmt="none", color=look.color, elinewidth=1.1, alpha=0.6)
            ax.plot(confidence, frequency, color=look.color, linestyle=look.linestyle, linewidth=1.2, alpha=0.5)
            ax.scatter(confidence, frequency, s=18, color=look.color, linewidths=0, zorder=3)
    if not diagrams:
        ax.text(0.5, 0.5, "not fitted", transform=ax.transAxes, ha="center", va="center", color="0.5")


# Learning curves -----------------------------------------------------------------------------------


def seed_band(points: Sequence[Points]) -> Band:
    """Mean and standard deviation over seeds at every epoch that at least one seed has."""
    epochs = sorted({epoch for seed in points for epoch, _ in seed})
    at = {epoch: index for index, epoch in enumerate(epochs)}
    values = np.full((len(points), len(epochs)), np.nan)
    for seed, points_of_seed in enumerate(points):
        for epoch, value in points_of_seed:
            values[seed, at[epoch]] = value
    count = np.sum(~np.isnan(values), axis=0)
    mean = np.nansum(values, axis=0) / count
    variance = np.nansum((values - mean) ** 2, axis=0) / np.maximum(count - 1, 1)
    return Band(np.array(epochs, dtype=np.int64), mean, np.where(count > 1, np.sqrt(variance), np.nan))


def _recorded(epochs: Sequence[int], values: Sequence[float | None]) -> Points:
    pairs = zip(epochs, values, strict=True)
    return [(epoch, value) for epoch, value in pairs if value is not None and math.isfinite(value)]


def looks_of(labels: Sequence[str]) -> dict[str, Look]:
    """A colour per label and, once the colours are used up, another dash."""
    looks = itertools.cycle(Look(color, dash) for dash, color in itertools.product(LINE_STYLES, PALETTE))
    return dict(zip(labels, looks, strict=False))


def _plot_panel(ax: Axes, name: str, curves: Sequence[Curve], looks: dict[str, Look]) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("epoch")
    ax.set_ylabel(name)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10]))
    epochs: set[int] = set()
    for label, look in looks.items():
        band = seed_band([_PANELS[name](curve) for curve in curves if curve.label == label])
        if len(band.epochs) == 1:  # no line to plot: a point with its spread
            spread = None if np.isnan(band.std).any() else band.std
            ax.errorbar(band.epochs, band.mean, spread, fmt="o", markersize=5, capsize=3, color=look.color)
        elif len(band.epochs):
            ax.plot(band.epochs, band.mean, color=look.color, linestyle=look.linestyle)
            ax.fill_between(
                band.epochs,
                band.mean - band.std,
                band.mean + band.std,
                color=look.color,
                alpha=0.18,
                linewidth=0,
            )
        epochs.update(band.epochs.tolist())
    if epochs:
        _mark_warmup(ax, curves, looks)
    if len(epochs) == 1:  # matplotlib would spread one epoch over ticks such as 0.98
        ax.set_xlim(min(epochs) - 1, max(epochs) + 1)
    elif not epochs:
        ax.set(xticks=[], yticks=[])
        ax.text(0.5, 0.5, "not recorded", transform=ax.transAxes, ha="center", va="center", color="0.5")


def _mark_warmup(ax: Axes, curves: Sequence[Curve], looks: dict[str, Look]) -> None:
    """A dotted line per label at the end of its warm-up, the mean over seeds; the first line has a legend."""
    said = False
    for label, look in looks.items():
        ends = [curve.warmup_end for curve in curves if curve.label == label and curve.warmup_end is not None]
        if not ends:
            continue
        end = float(np.mean(ends))
        ax.axvline(end, color=look.color, linewidth=1.1, linestyle=":")
        if not said:
            ax.annotate(
                "warm-up ends",
                (end, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(3, -1),
                textcoords="offset points",
                va="top",
                fontsize=7.5,
                color="0.3",
            )
        said = True


def panel_grid(
    groups: Sequence[str],
    columns: int,
    looks: dict[str, Look],
    plot_row: Callable[[str, Sequence[Axes]], None],
    *,
    title: str,
    row_height: float = 2.6,
) -> dict[str, bytes]:
    """A row of panels per group under its name, with one legend for all; nothing without groups."""
    if not groups:
        return {}
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(groups))
    legend = legend_columns(list(looks))
    heading = textwrap.fill(title, 100)
    height = 0.35 * (1 + heading.count("\n")) + row_height * len(rows) + 0.25 * math.ceil(len(looks) / legend)
    with figure_style():
        figure = Figure(figsize=(10, height), dpi=DPI, layout="constrained")
        figure.suptitle(heading, fontsize=12)
        axes = figure.subplots(len(rows), columns, squeeze=False)
        for group, row in zip(rows, axes, strict=True):
            row[0].set_title(textwrap.fill(group, 110), loc="left", fontsize=10, fontweight="bold")
            plot_row(group, row)
        plot_legend(figure, looks, legend)
        return svg_and_png(figure)


def legend_columns(labels: Sequence[str]) -> int:
    """As many columns as fit the width: some 130 characters, of which a line and its gaps take ten."""
    widest = max(len(label) for label in labels)
    return max(1, min(len(labels), 130 // (widest + 10)))


def plot_legend(figure: Figure, looks: dict[str, Look], columns: int) -> None:
    """One legend for all panels, below them."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=look.color, linestyle=look.linestyle) for look in looks.values()]
    # matplotlib leaves labels with a leading underscore out of a legend.
    names = [f" {label}" if label.startswith("_") else label for label in looks]
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


# Montage -------------------------------------------------------------------------------------------


def _mosaic(
    images: NDArray[np.floating[Any]], *, target: int = 80, gap: int = 8
) -> tuple[NDArray[np.float64], list[float]]:
    """All instances on one white canvas, enlarged in whole pixels to about `target`; row centres."""
    colour = images if images.ndim == 5 else np.repeat(images[..., None], 3, axis=-1)
    factor = max(1, round(target / max(colour.shape[2:4])))
    colour = colour.repeat(factor, axis=2).repeat(factor, axis=3)
    count, length, height, width = colour.shape[:4]
    step_y, step_x = height + 2 + gap, width + 2 + gap
    canvas = np.ones((count * step_y - gap, length * step_x - gap, 3))
    for row, column in np.ndindex(count, length):
        image = colour[row, column]
        if np.isnan(image).all():
            continue
        top, left = row * step_y, column * step_x
        # A thin frame, or images with a white background would run into the page.
        canvas[top : top + height + 2, left : left + width + 2] = 0.7
        canvas[top + 1 : top + 1 + height, left + 1 : left + 1 + width] = np.clip(image, 0, 1)
    return canvas, [row * step_y + (height + 1) / 2 for row in range(count)]
