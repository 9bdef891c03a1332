"""The law of the count of positives in new groups by the scores of the members.

Its moments (of Eq. 112), its quantiles, and the probability of at least one positive.
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit, ndtr

from ntmp_cli.counting.large import LARGE
from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.normal_nodes import normal_nodes
from ntmp_cli.counting.poisson_binomial import count_law

# Nodes of the normal law of groups' intercepts.
_AT, _WEIGHTS = normal_nodes(15)
# Added to the variance of a count: a residual of members that are all certain stays finite.
LEAST_VARIANCE = 0.25
ROUNDING = 1e-9


def count_moments(z: Floats, sizes: Ints, spread: float = 0.0) -> tuple[Floats, Floats]:
    """Mean and standard deviation of every group's count: members' log-odds in a row, a common intercept if any."""
    starts = np.cumsum(sizes) - sizes
    p = expit(z + spread * _AT[:, None]) if spread else expit(z)[None]
    weights = _WEIGHTS if spread else np.ones(1)
    means = np.add.reduceat(p, starts, axis=1)
    mean = weights @ means
    variance = weights @ (np.add.reduceat(p * (1 - p), starts, axis=1) + (means - mean) ** 2)
    return mean, np.sqrt(variance + LEAST_VARIANCE)


def probability_of_any(z: Floats, sizes: Ints, spread: float = 0.0) -> Floats:
    """1 − Π(1 − p_i) of every group, the mean over its intercept if any: that it has at least one positive."""
    moved, weights = (z + spread * _AT[:, None], _WEIGHTS) if spread else (z[None], np.ones(1))
    log_none = -np.add.reduceat(np.logaddexp(0, moved), np.cumsum(sizes) - sizes, axis=1)
    any_positive: Floats = weights @ -np.expm1(log_none)
    return any_positive


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
