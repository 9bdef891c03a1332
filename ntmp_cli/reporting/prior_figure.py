"""The estimate of a class prior in three panels: densities of scores, their tail ratio, the bootstrap."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from ntmp_cli.prior.binned_sums import BinnedSums
from ntmp_cli.prior.estimate import PriorEstimates
from ntmp_cli.prior.estimator import Floats
from ntmp_cli.reporting.plotting import DPI, PALETTE, figure_style, svg_and_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BINS = 60


def prior_figure(estimates: PriorEstimates, estimator: str, prior: float) -> dict[str, bytes]:
    """Score densities of U and the fitted mixture, the tail ratio and its minimum, the bootstrap; `svg` and `png`."""
    from matplotlib.figure import Figure

    positive, negative, unlabeled = _recalibrated(estimates)
    with figure_style():
        figure = Figure(figsize=(12, 3.8), dpi=DPI, layout="constrained")
        densities, ratio, bootstrap = figure.subplots(1, 3)
        _plot_densities(densities, positive, negative, unlabeled, prior)
        _plot_ratio(ratio, positive, unlabeled, prior)
        _plot_bootstrap(bootstrap, estimates, estimator, prior)
        return svg_and_png(figure)


def _recalibrated(estimates: PriorEstimates) -> tuple[Weighted, Weighted, Weighted]:
    """Recalibrated scores of all folds with their weights: positives, negatives, unlabeled."""
    at, positive, negative, unlabeled = [], [], [], []
    for fold in estimates.folds:
        sums = BinnedSums(fold)
        sample = sums.sample()
        at.append(fold.line.slope * sample.centres + fold.line.intercept)
        positive.append(sample.posterior[0])
        negative.append(sums.instances - sample.posterior[0])
        unlabeled.append(sample.unlabeled[0])
    z = np.concatenate(at)
    return (z, np.concatenate(positive)), (z, np.concatenate(negative)), (z, np.concatenate(unlabeled))


Weighted = tuple[Floats, Floats]


def _plot_densities(ax: Axes, positive: Weighted, negative: Weighted, unlabeled: Weighted, prior: float) -> None:
    edges = np.linspace(*_range(unlabeled[0]), _BINS + 1)
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]

    def density(values: Weighted) -> Floats:
        shares: Floats = np.histogram(np.clip(values[0], edges[0], edges[-1]), edges, weights=values[1])[0]
        scaled: Floats = shares / (shares.sum() * width)
        return scaled

    plus, minus = prior * density(positive), (1 - prior) * density(negative)
    ax.stairs(density(unlabeled), edges, fill=True, color="0.85", label="unlabeled pool")
    ax.plot(middle, plus, color=PALETTE[1], label="π · positives of tuples")
    ax.plot(middle, minus, color=PALETTE[0], label="(1−π) · negatives of tuples")
    ax.plot(middle, plus + minus, color=PALETTE[6], linestyle="--", label="fitted mixture")
    ax.set(xlabel="score (log-odds at the tuples' rate, recalibrated)", ylabel="density", title="score densities")
    ax.legend(fontsize=8)


def _plot_ratio(ax: Axes, positive: Weighted, unlabeled: Weighted, prior: float) -> None:
    order = np.argsort(-positive[0])
    p = expit(positive[0][order])
    plus, pool = np.cumsum(positive[1][order]), np.cumsum(unlabeled[1][order])
    plus, pool = plus / plus[-1], pool / pool[-1]
    shown = plus > 0.01  # above, a handful of instances decide
    p, ratio = p[shown], (pool / np.maximum(plus, 1e-12))[shown]
    least = int(np.argmin(ratio))
    ax.plot(p, ratio, color=PALETTE[0], label="share of U / share of positives above")
    ax.plot(p[least], ratio[least], "o", color=PALETTE[1], label=f"least: {ratio[least]:.3f}")
    ax.axhline(prior, color=PALETTE[6], linestyle="--", linewidth=1, label=f"estimate {prior:.3f}")
    ax.set(xlabel="probability threshold", ylabel="ratio", title="tail ratio", ylim=(0, min(1.6, 1.1 * ratio.max())))
    ax.legend(fontsize=8)


def _plot_bootstrap(ax: Axes, estimates: PriorEstimates, estimator: str, prior: float) -> None:
    names = list(dict.fromkeys([estimator, "em-affine", "moments"]))
    resamples = [estimates.estimates[name].resamples for name in names]
    finite = [values[np.isfinite(values)] for values in resamples]
    spread = np.concatenate(finite)
    edges = np.linspace(spread.min(), max(spread.max(), spread.min() + 1e-6), 41).tolist()
    for name, values, color in zip(names, finite, PALETTE, strict=False):
        ax.hist(values, edges, histtype="stepfilled", alpha=0.35, color=color, label=name)
    ci = estimates.estimates[estimator].ci
    if ci is not None:
        ax.axvspan(*ci, color="0.9", zorder=0, label=f"interval [{ci[0]:.3f}, {ci[1]:.3f}]")
    ax.axvline(prior, color=PALETTE[6], linestyle="--", linewidth=1)
    ax.set(xlabel="class prior", ylabel="resamples", title="bootstrap")
    ax.legend(fontsize=8)


def _range(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [0.002, 0.998])
    return float(low), float(max(high, low + 1e-6))
