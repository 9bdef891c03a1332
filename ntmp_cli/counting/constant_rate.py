"""The maximum-likelihood rate of all tuples, under the assumption that every member has the same rate.

With log-odds s for all members the count of n is binomial, and P(observation | s) = Σ_k L(k) C(n,k) e^(sk) / (1+e^s)^n.
Its maximum over s is the rate of the tuples' members: Σm/Σn where counts are exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import expit, gammaln

from ntmp_cli.counting.laws import Floats, Ints

# Grid of log-odds that brackets the maximum.
GRID = np.linspace(-12.0, 12.0, 25)


class CountTable(NamedTuple):
    """log L(k) of some tuples, k of shape (K, T) or (K, 1)."""

    which: Ints
    sizes: Ints
    k: Ints
    log_likelihood: Floats


class ConstantRate(NamedTuple):
    """The likeliest rate, with the expected count of every tuple and the log-probability of all observations."""

    rate: float
    expected: Floats
    log_prob: float


def likeliest_rate(tables: Sequence[CountTable]) -> ConstantRate:
    """The rate of greatest likelihood (Eq. 109)."""
    logs = [table.log_likelihood + _log_choices(table) for table in tables]
    members = float(sum(table.sizes.sum() for table in tables))
    expected = np.empty(sum(len(table.which) for table in tables))

    def at(s: float) -> tuple[float, float]:
        """Log-probability of all observations and its derivative by s."""
        total = 0.0
        for table, log in zip(tables, logs, strict=True):
            joint = log + s * table.k
            top = joint.max(axis=0)
            weights = np.exp(joint - top)
            mass = weights.sum(axis=0)
            expected[table.which] = (weights * table.k).sum(axis=0) / mass
            total += float((top + np.log(mass)).sum())
        return total - members * float(np.logaddexp(0, s)), float(expected.sum()) - members * float(expit(s))

    from scipy.optimize import brentq  # only here: commands that fit nothing start faster

    values = [at(s) for s in GRID]
    best = int(np.argmax([value for value, _ in values]))
    low, high = GRID[max(best - 1, 0)], GRID[min(best + 1, len(GRID) - 1)]
    inside = at(low)[1] > 0 > at(high)[1]
    s = float(brentq(lambda s: at(s)[1], low, high, xtol=1e-10)) if inside else float(GRID[best])
    log_prob, _ = at(s)
    return ConstantRate(float(expected.sum()) / members, expected, log_prob)


def _log_choices(table: CountTable) -> Floats:
    k, n = np.clip(table.k, 0, table.sizes), table.sizes
    logs: Floats = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return logs
