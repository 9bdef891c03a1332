"""A test of drift: is the unlabeled pool a mixture of the two classes in the tuples, at some prior?

Posteriors given the counts split the tuples' instances into positives and negatives, whose score distributions are F₊
and F₋. Without drift F_U = πF₊ + (1−π)F₋. π is fitted by least squares over the bins; the statistic is the largest gap
left, and its null distribution is that of the bootstrapped gap about the observed one (Eq. 54). Probabilities are
fitted to the counts, so that they change with the resampled tuples: the bootstrap follows them to first order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ntmp_cli.counting.calibrated_fit import calibrated_fit
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.prior.binned_sums import BLOCK_BYTES
from ntmp_cli.prior.estimator import Floats, ScoredTuples

BINS = 64
# Step of a parameter of the fit, for derivatives by finite differences.
_STEP = 1e-3


class Drift(NamedTuple):
    """The largest gap between F_U and the fitted mixture, the prior of that mixture, and a bootstrap p-value."""

    statistic: float
    prior: float
    p_value: float
    prior_error: float
    """Standard error of that prior, by the same bootstrap."""


def drift(data: ScoredTuples, rng: np.random.Generator, resamples: int = 500) -> Drift:
    """Test whether the scores of U are a mixture of the two classes in the tuples."""
    sizes, unlabeled = data.sizes, data.unlabeled
    fit = calibrated_fit(data.scores, CountObjective(data.observed, data.spread))
    edges = np.unique(np.quantile(np.concatenate([data.scores, unlabeled]), np.linspace(0, 1, BINS + 1)[1:-1]))
    bins, offsets = len(edges) + 1, np.concatenate([[0], np.cumsum(sizes)])
    place = np.searchsorted(edges, data.scores, side="right")

    def posterior(theta: Floats) -> Floats:
        return count_posterior(fit.basis @ theta, data.observed)

    def by_bin(weights: Floats) -> Floats:
        sums: Floats = np.bincount(place, weights, minlength=bins).astype(np.float64)
        return sums

    at_fit = posterior(fit.theta)
    # (T, bins) weights of a tuple's members in their bins.
    positive, negative = (csr_array((w, place, offsets), shape=(len(sizes), bins)) for w in (at_fit, 1 - at_fit))
    # (K, bins) how the positives of a bin change with the fit.
    by_theta = np.stack(
        [by_bin(posterior(fit.theta + e) - posterior(fit.theta - e)) / (2 * e.sum()) for e in _steps(fit.basis)]
    )
    pool = np.bincount(np.searchsorted(edges, unlabeled, side="right"), minlength=bins).astype(np.float64)

    gap, prior = _gap(by_bin(at_fit)[None], by_bin(1 - at_fit)[None], pool[None])
    resampled = []
    for weights in _weights_of_tuples(data, resamples, rng):
        moved = (weights - 1) @ fit.influence / len(sizes) @ by_theta
        resampled.append((np.maximum(weights @ positive + moved, 0), np.maximum(weights @ negative - moved, 0)))
    resampled_positive, resampled_negative = map(np.concatenate, zip(*resampled, strict=True))
    resampled_pool = rng.multinomial(len(unlabeled), pool / len(unlabeled), size=resamples).astype(np.float64)
    gaps, priors = _gap(resampled_positive, resampled_negative, resampled_pool)
    statistic = float(np.abs(gap).max())
    larger = np.abs(gaps - gap).max(axis=1) >= statistic
    return Drift(statistic, float(prior[0]), float((1 + larger.sum()) / (1 + resamples)), float(priors.std()))


def _steps(basis: Floats) -> Floats:
    """A small step of every parameter, relative to the scale of its column."""
    scale = basis.std(axis=0)
    steps: Floats = np.diag(_STEP / np.where(scale > 0, scale, 1.0))
    return steps


def _weights_of_tuples(data: ScoredTuples, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often every tuple is in every resample, (some resamples, T) at a time; blocks are resampled whole."""
    codes = None if data.blocks is None else np.unique(data.blocks, return_inverse=True)[1]
    number = len(data.sizes) if codes is None else int(codes.max()) + 1
    step = max(1, BLOCK_BYTES // (8 * len(data.sizes)))
    for first in range(0, resamples, step):
        counts = rng.multinomial(number, np.full(number, 1 / number), size=min(step, resamples - first))
        yield (counts if codes is None else counts[:, codes]).astype(np.float64)


def _gap(positive: Floats, negative: Floats, pool: Floats) -> tuple[Floats, Floats]:
    """F_U − πF₊ − (1−π)F₋ of every row with its least-squares π, and that π."""
    plus, minus, outside = (
        np.cumsum(counts, axis=1) / counts.sum(axis=1, keepdims=True) for counts in (positive, negative, pool)
    )
    along = plus - minus
    prior = ((outside - minus) * along).sum(axis=1) / np.maximum((along**2).sum(axis=1), 1e-12)
    prior = np.clip(prior, 0, 1)
    return outside - minus - prior[:, None] * along, prior
