"""Metrics against the prior of U: one row of panels per data set and tuples, a line per method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ntmp_cli.evaluation.comparisons import method_variant_of
from ntmp_cli.evaluation.summary import SummaryRow
from ntmp_cli.reporting.figures import looks_of, panel_grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The panels of the paper's figure.
METRICS = ("tpr", "macro_f1", "precision", "fpr")


def metrics_against_prior(summary: Sequence[SummaryRow], *, title: str) -> dict[str, bytes]:
    """Means over seeds with one standard deviation to either side, where tuples met more than one prior.

    Returns `svg` and `png`; nothing where every data set and tuples has but one prior, or none of the metrics.
    """
    groups: dict[str, list[SummaryRow]] = {}
    for row in summary:
        if row["metric"] in METRICS and row["mean"] is not None:
            groups.setdefault(f"{row['dataset']} {row['tuples']}", []).append(row)
    groups = {name: rows for name, rows in groups.items() if len({row["prior"] for row in rows}) > 1}
    present = [name for name in METRICS if any(row["metric"] == name for rows in groups.values() for row in rows)]
    looks = looks_of(list(dict.fromkeys(str(method_variant_of(row)) for rows in groups.values() for row in rows)))

    def plot_row(group: str, axes: Sequence[Axes]) -> None:
        for ax, metric in zip(axes, present, strict=True):
            ax.set(xlabel="prior π of U", ylabel=metric)
            for label, look in looks.items():
                chosen = [
                    row for row in groups[group] if row["metric"] == metric and str(method_variant_of(row)) == label
                ]
                points = sorted((row["prior"], row["mean"] or 0.0, row["std"] or 0.0) for row in chosen)
                if points:
                    x, mean, std = (list(values) for values in zip(*points, strict=True))
                    ax.plot(x, mean, color=look.color, linestyle=look.linestyle, marker="o", markersize=3)
                    low, high = ([m + sign * s for m, s in zip(mean, std, strict=True)] for sign in (-1, 1))
                    ax.fill_between(x, low, high, color=look.color, alpha=0.18, linewidth=0)

    return panel_grid(list(groups), len(present), looks, plot_row, title=title)
