"""Variance of the risk against the prior of U, as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ntmp_cli.reporting.plotting import DPI, PALETTE, figure_style, svg_and_png


def inflation_figure(
    priors: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    *,
    prior: float,
    rates: Sequence[float],
    avoid: tuple[float, float] | None,
    title: str,
) -> dict[str, bytes]:
    """Curves of variance inflation, the rates of the tuples, priors inside the margin, and the design's own prior.

    Returns `svg` and `png`; the same values give the same bytes.
    """
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    with figure_style():
        figure = Figure(figsize=(7.5, 4.2), dpi=DPI, layout="constrained")
        ax = figure.subplots()
        for (name, values), color in zip(curves.items(), PALETTE, strict=False):
            shown = np.array([np.nan if value is None else value for value in values])
            dash = "-" if name == "stratified" else "--"
            ax.plot(priors, shown, color=color, linestyle=dash, label=f"unbiased risk, {name}")
        if avoid is not None:
            ax.axvspan(max(avoid[0], 0), min(avoid[1], 1), color="0.85", label="inside the margin ε₀")
        for index, rate in enumerate(sorted(set(rates))):
            ax.axvline(
                rate, color="0.6", linewidth=0.8, linestyle=":", label=None if index else "rate of a tuple stratum"
            )
        ax.axvline(prior, color=PALETTE[2], label=f"π = {prior:.4g}")
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        ax.set_xlim(0, 1)
        ax.set_ylim(*_limits(curves))
        ax.set_xlabel("prior π of the unlabeled pool")
        ax.set_ylabel("variance, times that with labels")
        ax.set_title(title, loc="left", fontsize=10)
        figure.legend(loc="outside lower center", ncols=3)
        return svg_and_png(figure)


def _limits(curves: Mapping[str, Sequence[float | None]]) -> tuple[float, float]:
    """Limits that leave out the pole, where the curves are unbounded."""
    values = [value for curve in curves.values() for value in curve if value is not None]
    lowest = min(values)
    return lowest / 2, min(max(values) * 2, lowest * 1e5)
