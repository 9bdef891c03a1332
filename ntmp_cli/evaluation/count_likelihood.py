"""The exact probability of a tuple's count (SPEC section 4), for evaluation: values only, and no torch to load.

`learning.counts` has the same law with gradients and posteriors; a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Below this a product of probabilities may have lost digits.
_TINY = 1e-250


@dataclass(frozen=True)
class _Stratum:
    """Tuples of one length: where their instances stand, which way round they are counted, and P(recorded | true)."""

    index: Ints
    sign: Floats
    target: Floats


class CountLikelihood:
    """Mean −log P(recorded count) of tuples whose instances stand in a row, as a function of their scores.

    With `noise` > 0 the recorded count is off by one with that probability.
    """

    def __init__(self, sizes: Ints, counts: Ints, noise: float = 0.0) -> None:
        starts = np.cumsum(sizes) - sizes
        self._tuples = len(sizes)
        self._strata = []
        for n in np.unique(sizes):
            which = np.flatnonzero(sizes == n)
            # z→−z, m→n−m leaves P unchanged and the table short.
            mirrored = 2 * counts[which] > n
            m = np.where(mirrored, n - counts[which], counts[which])
            width = min(int(n), int(m.max()) + (noise > 0)) + 1
            index = (starts[which] + np.arange(n)[:, None]).astype(np.int64)
            target = recorded_given_true(np.arange(width)[:, None], m, int(n), noise)
            self._strata.append(_Stratum(index, np.where(mirrored, -1.0, 1.0), target))

    def nll(self, scores: Floats) -> Floats:
        """For each leading index of `scores`, which has shape (…, instances)."""
        total = np.zeros(scores.shape[:-1])
        for stratum in self._strata:
            total += _log_prob(scores[..., stratum.index] * stratum.sign, stratum.target).sum(axis=-1)
        mean: Floats = -total / self._tuples
        return mean


def _log_prob(z: Floats, target: Floats) -> Floats:
    """log Σ_k P(k positives) target_k of tuples, z of shape (…, n, T): a table over k among the first i instances.

    Only sums of products of probabilities, so no digit is lost; where they come near underflow, in logarithms.
    """
    z = np.moveaxis(z, -2, 0)
    odds = np.exp(-np.abs(z))
    larger, smaller = 1 / (1 + odds), odds / (1 + odds)
    p, q = np.where(z > 0, larger, smaller), np.where(z > 0, smaller, larger)
    table = np.zeros((len(target), *z.shape[1:]))
    table[0] = 1
    for yes, no in zip(p, q, strict=True):
        table[1:] = table[1:] * no + table[:-1] * yes
        table[0] *= no
    weights = target.reshape(len(target), *[1] * (z.ndim - 2), -1)
    found: Floats = (table * weights).sum(axis=0)
    return np.log(found) if found.min() > _TINY else _log_prob_in_logs(z, weights)


def _log_prob_in_logs(z: Floats, weights: Floats) -> Floats:
    log_p, log_q = -np.logaddexp(0, -z), -np.logaddexp(0, z)
    table = np.full((len(weights), *z.shape[1:]), -np.inf)
    table[0] = 0
    for yes, no in zip(log_p, log_q, strict=True):
        grown = table + no
        grown[1:] = np.logaddexp(grown[1:], table[:-1] + yes)
        table = grown
    with np.errstate(divide="ignore"):
        found: Floats = np.logaddexp.reduce(table + np.log(weights), axis=0)
    return found


def recorded_given_true(k: Ints, m: Ints, n: int, noise: float) -> Floats:
    """P(recorded m | true k): off by one with probability `noise`, from 0 and n to the only neighbour."""
    distance = np.abs(k - m)
    neighbours = np.where((k == 0) | (k == n), 1, 2)
    probability: Floats = (1 - noise) * (distance == 0) + noise / neighbours * (distance == 1)
    return probability
