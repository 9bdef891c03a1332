"""Counts of positives in new groups: expectation, quantiles, and a conformal prediction interval.

A tuple that its scorer was not trained on has the residual r = (m − μ)/s of its count m, with μ = Σσ(z) and s the
standard deviation of the count by the scores. If a new group is exchangeable with T such tuples, the rank of its
residual among theirs is uniform: it lies between the order statistics ⌊(T+1)δ/2⌋ and ⌈(T+1)(1−δ/2)⌉ with probability at
least 1 − δ, however good the scores are (Eq. 112: split conformal prediction with two separate tails). For a tuple with
a range, the lower end is used for the lower limit and the upper end for the upper limit; so are the ends of what a
rounded, suppressed or off-by-one count may have been. Records with added noise of median 0 are used at δ/2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

from ntmp_cli.counting.large import LARGE
from ntmp_cli.counting.laws import Exact, Floats, Ints, NoiseLaw
from ntmp_cli.counting.normal_nodes import normal_nodes
from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.counting.recorded import Counts, are_records, laws_of

# Nodes of the normal law of groups' intercepts.
_AT, _WEIGHTS = normal_nodes(15)
# Added to the variance of a count: a residual of members that are all certain stays finite.
LEAST_VARIANCE = 0.25
ROUNDING = 1e-9


class ResidualLimits(NamedTuple):
    """Limits of the standardised residual of a new group; infinite if there are too few tuples."""

    low: float
    high: float
    tuples: int


def count_moments(z: Floats, sizes: Ints, spread: float = 0.0) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every group's count: members' log-odds in a row, a common intercept if any."""
    starts = np.cumsum(sizes) - sizes
    p = expit(z + spread * _AT[:, None]) if spread else expit(z)[None]
    weights = _WEIGHTS if spread else np.ones(1)
    means = np.add.reduceat(p, starts, axis=1)
    mean = weights @ means
    variance = weights @ (np.add.reduceat(p * (1 - p), starts, axis=1) + (means - mean) ** 2)
    return mean, np.sqrt(variance + LEAST_VARIANCE)


def residual_limits(z: Floats, sizes: Ints, counts: Counts, spread: float, confidence: float) -> ResidualLimits:
    """The limits from held-out or cross-fitted tuples, by the smallest and the largest count that each may have.

    If too few tuples have such limits, records with added noise are used too, at half the error: if a true count is
    outside, noise of median 0 leaves its record outside with a probability of at least ½.
    """
    mean, sd = count_moments(z, sizes, spread)
    low, high, limited, noisy = _ends(sizes, np.asarray(counts))
    below, above = (low - mean) / sd, (high - mean) / sd
    limits = _order_statistics(below[limited], above[limited], (1 - confidence) / 2)
    if np.isfinite(limits.low) or not noisy.any():
        return limits
    usable = limited | noisy
    return _order_statistics(below[usable], above[usable], (1 - confidence) / 4)


def _order_statistics(below: Floats, above: Floats, tail: float) -> ResidualLimits:
    tuples = len(below)
    # (1 − 0.9)/2 is a little less than 0.05: without rounding 19 tuples would not be enough for 90 %.
    first, last = int(np.floor(tail * (tuples + 1) + ROUNDING)), int(np.ceil((1 - tail) * (tuples + 1) - ROUNDING))
    if first < 1 or last > tuples:
        return ResidualLimits(-np.inf, np.inf, tuples)
    return ResidualLimits(float(np.sort(below)[first - 1]), float(np.sort(above)[last - 1]), tuples)


def _ends(sizes: Ints, counts: Counts) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_]]:
    """Low and high of every tuple; whether they limit the true count, and whether they are records with added noise."""
    if not are_records(counts):
        exact = counts.astype(np.float64)
        return exact, exact, np.ones(len(counts), dtype=np.bool_), np.zeros(len(counts), dtype=np.bool_)
    low, high = counts["low"].copy(), counts["high"].copy()
    limited, noisy = np.zeros(len(counts), dtype=np.bool_), np.zeros(len(counts), dtype=np.bool_)
    for law, which in laws_of(counts):
        noisy[which] = law.adds_noise
        if isinstance(law, Exact):
            limited[which] = True
        elif type(law).support is not NoiseLaw.support:  # a recorded count leaves few true ones
            limited[which] = True
            low[which] = law.support(low[which], sizes[which])[0]
            high[which] = law.support(high[which], sizes[which])[1]
    return low, high, limited, noisy


def count_interval(z: Floats, sizes: Ints, spread: float, limits: ResidualLimits) -> tuple[Ints, Ints]:
    """The smallest and the largest count of every group whose residual is within the limits."""
    mean, sd = count_moments(z, sizes, spread)
    low = np.clip(np.ceil(mean + limits.low * sd - ROUNDING), 0, sizes)
    high = np.clip(np.floor(mean + limits.high * sd + ROUNDING), 0, sizes)
    # Between two counts there may be none: then the nearest one is the answer.
    nearest = np.clip(np.rint(mean), 0, sizes)
    empty = low > high
    return np.where(empty, nearest, low).astype(np.int64), np.where(empty, nearest, high).astype(np.int64)


def count_quantiles(z: Floats, sizes: Ints, spread: float, levels: Floats) -> Ints:
    """(G, Q) smallest counts that a group's count is at most with these probabilities."""
    starts, found = np.cumsum(sizes) - sizes, np.empty((len(sizes), len(levels)), dtype=np.int64)
    for group, (start, n) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        moved = z[start : start + n] + (spread * _AT[:, None] if spread else np.zeros((1, 1)))
        at_most = np.cumsum(count_law(moved), axis=1) if n <= LARGE else _normal_law(expit(moved))
        mixed = (_WEIGHTS if spread else np.ones(1)) @ at_most
        found[group] = np.minimum(np.searchsorted(mixed, levels - ROUNDING), n)
    return found


def _normal_law(p: Floats) -> Floats:
    """P(count ≤ k), k = 0 … n, of a large group at every intercept: normal there, but not over all intercepts."""
    mean, sd = p.sum(axis=1, keepdims=True), np.sqrt((p * (1 - p)).sum(axis=1, keepdims=True))
    at_most: Floats = ndtr((np.arange(p.shape[1] + 1) + 0.5 - mean) / np.maximum(sd, ROUNDING))
    return at_most
