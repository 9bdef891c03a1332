"""Scores made honest by held-out counts: the line a·z + b under which the recorded counts are most probable."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize

from ntmp_cli.learning.counts import RecordedCounts

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Step of the difference that stands for a second derivative.
_STEP = 1e-4


class Line(NamedTuple):
    """z → slope·z + intercept, and the mean −log P(count) under it."""

    slope: float
    intercept: float
    nll: float


def recalibrate(
    z: NDArray[np.floating], sizes: Integers, counts: Integers, noise: float = 0.0, steepest: float = 4.0
) -> Line:
    """The line of least mean −log P(count | a·z + b) over b and log a ≤ `steepest` (SPEC section 5).

    Its loss is NaN where the scores are no numbers. A mirrored network is asked for by passing −z.
    """
    if not np.isfinite(z).all():
        return Line(1.0, 0.0, float("nan"))
    scores, recorded = torch.from_numpy(z).double(), RecordedCounts(sizes, counts, noise)

    def loss(at: Floats) -> tuple[float, Floats]:
        point = torch.tensor(at, requires_grad=True)
        value = -recorded.log_prob(point[0].exp() * scores + point[1]).mean()
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    found = minimize(loss, np.zeros(2), jac=True, bounds=[(-8, steepest), (-50, 50)])
    return Line(float(np.exp(found.x[0])), float(found.x[1]), float(found.fun))


def looks_mirrored(z: NDArray[np.floating], sizes: Integers, counts: Integers) -> bool:
    """Whether the counts are more probable under a·z + b with a < 0 than with a > 0 (SPEC section 5)."""
    return recalibrate(-z, sizes, counts).nll < recalibrate(z, sizes, counts).nll


def line_derivatives(
    z: Floats, sizes: Integers, counts: Integers, line: Line, noise: float = 0.0
) -> tuple[Floats, Floats]:
    """First (T, 2) and second (T, 3: aa, ab, bb) derivatives of each tuple's log P(count | a·z + b) at a line.

    ∂/∂z_i is P(y_i=1 | z, m) − σ(z_i) (SPEC section 4); the second ones are central differences of these.
    """
    a, b = line.slope, line.intercept
    recorded, starts = RecordedCounts(sizes, counts, noise), np.cumsum(sizes) - sizes

    def slopes(a: float, b: float) -> Floats:
        scores = torch.from_numpy(a * z + b)
        surprise = (recorded.posterior(scores) - scores.sigmoid()).numpy()
        return np.column_stack([np.add.reduceat(surprise * z, starts), np.add.reduceat(surprise, starts)])

    first = slopes(a, b)
    by_a = (slopes(a + _STEP, b) - slopes(a - _STEP, b)) / 2
    by_b = (slopes(a, b + _STEP) - slopes(a, b - _STEP)) / 2
    return first, np.column_stack([by_a[:, 0], by_a[:, 1], by_b[:, 1]]) / _STEP
