"""Bootstrap intervals over seeds, of many configurations at once.

A resample of S values is S counts that add up to S, and a mean over it is a product with those counts: one matrix
serves every configuration. Of S values there are only C(2S−1, S) different resamples, 126 for five seeds: where that is
no more than the number B that would be sampled, all are taken with their probabilities, and the interval is that of
B → ∞, the same whatever the seed. Otherwise B are sampled.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.randomness import stream

B = 10_000
LEVEL = 0.95
# Resampled statistics that are held at a time.
_BLOCK = 2**22

Floats = NDArray[np.float64]


class Resamples(NamedTuple):
    """How often each of S values is in a resample, shape (R, S), and the probability of each resample."""

    counts: Floats
    probabilities: Floats


class Interval(NamedTuple):
    """Limits per configuration; nan where fewer than two values leave nothing to resample."""

    low: Floats
    high: Floats


class Limits(NamedTuple):
    """Both intervals of one mean; None where there are fewer than two values."""

    low: float | None
    high: float | None
    bca_low: float | None
    bca_high: float | None


def intervals_by_size(samples: Sequence[Sequence[float]]) -> list[Limits]:
    """Percentile and BCa limits of the mean of every sample, all samples of one size at once."""
    limits_of_samples = [Limits(None, None, None, None)] * len(samples)
    for size in {len(sample) for sample in samples if len(sample) > 1}:
        indices = [index for index, sample in enumerate(samples) if len(sample) == size]
        values = np.array([samples[index] for index in indices])
        limits = np.stack([*percentile_interval(values), *bca_interval(values)], axis=1)
        for index, limits_of_sample in zip(indices, limits.tolist(), strict=True):
            limits_of_samples[index] = Limits(*limits_of_sample)
    return limits_of_samples


def resamples(size: int, n_resamples: int = B, rng: np.random.Generator | None = None) -> Resamples:
    """Every resample of `size` values if there are at most `n_resamples`, else so many random ones."""
    if math.comb(2 * size - 1, size) <= n_resamples:
        return _every_resample(size)
    return _cached_random_resamples(size, n_resamples) if rng is None else _random_resamples(size, n_resamples, rng)


def _random_resamples(size: int, n_resamples: int, rng: np.random.Generator) -> Resamples:
    counts = rng.multinomial(size, np.full(size, 1 / size), n_resamples).astype(np.float64)
    return Resamples(counts, np.full(n_resamples, 1 / n_resamples))


@functools.lru_cache(maxsize=2)
def _cached_random_resamples(size: int, n_resamples: int) -> Resamples:
    return _random_resamples(size, n_resamples, stream(0, "bootstrap", size))


@functools.cache
def _every_resample(size: int) -> Resamples:
    """Weak compositions of S into S terms, by stars and bars; P = S! / Π cᵢ! / S^S."""
    bars = np.array(list(itertools.combinations(range(2 * size - 1), size - 1)), dtype=np.int64)
    bars = bars.reshape(math.comb(2 * size - 1, size), size - 1)
    edges = np.pad(bars, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, 2 * size - 1)))
    counts = np.diff(edges, axis=1) - 1
    factorials = np.array([math.factorial(k) for k in range(size + 1)], dtype=np.float64)
    permutations = factorials[size] / factorials[counts].prod(axis=1)
    return Resamples(counts.astype(np.float64), permutations / float(size) ** size)


def percentile_interval(
    values: Floats, *, level: float = LEVEL, n_resamples: int = B, rng: np.random.Generator | None = None
) -> Interval:
    """Percentile interval of the mean of each row of `values`, shape (configurations, S)."""
    tails = np.full((len(values), 2), [(1 - level) / 2, (1 + level) / 2])
    return _mean_interval(values, n_resamples, rng, lambda block, means, share: tails[: len(block)])


def bca_interval(
    values: Floats, *, level: float = LEVEL, n_resamples: int = B, rng: np.random.Generator | None = None
) -> Interval:
    """Bias-corrected and accelerated interval of the mean of each row (Efron 1987).

    The tails are Φ(z₀ + (z₀ + z_q)/(1 − a(z₀ + z_q))), with Φ(z₀) the share of resamples below the mean, those at it
    counting half, and for a mean the acceleration a = Σd³ / (6 (Σd²)^1.5), d = v − v̄. Equal values have no spread: both
    limits are that value.
    """
    from scipy.special import ndtr, ndtri

    z = ndtri([(1 - level) / 2, (1 + level) / 2])

    def tails(block: Floats, means: Floats, share: Floats) -> Floats:
        middle = block.mean(axis=1)
        d = block - middle[:, None]
        widest = np.abs(d).max(axis=1)
        d /= np.where(widest > 0, widest, 1)[:, None]  # cubes of tiny differences would underflow
        a = (d**3).sum(axis=1) / (6 * np.maximum((d**2).sum(axis=1), 1) ** 1.5)
        # Rounding in the mean of a resample must not decide whether it lies at the mean.
        near = 1e-12 * (np.abs(middle) + widest)
        below = (share @ (means < middle - near) + share @ (means <= middle + near)) / 2
        z0 = ndtri(np.clip(below, 1e-12, 1 - 1e-12))[:, None]
        adjusted_levels: Floats = ndtr(z0 + (z0 + z) / (1 - a[:, None] * (z0 + z)))
        return adjusted_levels

    return _mean_interval(values, n_resamples, rng, tails)


def _mean_interval(
    values: Floats,
    n_resamples: int,
    rng: np.random.Generator | None,
    tails: Callable[[Floats, Floats, Floats], Floats],
) -> Interval:
    """Quantiles of the resampled means of each row, in blocks of bounded memory."""
    rows, size = values.shape
    low, high = np.full(rows, np.nan), np.full(rows, np.nan)
    if size < 2:
        return Interval(low, high)
    counts, share = resamples(size, n_resamples, rng)
    step = max(1, _BLOCK // len(counts))
    for start in range(0, rows, step):
        block = values[start : start + step]
        means = counts @ block.T / size
        limits = weighted_quantiles(means, share, tails(block, means, share))
        # A mean lies among its values; rounding may put it just outside.
        limits = np.clip(limits, block.min(axis=1)[:, None], block.max(axis=1)[:, None])
        low[start : start + step], high[start : start + step] = limits.T
    return Interval(low, high)


def weighted_quantiles(statistics: Floats, share: Floats, tails: Floats) -> Floats:
    """Per column of `statistics` (R, K) the least value whose cumulated share reaches each of its tails, (K, q)."""
    order = np.argsort(statistics, axis=0)
    reached = np.cumsum(share[order], axis=0)
    # A share that should equal the tail may miss it by rounding.
    at = np.stack([(reached < tail - 1e-12).sum(axis=0) for tail in tails.T], axis=1)
    at = np.minimum(at, len(share) - 1)
    columns = np.arange(statistics.shape[1])[:, None]
    quantiles: Floats = statistics[order[at, columns], columns]
    return quantiles
