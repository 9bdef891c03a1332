"""Priors and bounds from the tails of two score distributions, positives' and U's.

Among the highest scores only positives are left, so that P_U(s > t)/P₊(s > t) falls to π there. The positives are tuple
instances weighted by their exact posterior given the count of their tuple, or, in the paper's protocol, the m highest
scores of each tuple (Eqs. 49–52).
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np
from scipy.special import betaincinv, expit, ndtr

from ntmp_cli.prior.estimator import Floats, Sample, priors

POINTS = 200
QUANTILES = (0.6, 0.99)
# Constants of the confidence penalty of best-bin estimation (Garg et al. 2021, equation 3).
_GAMMA, _RISK = 0.01, 0.1


@priors.register("best-bin")
def best_bin(sample: Sample) -> Floats:
    """Least tail ratio plus a confidence penalty, positives weighed by exact tuple posteriors.

    Eq. 49, Garg et al. (2021): ĉ minimises (q_U(c) + (1+γ)(e_U + e_P))/q_P(c) with e = √(log(4/δ)/2N), and
    π = q_U(ĉ)/q_P(ĉ).
    """
    positive, unlabeled = _tail(sample.posterior), _tail(sample.unlabeled)
    error = sqrt(log(4 / _RISK) / 2)
    few = error / np.sqrt(sample.unlabeled.sum(axis=1)) + error / np.sqrt(sample.posterior.sum(axis=1))
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.where(positive > 0, (unlabeled + (1 + _GAMMA) * few[:, None]) / positive, np.inf)
        ratio = unlabeled / positive
    best = np.argmin(bound, axis=1)
    prior: Floats = np.minimum(ratio[np.arange(len(best)), best], 1.0)
    return prior


@priors.register("tail-ratio")
def tail_ratio(sample: Sample) -> Floats:
    """Least smoothed tail ratio on the scale of probabilities, with one bandwidth for both tails.

    Eq. 50.
    """
    data = sample.data
    p = expit(data.lines[0, 0] * data.centres + data.lines[0, 1])
    width = silverman(p, data.unlabeled[0] + data.posterior[0])
    grid = _grid(p, data.posterior[0])
    ratio = smooth_tail(p, sample.unlabeled, grid, width) / smooth_tail(p, sample.posterior, grid, width)
    prior: Floats = np.clip(ratio.min(axis=1), 0.0, 1.0)
    return prior


@priors.register("paper")
def paper(sample: Sample) -> Floats:
    """The paper's protocol: greatest smoothed tail ratio to each tuple's m highest scores.

    Where it is the chosen estimator, the scores are those of its own model of the proxy against U; else, beside the
    others, those of the common score model (Eq. 51).
    """
    data = sample.data
    return greatest_tail_ratio(sample.centres, sample.proxy, sample.unlabeled, data.proxy[0], data.unlabeled[0])


def greatest_tail_ratio(
    at: Floats, proxy: Floats, unlabeled: Floats, proxy_data: Floats, unlabeled_data: Floats
) -> Floats:
    """max_t F_U(t)/F_P(t) of every row of weights; grid and bandwidths are those of the data."""
    grid = _grid(at, proxy_data)
    tail_u = smooth_tail(at, unlabeled, grid, silverman(at, unlabeled_data))
    tail_p = smooth_tail(at, proxy, grid, silverman(at, proxy_data))
    prior: Floats = np.clip((tail_u / tail_p).max(axis=1), 0.0, 1.0)
    return prior


def _grid(at: Floats, positive: Floats) -> Floats:
    """Thresholds: quantiles of the positives' scores."""
    return _quantiles(at, positive, np.linspace(*QUANTILES, POINTS))


def smooth_tail(at: Floats, weights: Floats, grid: Floats, width: float) -> Floats:
    """P(score > t) at every t of the grid, smoothed by a Gaussian kernel, of every row of weights.

    A sum of falling functions falls itself: isotonic regression would leave it as it is.
    """
    tail: Floats = weights @ ndtr((at[:, None] - grid) / width) / weights.sum(axis=1, keepdims=True)
    return np.maximum(tail, 1e-300)


def silverman(at: Floats, weights: Floats) -> float:
    """Silverman's rule: 0.9 · min(σ, IQR/1.34) · N^(−1/5); a positive number even for constant scores."""
    total = weights.sum()
    mean = weights @ at / total
    spread = sqrt(max(weights @ (at - mean) ** 2 / total, 0.0))
    low, high = _quantiles(at, weights, np.array([0.25, 0.75]))
    spread = min(spread, (high - low) / 1.34) or spread
    return float(max(0.9 * spread * total**-0.2, 1e-9))


def _quantiles(at: Floats, weights: Floats, levels: Floats) -> Floats:
    """Weighted quantiles of values in ascending order; values without weight change nothing."""
    at, weights = at[weights > 0], weights[weights > 0]
    before = np.cumsum(weights) - weights / 2
    quantiles: Floats = np.interp(levels * weights.sum(), before, at)
    return quantiles


def _tail(weights: Floats) -> Floats:
    """Share of every row at or above each bin."""
    tail: Floats = np.cumsum(weights[:, ::-1], axis=1)[:, ::-1] / weights.sum(axis=1, keepdims=True)
    return tail


class NeymanPearson(NamedTuple):
    """max_τ {TPR − FPR}₊ of the positive proxy against U, with Clopper–Pearson bands.

    The paper reads `value` as a lower bound on π. But U contains positives too, so that
    TPR − FPR_U = (1−π)(TPR − FPR₋) ≤ 1−π: it is an upper bound, π ≤ 1 − value, and π ≤ 1 − `low` with confidence.
    """

    value: float
    low: float
    high: float


def neyman_pearson(sample: Sample, confidence: float) -> NeymanPearson:
    """The bound by the scores of a sample's proxy and U."""
    return neyman_pearson_of(sample.proxy[0], sample.unlabeled[0], confidence)


def neyman_pearson_of(proxy: Floats, unlabeled: Floats, confidence: float) -> NeymanPearson:
    """The bound over 200 thresholds between bins (Eq. 52); each band holds with half of the allowed error."""
    thresholds = np.unique(np.linspace(0, len(proxy) - 1, POINTS).astype(np.int64))
    hits, calls = (np.cumsum(weights[::-1])[::-1][thresholds] for weights in (proxy, unlabeled))
    positives, pool = proxy.sum(), unlabeled.sum()
    gap = hits / positives - calls / pool
    best = int(np.argmax(gap))
    error = (1 - confidence) / 2
    tpr = _clopper_pearson(hits[best], positives, error)
    fpr = _clopper_pearson(calls[best], pool, error)
    value, low, high = gap[best], tpr[0] - fpr[1], tpr[1] - fpr[0]
    return NeymanPearson(*(float(min(max(x, 0.0), 1.0)) for x in (value, low, high)))


def _clopper_pearson(hits: float, trials: float, error: float) -> tuple[float, float]:
    """The exact two-sided interval of a binomial share."""
    low = betaincinv(hits, trials - hits + 1, error / 2) if hits > 0 else 0.0
    high = betaincinv(hits + 1, trials - hits, 1 - error / 2) if hits < trials else 1.0
    return float(low), float(high)
