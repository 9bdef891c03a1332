"""Brent's method between bounds: the same points as scipy's, bit for bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from ntmp_cli.evaluation.bounded_minimum import bounded_minimum

FUNCTIONS = {
    "parabola": lambda x: (x - 0.3) ** 2,
    "kink": lambda x: abs(x - 0.3),
    "several minima": lambda x: math.cos(20 * x) + x * x,
    "steps": lambda x: float(math.floor(7 * x)),
    "constant": lambda x: 1.0,
    "falling": lambda x: -x,
    "rising": lambda x: x + x**3,
    "undefined": lambda x: math.nan,
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("bounds", [(-1.0, 2.0), (0.0, 1e-6), (-3e4, 5e4), (0.2, 0.31)])
def test_every_point_is_that_of_scipy(name, bounds):
    ours, theirs = [], []

    def watched(points):
        return lambda x: (points.append(float(x)), FUNCTIONS[name](x))[1]

    least = bounded_minimum(watched(ours), *bounds)
    expected = minimize_scalar(watched(theirs), bounds=bounds, method="bounded").x
    assert least == expected
    assert ours == theirs


def test_random_functions_have_the_minimum_that_scipy_finds():
    rng = np.random.default_rng(0)
    for _ in range(200):
        coefficients, low = rng.normal(size=6), float(rng.normal())
        high = low + float(rng.exponential())

        def function(x, coefficients=coefficients):
            return float(np.polyval(coefficients, x) + np.sin(9 * x))

        assert bounded_minimum(function, low, high) == minimize_scalar(function, bounds=(low, high), method="bounded").x
