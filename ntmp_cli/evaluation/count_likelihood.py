"""The exact probability of a tuple's count (SPEC section 4), for evaluation: values only, and no torch to load.

`learning.counts` has the same law with gradients and posteriors; a test holds the two together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def count_nll(scores: Floats, sizes: NDArray[np.int64], counts: NDArray[np.int64], noise: float = 0.0) -> Floats:
    """Mean −log P(recorded count) of tuples, for each leading index of `scores`, which has shape (…, instances).

    Instances of all tuples stand in a row. With `noise` > 0 the recorded count is off by one with that probability.
    """
    starts = np.cumsum(sizes) - sizes
    total = np.zeros(scores.shape[:-1])
    for n in np.unique(sizes):
        which = np.flatnonzero(sizes == n)
        z = scores[..., starts[which, None] + np.arange(n)]
        total += _log_prob(z, counts[which], noise).sum(axis=-1)
    mean: Floats = -total / len(sizes)
    return mean


def _log_prob(z: Floats, counts: NDArray[np.int64], noise: float) -> Floats:
    """log P of tuples of one length n, z of shape (…, T, n): a table over k positives among the first i instances."""
    n = z.shape[-1]
    mirrored = 2 * counts > n  # z→−z, m→n−m leaves P unchanged and the table short
    z = np.moveaxis(np.where(mirrored[:, None], -z, z), -1, 0)
    m = np.where(mirrored, n - counts, counts)
    log_p, log_q = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    width = min(n, int(m.max()) + (noise > 0)) + 1
    table = np.full((width, *z.shape[1:]), -np.inf)
    table[0] = 0
    for p, q in zip(log_p, log_q, strict=True):
        grown = table + q
        grown[1:] = np.logaddexp(grown[1:], table[:-1] + p)
        table = grown
    k = np.arange(width)[:, None]
    with np.errstate(divide="ignore"):
        log_target = np.log(_recorded(k, m, n, noise))
    found: Floats = np.logaddexp.reduce(table + log_target.reshape(width, *[1] * (z.ndim - 2), len(m)), axis=0)
    return found


def _recorded(k: NDArray[np.int64], m: NDArray[np.int64], n: int, noise: float) -> Floats:
    """P(recorded m | true k): off by one with probability `noise`, from 0 and n to the only neighbour."""
    distance = np.abs(k - m)
    neighbours = np.where((k == 0) | (k == n), 1, 2)
    probability: Floats = (1 - noise) * (distance == 0) + noise / neighbours * (distance == 1)
    return probability
