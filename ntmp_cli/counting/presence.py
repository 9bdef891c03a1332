"""Closed forms for tuples where only the presence of a positive is known (multiple-instance learning).

With q_i = σ(−z_i) the table of the count law needs one column (Eqs. 22 and 24 with L(k) = 1[k ≥ 1] or 1[k = 0]):

    P(none | z) = Π q_i,    P(some | z) = 1 − Π q_i,    P(y_i=1 | z, some) = σ(z_i) / (1 − Π q_i)

in time linear in the members, whatever the size of a tuple.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Floats

if TYPE_CHECKING:
    from ntmp_cli.counting.observations import CountObservations

# Below this, Σ log(1 + e^z) equals Σ e^z to the last digit, and may have lost digits itself.
TINY = 1e-290


def presence_log_prob(z: Floats, observed: CountObservations, some: NDArray[np.bool_]) -> Floats:
    """log P(observation | z): scores of shape (…, instances) give (…, tuples)."""
    none = -np.add.reduceat(np.logaddexp(0, z), observed.starts, axis=-1)
    with np.errstate(divide="ignore"):
        log_some = np.log(-np.expm1(none))
    rare = -none < TINY
    if rare.any():
        log_some = np.where(rare, np.logaddexp.reduceat(z, observed.starts, axis=-1), log_some)
    log_prob: Floats = np.where(some, log_some, none)
    return log_prob


def presence_posterior(z: Floats, observed: CountObservations, some: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Log-probability of every tuple, and P(y_i=1 | z, observation) of every member."""
    log_prob = presence_log_prob(z, observed, some)
    share = np.exp(np.minimum(-np.logaddexp(0, -z) - log_prob[observed.owner], 0.0))
    return log_prob, np.where(some[observed.owner], share, 0.0)


def presence_of_odds(odds: Floats, observed: CountObservations, some: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """log P(observation) (…, tuples) and its derivative by every score (…, instances), of odds e^z.

    The derivative, posterior minus σ, is σ P(none) / P(some) if some are positive, and −σ if none is.
    """
    none = -np.add.reduceat(np.log1p(odds), observed.starts, axis=-1)
    log_prob: Floats = np.where(some, np.log(-np.expm1(none)), none)
    with np.errstate(over="ignore"):
        factor = np.where(some, 1 / np.expm1(-none), -1.0)
    gradient: Floats = odds / (1 + odds) * factor[..., observed.owner]
    return log_prob, gradient


def presence_moments(
    p: Floats, mean: Floats, variance: Floats, observed: CountObservations, some: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Mean and variance of the count of every tuple given the observation; `mean` and `variance` are those without."""
    # 1 − Π(1 − p) has lost its digits where all p are tiny; 1 − e^(−Σp) is a bound below it, and its limit there.
    some_positive = np.maximum(1 - np.multiply.reduceat(1 - p, observed.starts), -np.expm1(-mean))
    given = mean / some_positive
    spread = (variance + mean**2) / some_positive - given**2
    return np.where(some, given, 0.0), np.where(some, np.clip(spread, 0, variance), 0.0)
