"""The count likelihood of tuples together with that of an unlabeled pool whose class prior is known.

Members of tuples and pool rows are taken as one sample; ρ is its share of positives and z the log-odds at ρ. A pool row
then is a tuple of one member whose likelihood over its label is that of belonging to the pool, π/ρ of a positive and
(1−π)/(1−ρ) of a negative (Eqs. 46a and 46b):

    log [(π/ρ) σ(z) + ((1−π)/(1−ρ)) (1−σ(z))] = log((1−π)/(1−ρ)) + log(1 + e^(z+d)) − log(1 + e^z)
    its derivative by z: σ(z + d) − σ(z),    d = logit π − logit ρ

Where π is the rate of the tuples, d is 0 and pool rows say nothing.

Counts that are not exact have probabilities at the rate ᾱ of the tuples, so their likelihood is that of the log-odds
z − s there, times p_ᾱ/p_ρ of every member (Eq. 46b with ᾱ for π), up to a constant. For exact counts this is the
likelihood of z itself, up to another constant:

    log P(record | z − s) + Σ_i [log(1 + e^(z_i−s)) − log(1 + e^(z_i))],    s = logit ρ − logit ᾱ
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.objective import CountObjective


@dataclass(frozen=True)
class PooledObjective:
    """Σ_t weight_t log P(observation_t | z) + Σ_pool log p_U/p_ρ, of scores of all members and then all pool rows."""

    tuples: CountObjective
    rows: int
    """Of the pool."""
    prior: float
    """Share of positives in the pool."""
    tuple_rate: float
    """Share of positives among the members of tuples."""

    @cached_property
    def rate(self) -> float:
        """ρ: the share of positives among all rows, tuples counted with their weights (Eq. 46a)."""
        sizes, weights = self.tuples.observed.sizes, self.tuples.weights
        members = float(sizes.sum() if weights is None else weights @ sizes)
        return (members * self.tuple_rate + self.rows * self.prior) / (members + self.rows)

    @property
    def shift(self) -> float:
        """What log-odds at the prior exceed those at ρ by (d of Eq. 46b)."""
        return float(logit(self.prior) - logit(self.rate))

    @cached_property
    def _back(self) -> float:
        """s: what log-odds at ρ exceed those at the rate of the tuples by, where that matters."""
        return 0.0 if self.tuples.observed.exact else float(logit(self.rate) - logit(self.tuple_rate))

    def pool_log_prob(self, z: Floats) -> Floats:
        """log p_U(x)/p_ρ(x) of pool rows (Eq. 46b)."""
        least = np.log1p(-self.prior) - np.log1p(-self.rate)
        logs: Floats = least + np.logaddexp(0, z + self.shift) - np.logaddexp(0, z)
        return logs

    def log_prob(self, z: Floats) -> Floats:
        """Of every tuple and then of every pool row, without weights."""
        observed, back = self.tuples.observed, self._back
        members, pool = np.split(z, [observed.instances])
        ratios = np.logaddexp(0, members - back) - np.logaddexp(0, members)
        of_tuples = self.tuples.log_prob(members - back) + np.bincount(observed.owner, ratios, len(observed))
        return np.concatenate([of_tuples, self.pool_log_prob(pool)])

    def value_and_gradient(self, z: Floats) -> tuple[float, Floats]:
        """The objective and its derivative by the score of every row (Eqs. 25 and 46b)."""
        observed, back, weights = self.tuples.observed, self._back, self.tuples.weights
        members, pool = np.split(z, [observed.instances])
        value, gradient = self.tuples.value_and_gradient(members - back)
        if back != 0:
            each = 1.0 if weights is None else weights[observed.owner]
            value += float(np.sum(each * (np.logaddexp(0, members - back) - np.logaddexp(0, members))))
            gradient = gradient + each * (expit(members - back) - expit(members))
        slope = expit(pool + self.shift) - expit(pool)
        return value + float(self.pool_log_prob(pool).sum()), np.concatenate([gradient, slope])

    def curvature(self, z: Floats) -> Floats:
        """As if all labels were known (h of Eq. 42)."""
        members = self.tuples.observed.instances
        half = 0.5 / np.cosh(np.clip(z[members:] / 2, -300, 300))
        return np.concatenate([self.tuples.curvature(z[:members]), half**2])
