"""Minimum of a function of one variable, without scipy.optimize: importing that takes longer than most exports."""

from __future__ import annotations

from collections.abc import Callable
from math import copysign, sqrt

GOLDEN = 0.5 * (3.0 - sqrt(5.0))
# Steps smaller than this share of x are lost in the rounding of the function.
_ROUNDING = sqrt(2.2e-16)
TOLERANCE = 1e-5
MOST_CALLS = 500


def bounded_minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Minimiser of a function between two bounds, to within 1e-5, by Brent's method.

    A step goes to the vertex of the parabola through the three best points. If that leaves the bounds or converges too
    slowly, it goes to the golden section of the longer side (Brent 1973, chapter 5). The evaluated points are those of
    `scipy.optimize.minimize_scalar(method="bounded")`, bit for bit.
    """
    best = second = third = low + GOLDEN * (high - low)
    at_best = at_second = at_third = function(best)
    step = before = 0.0
    for _ in range(MOST_CALLS - 1):
        middle = 0.5 * (low + high)
        least_step = _ROUNDING * abs(best) + TOLERANCE / 3.0
        if abs(best - middle) <= 2.0 * least_step - 0.5 * (high - low):
            break
        vertex = None
        if abs(before) > least_step:
            left = (best - second) * (at_best - at_third)
            right = (best - third) * (at_best - at_second)
            p, q = (best - third) * right - (best - second) * left, 2.0 * (right - left)
            p, q = (-p if q > 0.0 else p), abs(q)
            if abs(p) < abs(0.5 * q * before) and q * (low - best) < p < q * (high - best):
                vertex = p / q
        if vertex is None:
            before = low - best if best >= middle else high - best
            step = GOLDEN * before
        else:
            before, step = step, vertex
            if best + step - low < 2.0 * least_step or high - (best + step) < 2.0 * least_step:
                step = copysign(least_step, 0.0 + (middle - best))
        x = best + copysign(max(abs(step), least_step), 0.0 + step)
        at_x = function(x)
        if at_x <= at_best:
            low, high = (best, high) if x >= best else (low, best)
            third, at_third, second, at_second, best, at_best = second, at_second, best, at_best, x, at_x
            continue
        low, high = (x, high) if x < best else (low, x)
        if at_x <= at_second or second == best:
            third, at_third, second, at_second = second, at_second, x, at_x
        elif at_x <= at_third or third in (best, second):
            third, at_third = x, at_x
    return best
