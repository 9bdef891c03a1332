"""Whether the unlabeled pool is a mixture of the classes that tuples show, at some prior.

Posteriors given the counts split the tuples' instances into positives and negatives, whose score distributions are F₊
and F₋. Without drift F_U = πF₊ + (1−π)F₋. π is fitted by least squares over the bins; the statistic is the largest gap
left, and its null distribution is that of the bootstrapped gap about the observed one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from ntmp_cli.prior.binned_sums import BLOCK_BYTES
from ntmp_cli.prior.estimator import Floats, ScoredTuples

BINS = 64


class Drift(NamedTuple):
    """The largest gap between F_U and the fitted mixture, the prior of that mixture, and a bootstrap p-value."""

    statistic: float
    prior: float
    p_value: float


def drift(data: ScoredTuples, posterior: Floats, rng: np.random.Generator, resamples: int = 500) -> Drift:
    """Compare scores of U with the classes of the tuples, whose members' posteriors are given."""
    scores, sizes, unlabeled = data.scores, data.sizes, data.unlabeled
    edges = np.unique(np.quantile(np.concatenate([scores, unlabeled]), np.linspace(0, 1, BINS + 1)[1:-1]))
    place = np.searchsorted(edges, scores, side="right")
    shape, offsets = (len(sizes), len(edges) + 1), np.concatenate([[0], np.cumsum(sizes)])
    positive, negative = (csr_array((weight, place, offsets), shape=shape) for weight in (posterior, 1 - posterior))
    pool = np.bincount(np.searchsorted(edges, unlabeled, side="right"), minlength=shape[1]).astype(np.float64)

    everything = np.ones((1, len(sizes)))
    gap, prior = _gap(everything @ positive, everything @ negative, pool[None])
    weights = _weights_of_tuples(data, resamples, rng)
    resampled_positive, resampled_negative = map(
        np.concatenate, zip(*((block @ positive, block @ negative) for block in weights), strict=True)
    )
    resampled_pool = rng.multinomial(len(unlabeled), pool / len(unlabeled), size=resamples).astype(np.float64)
    gaps, _ = _gap(resampled_positive, resampled_negative, resampled_pool)
    statistic = float(np.abs(gap).max())
    larger = np.abs(gaps - gap).max(axis=1) >= statistic
    return Drift(statistic, float(prior[0]), float((1 + larger.sum()) / (1 + resamples)))


def _weights_of_tuples(data: ScoredTuples, resamples: int, rng: np.random.Generator) -> Iterator[Floats]:
    """How often every tuple is in every resample, some resamples at a time."""
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
