"""The count law of tuples that were sampled at different rates, when their scores are at the mean rate (Eq. 114).

The features of such a tuple shift with its rate, so its count scatters more than the scores say. If rates have a beta
distribution of mean ρ and concentration c, the law of the count given the features is

    P(k | z) M(k) / Σ_k P(k | z) M(k),   M(k) = BetaBinomial(k; n, cρ, c(1 − ρ)) / Binomial(k; n, ρ)

because a change of the odds by a common factor multiplies P(k | z) by the power k of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import betaln, xlog1py, xlogy

from ntmp_cli.counting.large import LARGE
from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_log_prob
from ntmp_cli.counting.recorded import Counts, records

# log 1/c: from rates that are all but equal to rates near 0 and 1.
LEAST, MOST = -10.0, 1.0
# Weights are at least e^-600 of the largest: products with probabilities stay above 0. Beyond the ratio of its ends,
# log M may differ by some nats more.
LARGEST_DIFFERENCE, BEYOND_ENDS = 600.0, 10.0
RATES = (0.01, 0.99)
_STEP = 1e-4


class VaryingRatesFit(NamedTuple):
    """The line a·z + b, log 1/c, and the mean −log P(record) under them."""

    at: tuple[float, float, float]
    """log a, b, log 1/c."""
    nll: float


class _Weighted(CountObservations):
    """Observations with M(k)·L(k) in place of L(k)."""

    def __init__(self, sizes: Ints, counts: Counts, rate: float, concentration: float) -> None:
        super().__init__(sizes, counts)
        self.tuple_rate, self.concentration = rate, concentration
        low, high = self.support()
        inner = np.stack([low, high, np.clip(np.rint(rate * sizes).astype(np.int64), low, high)])
        # log M is convex in k: its largest value is at an end.
        self.largest = self._log_weights(inner, sizes).max(axis=0)

    @property
    def some(self) -> None:
        """No closed form."""

    def _log_weights(self, k: Ints, n: Ints) -> Floats:
        a, b = self.concentration * self.tuple_rate, self.concentration * (1 - self.tuple_rate)
        weights: Floats = betaln(k + a, n - k + b) - betaln(a, b) - xlogy(k, self.tuple_rate)
        weights -= xlog1py(n - k, -self.tuple_rate)
        return weights

    def likelihood(self, k: Ints, which: Ints) -> Floats:
        n = self.sizes[which]
        logs = self._log_weights(np.clip(k, 0, n), n) - self.largest[which]
        weighted: Floats = super().likelihood(k, which) * np.exp(np.clip(logs, -LARGEST_DIFFERENCE, 0.0))
        return weighted


def most_members(rate: float) -> int:
    """Tuples of more members are not for `fit_varying_rates`.

    The sums of large tuples are cut around a single narrow mode, which M(k) widens. The weights of tuples of a rare
    class span more than a double holds, because M(n) may be ρ^(−n) times M(0).
    """
    rarest = max(min(rate, 1 - rate), RATES[0])
    return min(LARGE, int((LARGEST_DIFFERENCE - BEYOND_ENDS) / -np.log(rarest)))


def fit_varying_rates(
    z: Floats, observed: CountObservations, start: tuple[float, float, float] = (0.0, 0.0, -2.0)
) -> VaryingRatesFit:
    """The line and the concentration under which the records are most probable, by L-BFGS.

    No tuple may have more than `most_members`.
    """
    rate = float(np.clip(observed.rate, *RATES))
    everything = records(np.zeros(len(observed)), observed.sizes)

    def pair(log_inverse: float) -> tuple[CountObservations, CountObservations, Floats]:
        concentration = float(np.exp(-log_inverse))
        recorded = _Weighted(observed.sizes, observed.counts, rate, concentration)
        anything = _Weighted(observed.sizes, everything, rate, concentration)
        return recorded, anything, recorded.largest - anything.largest

    def loss(at: Floats) -> tuple[float, Floats]:
        scaled = np.exp(at[0]) * z
        line = scaled + at[1]
        recorded, anything, factor = pair(at[2])
        of_records, by_records = count_gradient(line, recorded)
        of_all, by_all = count_gradient(line, anything)
        gradient, value = by_records - by_all, of_records - of_all + factor
        recorded, anything, factor = pair(at[2] + _STEP)
        further = count_log_prob(line, recorded) - count_log_prob(line, anything) + factor
        slope = float((further - value).sum()) / _STEP
        return -float(value.mean()), -np.array([scaled @ gradient, gradient.sum(), slope]) / len(observed)

    best = minimize(loss, np.array(start), jac=True, bounds=[(-8, 4), (-50, 50), (LEAST, MOST)])
    log_slope, intercept, log_inverse = (float(value) for value in best.x)
    return VaryingRatesFit((log_slope, intercept, log_inverse), float(best.fun))
