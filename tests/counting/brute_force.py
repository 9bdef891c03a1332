"""Laws of counts by adding up all 2^n label assignments."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray
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
