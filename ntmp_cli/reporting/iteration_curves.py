"""Test accuracy by training iteration: a panel per data set and setting, a line per method."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence

from ntmp_cli.reporting.figures import Curve, Points, legend_columns, looks_of, plot_legend, seed_band
from ntmp_cli.reporting.plotting import DPI, figure_style, svg_and_png

COLUMNS = 4


def accuracy_by_iteration(curves: Sequence[Curve], *, title: str) -> dict[str, bytes]:
    """Means over seeds with one standard deviation to either side, as `svg` and `png`.

    Nothing if no method was scored more than once during training.
    """
    traced = {id(curve): points for curve in curves if len(points := accuracy_points(curve)) > 1}
    shown = [curve for curve in curves if id(curve) in traced]
    if not shown:
        return {}
    from matplotlib.figure import Figure

    groups = list(dict.fromkeys(curve.group for curve in shown))
    looks = looks_of(list(dict.fromkeys(curve.label for curve in shown)))
    columns = min(COLUMNS, len(groups))
    rows, legend = math.ceil(len(groups) / columns), legend_columns(list(looks))
    heading = textwrap.fill(title, 100)
    height = 0.35 * (1 + heading.count("\n")) + 2.7 * rows + 0.25 * math.ceil(len(looks) / legend)
    with figure_style():
        figure = Figure(figsize=(max(6.0, 3.1 * columns), height), dpi=DPI, layout="constrained")
        figure.suptitle(heading, fontsize=12)
        axes = figure.subplots(rows, columns, squeeze=False).ravel()
        for ax, group in zip(axes, groups, strict=False):
            ax.set(xlabel="training iterations", ylabel="test accuracy (%)")
            ax.set_title(textwrap.fill(group, 40), loc="left", fontsize=10, fontweight="bold")
            for label, look in looks.items():
                seeds = [traced[id(curve)] for curve in shown if (curve.group, curve.label) == (group, label)]
                if seeds:
                    at, mean, std = seed_band(seeds)
                    ax.plot(at, mean, color=look.color, linestyle=look.linestyle)
                    ax.fill_between(at, mean - std, mean + std, color=look.color, alpha=0.18, linewidth=0)
        for ax in axes[len(groups) :]:
            ax.set_visible(False)
        plot_legend(figure, looks, legend)
        return svg_and_png(figure)


def accuracy_points(curve: Curve) -> Points:
    """Accuracy in percent at the number of steps after which it was measured."""
    steps = dict(zip(curve.epochs, curve.iterations, strict=False))
    return [(steps[epoch], 100 * value) for epoch, value in curve.accuracy if epoch in steps and math.isfinite(value)]
