"""Feature importance as a page, a table and a figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.reporting.plotting import DPI, PALETTE, figure_style, svg_and_png

if TYPE_CHECKING:
    from ntmp_cli.evaluation.importance import Importance

MOST_SHOWN = 30


def to_markdown(facts: Mapping[str, Any]) -> str:
    if facts["kind"] == "saliency":
        return f"# Saliency map\n\nMean |∂score/∂pixel| over {facts['images']:,} images.\n"
    lines = [
        "# Feature importance\n",
        f"{facts['tuples']:,} tuples that the classifier was not trained on; mean −log P(count) {facts['nll']:.4f}.",
        f"The loss is its increase when a feature is permuted, with {facts['confidence']:.0%} intervals.\n",
        "| feature | loss | interval |",
        "| --- | ---: | ---: |",
    ]
    lines += [f"| {row['name']} | {row['loss']:.4f} | {_interval(row)} |" for row in facts["features"]]
    return "\n".join(lines) + "\n"


def _interval(row: Mapping[str, Any]) -> str:
    return f"{row['ci'][0]:.4f} to {row['ci'][1]:.4f}"


def cells(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """A feature as the cells of a table."""
    return row["name"], f"{row['loss']:.4f}", _interval(row)


def importance_csv(rows: Sequence[Importance]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["feature", "loss", "lower", "upper"])
    writer.writerows([row.name, f"{row.loss:.6g}", f"{row.ci[0]:.6g}", f"{row.ci[1]:.6g}"] for row in rows)
    return text.getvalue().encode()


def importance_figure(facts: Mapping[str, Any]) -> dict[str, bytes]:
    """Every feature as a dot with its interval, the most important at the top; `svg` and `png`."""
    from matplotlib.figure import Figure

    rows = facts["features"][:MOST_SHOWN]
    with figure_style():
        figure = Figure(figsize=(6.4, 1.2 + 0.26 * len(rows)), dpi=DPI, layout="constrained")
        ax = figure.subplots()
        at = np.arange(len(rows))[::-1]
        loss = np.array([row["loss"] for row in rows])
        ends = np.array([row["ci"] for row in rows])
        ax.hlines(at, ends[:, 0], ends[:, 1], color=PALETTE[0])
        ax.plot(loss, at, "o", color=PALETTE[0])
        ax.axvline(0, color="0.4", linewidth=1)
        ax.set_yticks(at, [row["name"] for row in rows])
        ax.set(xlabel="rise of −log P(count) per tuple when the feature is permuted", ylim=(-0.7, len(rows) - 0.3))
        more = len(facts["features"]) - len(rows)
        if more > 0:
            ax.set_title(f"the first {len(rows)} of {len(rows) + more} features", loc="left")
        return svg_and_png(figure)


def saliency_figure(saliency: NDArray[np.float64], mean_image: NDArray[np.float64]) -> dict[str, bytes]:
    """The mean image beside the map; `svg` and `png`."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(6.4, 3.2), dpi=DPI, layout="constrained")
        left, right = figure.subplots(1, 2)
        left.imshow(mean_image, cmap="gray")
        left.set_title("mean image", loc="left")
        image = right.imshow(saliency, cmap="viridis")
        right.set_title("mean |derivative of the score|", loc="left")
        for ax in (left, right):
            ax.set_axis_off()
        figure.colorbar(image, ax=right)
        return svg_and_png(figure)
