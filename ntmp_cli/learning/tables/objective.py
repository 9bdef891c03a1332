"""The count likelihood as an objective of scores: a value and a gradient per member, with a random intercept if asked.

In natural groups (villages, patients) members share more than their features. Their log-odds then have an intercept of
the tuple, b_t ~ N(0, τ²), which is integrated out by Gauss–Hermite quadrature:

    P(observation | z) = Σ_q w_q P(observation | z + τ b_q)
    ∂ log P / ∂z_i = Σ_q r_q [P(y_i=1 | z + τ b_q, observation) − σ(z_i + τ b_q)]
    r_q ∝ w_q P(observation | z + τ b_q)

With τ = 0 this is the Poisson-binomial likelihood, computed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_log_prob

NODES = 9
_AT, _RAW_WEIGHTS = np.polynomial.hermite_e.hermegauss(NODES)
_LOG_WEIGHTS = np.log(_RAW_WEIGHTS / _RAW_WEIGHTS.sum())


@dataclass(frozen=True)
class CountObjective:
    """Σ_t weight_t log P(observation_t | scores), to be maximised; `spread` is τ."""

    observed: CountObservations
    spread: float = 0.0
    weights: Floats | None = None
    """(T,) weights of the tuples; None: all 1."""

    def log_prob(self, z: Floats) -> Floats:
        """(T,) log P(observation) of every tuple, without weights."""
        if self.spread == 0:
            return count_log_prob(z, self.observed)
        joint = count_log_prob(z + self.spread * _AT[:, None], self.observed) + _LOG_WEIGHTS[:, None]
        total: Floats = np.logaddexp.reduce(joint, axis=0)
        return total

    def value_and_gradient(self, z: Floats) -> tuple[float, Floats]:
        """The objective and its derivative by the score of every member."""
        log_prob, gradient = self._by_tuple(z)
        if self.weights is None:
            return float(log_prob.sum()), gradient
        return float(self.weights @ log_prob), self._member_weights * gradient

    def curvature(self, z: Floats) -> Floats:
        """σ(z)(1 − σ(z)) of every member, in the weights of the tuples: the second derivative if labels were known."""
        half = 0.5 / np.cosh(np.clip(z / 2, -300, 300))
        curvature: Floats = half**2 if self.weights is None else self._member_weights * half**2
        return curvature

    @cached_property
    def _member_weights(self) -> Floats:
        assert self.weights is not None
        weights: Floats = self.weights[self.observed.owner]
        return weights

    def _by_tuple(self, z: Floats) -> tuple[Floats, Floats]:
        if self.spread == 0:
            return count_gradient(z, self.observed)
        by_node = [count_gradient(z + self.spread * at, self.observed) for at in _AT]
        joint = np.stack([log_prob for log_prob, _ in by_node]) + _LOG_WEIGHTS[:, None]
        log_prob: Floats = np.logaddexp.reduce(joint, axis=0)
        responsibility = np.exp(joint - log_prob)
        gradient = np.zeros_like(z)
        for weight, (_, at_node) in zip(responsibility, by_node, strict=True):
            gradient += weight[self.observed.owner] * at_node
        return log_prob, gradient
