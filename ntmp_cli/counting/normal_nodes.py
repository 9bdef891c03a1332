"""Nodes and weights for means over a normal law: that of the intercepts of tuples (Eq. 27)."""

from __future__ import annotations

from functools import cache

import numpy as np

from ntmp_cli.counting.laws import Floats


@cache
def normal_nodes(number: int) -> tuple[Floats, Floats]:
    """Gauss and Hermite's nodes of the standard normal law, and their weights, which add up to 1."""
    at, weights = np.polynomial.hermite_e.hermegauss(number)
    weights = weights / weights.sum()
    for shared in (at, weights):
        shared.setflags(write=False)
    return at, weights
