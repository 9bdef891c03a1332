"""Whether the unlabeled pool is a mixture of the classes that tuples show, at some prior.

Posteriors given the counts split the tuples' instances into positives and negatives, whose score distributions are F₊
and F₋. Without drift F_U = πF₊ + (1−π)F₋. π is fitted by least squares over the bins; the statistic is the largest gap
left, and its null distribution is that of the bootstrapped gap about the observed one (Eq. 54). Probabilities are
fitted to the counts, and resampled tuples would give others: to first order the bootstrap follows the fit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.calibrated_fit import calibrated_fit
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.prior.estimator import Floats, ScoredTuples

BINS = 64
# Of a parameter of the fit, for a difference that stands for a derivative.
_STEP = 1e-3


class Drift(NamedTuple):
    """The largest gap between F_U and the fitted mixture, the prior of that mixture, and a bootstrap p-value."""

    statistic: float
    prior: float
    p_value: float
    prior_error: float
    """Standard error of that prior, by the same bootstrap."""


def drift(data: ScoredTuples, rng: np.random.Generator, resamples: int = 500) -> Drift:
    """Compare scores of U with the classes of the tuples."""
    sizes, unlabeled = data.sizes, data.unlabeled
    fit = calibrated_fit(data.scores, CountObjective(data.observed))
    edges = np.unique(np.quantile(np.concatenate([data.scores, unlabeled]), np.linspace(0, 1, BINS + 1)[1:-1]))
    shape = (len(sizes), len(edges) + 1)
    cells = np.repeat(np.arange(len(sizes)), sizes) * shape[1] + np.searchsorted(edges, data.scores, side="right")

    def by_bin(weights: Floats | None = None) -> Floats:
        """Sums over the members of a tuple in a bin, (T, bins)."""
        sums: Floats = np.bincount(cells, weights, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)
        return sums

    def positives(theta: Floats) -> Floats:
        return by_bin(count_posterior(fit.basis @ theta, data.observed))

    positive = positives(fit.theta)
    negative = by_bin() - positive
    # (K, bins) how the positives of a bin change with the fit.
    by_theta = np.stack(
        [(positives(fit.theta + e) - positives(fit.theta - e)).sum(axis=0) / (2 * e.sum()) for e in _steps(fit.basis)]
    )
    pool = np.bincount(np.searchsorted(edges, unlabeled, side="right"), minlength=shape[1]).astype(np.float64)

    gap, prior = _gap(positive.sum(axis=0)[None], negative.sum(axis=0)[None], pool[None])
    weights = _resampled(len(sizes), data.blocks, rng, resamples)
    moved = (weights - 1) @ fit.influence / len(sizes) @ by_theta
    resampled_pool = rng.multinomial(len(unlabeled), pool / len(unlabeled), size=resamples).astype(np.float64)
    gaps, priors = _gap(
        np.maximum(weights @ positive + moved, 0), np.maximum(weights @ negative - moved, 0), resampled_pool
    )
    statistic = float(np.abs(gap).max())
    larger = np.abs(gaps - gap).max(axis=1) >= statistic
    return Drift(statistic, float(prior[0]), float((1 + larger.sum()) / (1 + resamples)), float(priors.std()))


def _steps(basis: Floats) -> Floats:
    """A small step of every parameter, relative to the scale of its column."""
    scale = basis.std(axis=0)
    steps: Floats = np.diag(_STEP / np.where(scale > 0, scale, 1.0))
    return steps


def _resampled(tuples: int, blocks: NDArray[np.int64] | None, rng: np.random.Generator, resamples: int) -> Floats:
    """How often every tuple is in every resample, (R, T); blocks are resampled whole."""
    codes = np.arange(tuples) if blocks is None else np.unique(blocks, return_inverse=True)[1]
    number = int(codes.max()) + 1
    counts = rng.multinomial(number, np.full(number, 1 / number), size=resamples)
    return counts[:, codes].astype(np.float64)


def _gap(positive: Floats, negative: Floats, pool: Floats) -> tuple[Floats, Floats]:
    """F_U − πF₊ − (1−π)F₋ of every row with its least-squares π, and that π."""
    plus, minus, outside = (
        np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True) for counts in (positive, negative, pool)
    )
    along = plus - minus
    prior = ((outside - minus) * along).sum(axis=1) / np.maximum((along**2).sum(axis=1), 1e-12)
    prior = np.clip(prior, 0, 1)
    return outside - minus - prior[:, None] * along, prior
