"""Laws of counts by adding up all 2^n label assignments."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import expit

Floats = NDArray[np.float64]


def off_by_one(recorded: int, true: int, n: int, rate: float) -> float:
    """P(recorded | true), written down case by case."""
    if recorded == true:
        return 1 - rate
    if abs(recorded - true) != 1:
        return 0.0
    return rate if true in (0, n) else rate / 2


def enumerated(z: Floats, m: int, rate: float = 0.0) -> tuple[float, Floats]:
    """log P(recorded m) and P(y_i=1 | recorded m)."""
    n = len(z)
    labels = np.array(list(product((0, 1), repeat=n)))
    recorded = np.array([off_by_one(m, true, n, rate) for true in range(n + 1)])[labels.sum(axis=1)]
    probability = np.where(labels, expit(z), expit(-z)).prod(axis=1) * recorded
    total = probability.sum()
    return float(np.log(total)), probability @ labels / total


def law_by_definition(law: str, recorded: float, k: int, n: int) -> float:
    """P(recorded | k of n) of a law by its name, from scipy's distributions or counted out."""
    name, _, parameters = law.partition(":")
    given = [float(value) for value in parameters.split(",")] if parameters else []
    if name == "off-by-one":
        return off_by_one(int(recorded), k, n, given[0])
    if name == "detect":
        found = np.convolve(
            stats.binom.pmf(np.arange(k + 1), k, given[0]), stats.binom.pmf(np.arange(n - k + 1), n - k, 1 - given[1])
        )
        return float(found[int(recorded)])
    if name == "round":
        step = int(given[0])
        nearest = [m for m in range(0, n + step + 1, step) if abs(m - k) == min(k % step, step - k % step)]
        return (recorded in nearest) / len(nearest)
    if name == "suppress":
        return float(recorded == (0 if k < given[0] else k))
    if name == "pooled-test":
        positive = given[0] if k else 1 - given[1]
        return positive if recorded else 1 - positive
    added = {"gaussian": stats.norm.pdf, "laplace": stats.laplace.pdf}
    if name in added:
        return float(added[name](recorded - k, scale=given[0]))
    if name == "geometric":
        return float(stats.dlaplace.pmf(recorded - k, given[0]))
    return float(recorded == k)


def enumerated_observation(z: Floats, likelihood: Floats) -> tuple[float, Floats]:
    """log P(observation) and P(y_i=1 | observation) for L(k), k = 0 … n."""
    labels = np.array(list(product((0, 1), repeat=len(z))))
    probability = np.where(labels, expit(z), expit(-z)).prod(axis=1) * likelihood[labels.sum(axis=1)]
    total = probability.sum()
    return float(np.log(total)), probability @ labels / total
