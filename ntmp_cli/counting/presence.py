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
