"""Scores recalibrated by held-out counts: the line a·z + b under which the observations are most probable (Eq. 30)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.objective import CountObjective, conditional_slope
from ntmp_cli.counting.observations import CountObservations

# The counts confirm the scores if they are this many nats more probable than under a constant score.
CLEAR_NATS = 4.0
# Step of the finite difference for the second derivative.
_STEP = 1e-4


class Recalibration(NamedTuple):
    """z → slope·z + intercept, and the mean −log P(observation) under it."""

    slope: float
    intercept: float
    nll: float


def recalibrate(
    z: NDArray[np.floating[Any]],
    observed: CountObservations,
    steepest: float = 4.0,
    start: tuple[float, float] = (0.0, 0.0),
    spread: float = 0.0,
) -> Recalibration:
    """The line that minimises the mean −log P(observation | a·z + b) (Eq. 30) over b and log a ≤ `steepest`, by L-BFGS.

    `start` is the initial (log a, b).

    With g_i = P(y_i=1 | a·z + b, observation) − σ(a·z_i + b), the derivatives of a tuple's log-probability by log a and
    b are Σ a z_i g_i and Σ g_i. The loss is NaN where a score is not finite. For a flipped network pass −z. `spread` is
    that of the tuples' intercepts.
    """
    from scipy.optimize import minimize  # only here: commands that fit nothing start faster

    if not np.isfinite(z).all():
        return Recalibration(1.0, 0.0, float("nan"))
    scores, objective = np.asarray(z, dtype=np.float64), CountObjective(observed, spread)

    def loss(at: Floats) -> tuple[float, Floats]:
        scaled = np.exp(at[0]) * scores
        log_prob, gradient = objective.by_tuple(scaled + at[1])
        return -float(log_prob.mean()), -np.array([scaled @ gradient, gradient.sum()]) / len(observed)

    best = minimize(loss, np.array(start), jac=True, bounds=[(-8, steepest), (-50, 50)])
    return Recalibration(float(np.exp(best.x[0])), float(best.x[1]), float(best.fun))


def looks_mirrored(z: NDArray[np.floating[Any]], observed: CountObservations, spread: float = 0.0) -> bool:
    """Whether the observations are more probable under a·z + b with a < 0 than with a > 0 (Eq. 39)."""
    return recalibrate(-z, observed, spread=spread).nll < recalibrate(z, observed, spread=spread).nll


def line_derivatives(
    z: Floats, observed: CountObservations, line: Recalibration, spread: float = 0.0
) -> tuple[Floats, Floats]:
    """First (T, 2) and second (T, 3: aa, ab, bb) derivatives of each tuple's log P(observation | a·z + b) (Eq. 30).

    The first are sums over the members of the gradient in closed form; the second are central differences of these.
    With a spread of intercepts a·z + b are the log-odds of an instance of any tuple.
    """
    a, b, objective, steeper = line.slope, line.intercept, CountObjective(observed, spread), conditional_slope(spread)

    def slopes(a: float, b: float) -> Floats:
        gradient = steeper * objective.by_tuple(steeper * (a * z + b))[1]
        return np.column_stack([observed.sum_by_tuple(gradient * z), observed.sum_by_tuple(gradient)])

    first = slopes(a, b)
    by_a = (slopes(a + _STEP, b) - slopes(a - _STEP, b)) / 2
    by_b = (slopes(a, b + _STEP) - slopes(a, b - _STEP)) / 2
    return first, np.column_stack([by_a[:, 0], by_a[:, 1], by_b[:, 1]]) / _STEP
