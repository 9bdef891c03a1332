"""The count likelihood as an objective of scores: a value and a gradient per member, with a random intercept if asked.

In natural groups (villages, patients) members share more than their features. Their log-odds then have an intercept of
the tuple, b ~ N(0, τ²), which is integrated out by adaptive Gauss–Hermite quadrature, its nodes b_q placed around the
mode of every tuple's integrand (Eqs. 27 and 28):

    P(observation | z) = Σ_q w_q P(observation | z + b_q)
    ∂ log P / ∂z_i = Σ_q r_q [P(y_i=1 | z + b_q, observation) − σ(z_i + b_q)],    r_q ∝ w_q P(observation | z + b_q)

An exact count m needs one table for all nodes. The odds of every set of m members have the same factor e^(bm), so

    log P(m | z + b) = log P(m | z) + b·m − Σ_i [log(1 + e^(z_i + b)) − log(1 + e^(z_i))]

(Eq. 29), and P(y_i=1 | z + b, m) does not depend on b. If all that is known of every tuple is "none" or "at least one",
no table is needed: their closed forms (presence.py) use the odds that the nodes have anyway. With τ = 0 this is the
Poisson-binomial likelihood alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import expit

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.normal_nodes import normal_nodes
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_log_prob
from ntmp_cli.counting.presence import presence_moments, presence_of_odds
from ntmp_cli.counting.recorded import are_records

NODES = 7
# Tuples of which only presence is known are fitted with spreads up to 5, where 7 nodes are not exact enough.
PRESENCE_NODES = 15
# Newton steps to a tuple's mode: at most so many, none longer than this, and none more once all are this short. The
# nodes need not be centred exactly.
NEWTON_STEPS = 8
# With no positive among a thousand likely members the mode is far from 0.
PRESENCE_NEWTON_STEPS = 20
LONGEST_STEP = 2.0
CLOSE = 0.02
# Scores beyond this are certain; their odds must stay finite at every node.
LARGEST_SCORE = 300.0

# With a normal error of variance τ² on the log-odds the mean probability is σ(z/√(1 + τ²·c)) to within .01, where
# c = (16√3/15π)².
ATTENUATION = 0.346


def conditional_slope(spread: float) -> float:
    """Log-odds of an instance of a tuple with b = 0 over those of an instance of any tuple, b ~ N(0, τ²)."""
    return sqrt(1 + ATTENUATION * spread**2)


class ScoreObjective(Protocol):
    """A function of the scores of all rows, to be maximised."""

    def value_and_gradient(self, z: Floats) -> tuple[float, Floats]:
        """The value and its derivative by every score."""

    def curvature(self, z: Floats) -> Floats:
        """A bound on the negative second derivative by every score."""


@dataclass(frozen=True)
class CountObjective:
    """Σ_t weight_t log P(observation_t | scores), to be maximised; `spread` is τ."""

    observed: CountObservations
    spread: float = 0.0
    weights: Floats | None = None
    """(T,) weights of the tuples; None: all 1."""

    def log_prob(self, z: Floats) -> Floats:
        """(T,) log P(observation) of every tuple (Eqs. 22, 27), without weights."""
        if self.spread == 0:
            return count_log_prob(z, self.observed)
        nodes = self._nodes(z)
        if self.observed.exact:
            log_prob = count_log_prob(z, self.observed) + nodes.gains(self.observed)
        elif self.observed.some is not None and nodes.has_all_odds:
            log_prob = presence_of_odds(nodes.odds, self.observed, self.observed.some)[0]
        else:
            log_prob = count_log_prob(z + nodes.at[:, self.observed.owner], self.observed)
        joint = log_prob + nodes.log_weights
        total: Floats = np.logaddexp.reduce(joint, axis=0)
        return total

    def value_and_gradient(self, z: Floats) -> tuple[float, Floats]:
        """The objective and its derivative by the score of every member (Eqs. 25, 28)."""
        log_prob, gradient = self.by_tuple(z)
        if self.weights is None:
            return float(log_prob.sum()), gradient
        return float(self.weights @ log_prob), self._member_weights * gradient

    def curvature(self, z: Floats) -> Floats:
        """σ(z)(1 − σ(z)) of every member (h of Eq. 42), in the weights of the tuples.

        The second derivative if labels were known.
        """
        half = 0.5 / np.cosh(np.clip(z / 2, -300, 300))
        curvature: Floats = half**2 if self.weights is None else self._member_weights * half**2
        return curvature

    @cached_property
    def _member_weights(self) -> Floats:
        assert self.weights is not None
        weights: Floats = self.weights[self.observed.owner]
        return weights

    def by_tuple(self, z: Floats) -> tuple[Floats, Floats]:
        if self.spread == 0:
            return count_gradient(z, self.observed)
        nodes, owner = self._nodes(z), self.observed.owner
        if self.observed.exact:
            log_prob, slope = count_gradient(z, self.observed)
            joint = log_prob + nodes.gains(self.observed) + nodes.log_weights
            # The posterior is that without intercept; only σ is averaged over the nodes.
            by_node = (slope + expit(z)) - _share(nodes.odds)
        elif self.observed.some is not None and nodes.has_all_odds:
            log_prob, by_node = presence_of_odds(nodes.odds, self.observed, self.observed.some)
            joint = log_prob + nodes.log_weights
        else:
            results = [count_gradient(z + b[owner], self.observed) for b in nodes.at]
            joint = np.stack([log_prob for log_prob, _ in results]) + nodes.log_weights
            by_node = np.stack([gradient for _, gradient in results])
        total: Floats = np.logaddexp.reduce(joint, axis=0)
        gradient: Floats = np.einsum("qi,qi->i", np.exp(joint - total)[:, owner], by_node)
        return total, gradient

    def _nodes(self, z: Floats) -> _Nodes:
        """Nodes around the mode of every tuple's integrand; recorded whole numbers are taken as exact for that."""
        observed, precision = self.observed, self.spread**-2
        odds = np.exp(np.clip(z, -LARGEST_SCORE, LARGEST_SCORE))
        mode = np.zeros(len(observed))
        for _ in range(NEWTON_STEPS if observed.some is None else PRESENCE_NEWTON_STEPS):
            p = _share(odds * np.exp(mode)[observed.owner])
            mean = np.add.reduceat(p, observed.starts)
            bend = np.add.reduceat(p * (1 - p), observed.starts)
            if observed.some is None:
                count, rest = self._count_given(mean, bend)
            else:
                count, rest = presence_moments(p, mean, bend, observed, observed.some)
            bend = bend - rest + precision
            newton = (count - mean - mode * precision) / bend
            mode = mode + np.clip(newton, -LONGEST_STEP, LONGEST_STEP)
            if np.abs(newton).max() < CLOSE:
                break
        width, (places, weights) = bend**-0.5, normal_nodes(NODES if observed.some is None else PRESENCE_NODES)
        at = mode + width * places[:, None]
        log_weights = (np.log(weights) + places**2 / 2)[:, None] + np.log(width / self.spread) - at**2 * precision / 2
        has_all_odds = bool((np.abs(z) <= LARGEST_SCORE).all())
        return _Nodes(at, log_weights, odds, odds * np.exp(at)[:, observed.owner], has_all_odds)

    def _count_given(self, mean: Floats, variance: Floats) -> tuple[Floats, Floats | float]:
        """Mean and variance of the count given the observation, if it were normal without it.

        The nodes need no more: P(observation | b) bends as the variance falls by observing.
        """
        observed = self.observed
        if not are_records(observed.counts):
            return observed.counts, 0.0
        first, second = np.empty(len(observed)), np.empty(len(observed))
        for table in observed.count_tables:
            m, v = mean[table.which], np.maximum(variance[table.which], 0.05)
            logs = table.log_likelihood - (table.k - m) ** 2 / (2 * v)
            weights = np.exp(logs - logs.max(axis=0))
            weights = weights / weights.sum(axis=0)
            first[table.which] = (weights * table.k).sum(axis=0)
            second[table.which] = (weights * (table.k - first[table.which]) ** 2).sum(axis=0)
        return first, np.minimum(second, variance)


class _Nodes(NamedTuple):
    """Quadrature nodes of every tuple, and the odds of its members at them."""

    at: Floats
    """(Q, T) intercepts."""
    log_weights: Floats
    """(Q, T) logarithms of their weights, the density of N(0, τ²) included."""
    odds_without: Floats
    """(instances) odds without intercept."""
    odds: Floats
    """(Q, instances) odds with it."""
    has_all_odds: bool
    """Whether no score was so certain that its odds are those of another one."""

    def gains(self, observed: CountObservations) -> Floats:
        """(Q, T) log P(m | z + b) − log P(m | z) of exact counts (Eq. 29)."""
        logs = np.add.reduceat(np.log1p(self.odds) - np.log1p(self.odds_without), observed.starts, axis=1)
        gains: Floats = self.at * observed.counts - logs
        return gains


def _share(odds: Floats) -> Floats:
    """Odds as probabilities."""
    p: Floats = odds / (1 + odds)
    return p
