"""Combination of the two orders of moments into one δ, with weights chosen by held-out tuples.

In few dimensions it is best to combine the two orders by their variances. In many dimensions the noise of the
second-order matrix has larger eigenvalues than δδᵀ, and features of equal variance have no leading components.
Therefore held-out moments choose the weights: for any direction w both orders estimate the distance of the classes
along w.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import minimize

from ntmp_cli.learning.moments import (
    Floats,
    Moments,
    Whitened,
    first_order,
    pooled_covariance,
    project,
    second_order,
    whiten,
)

# Factors on the precisions of the two orders. The first pair is the default.
FACTORS = ((1.0, 1.0), (1.0, 0.1), (1.0, 0.0), (0.0, 1.0))
# Another blend replaces the default only if it is better by this many standard errors, because a dozen are compared.
CLEAR_GAIN = 2.0


@dataclass(frozen=True)
class Blend:
    """Principal components, and what the precision of each order is multiplied by; 0 leaves an order out."""

    components: int
    first: float = 1.0
    second: float = 1.0


def blended(white: Whitened, blend: Blend) -> Floats:
    """δ by both orders, their variances divided by the factors of the blend; the first order has the sign."""
    first, first_variance = first_order(white)
    second, second_variance = second_order(white)
    delta = combine(first, _divided(first_variance, blend.first), second, _divided(second_variance, blend.second))
    return -delta if blend.first == 0 and float(delta @ first) < 0 else delta


def _divided(variance: float, factor: float) -> float:
    return variance / factor if factor else inf


def choose(moments: Moments, heldout: Moments, prior: float, usual: Blend) -> Blend:
    """The blend that separates the classes best in held-out moments; the default unless another is clearly better."""
    if not heldout.strata:
        return usual
    everything = whiten(moments, prior, len(moments.squares))
    if not (isfinite(first_order(everything)[1]) and isfinite(second_order(everything)[1])):
        return usual
    tried, directions = [], []
    for components in _ladder(usual.components, everything.basis.shape[1]):
        white = everything.leading(components)
        for first, second in FACTORS:
            tried.append(Blend(components, first, second))
            directions.append(white.basis @ blended(white, tried[-1]))
    covariance, w = pooled_covariance(heldout), np.stack(directions, axis=1)
    spread = np.sqrt(np.maximum(np.einsum("ki,ki->i", w, covariance @ w), 0.0))
    if not (spread > 0).all():
        return usual
    along = w / spread
    distance, variance = separations(project(heldout, prior, along))
    if not np.isfinite(variance).all():  # the held-out data identify nothing
        return usual
    # Two directions that are nearly one have nearly the same error.
    alike = along.T @ covariance @ along[:, 0]
    errors = np.sqrt(2 * np.maximum(1 - np.abs(alike), 0.0) * variance)
    better = distance - distance[0] > CLEAR_GAIN * errors
    best = int(np.argmax(np.where(better, distance, distance[0])))
    return tried[best] if better[best] else usual


def _ladder(usual: int, most: int) -> list[int]:
    """The usual number of components, then twice as many, and so on to all of them."""
    steps = [min(usual, most)]
    while steps[-1] < most:
        steps.append(min(2 * steps[-1], most))
    return steps


def separations(view: Whitened) -> tuple[Floats, Floats]:
    """|δ·w| along each direction w of unit variance, and its variance: argmin (d−d₁)²/2V₁ + (d²−d₂)²/2V₂ (Eq. 34)."""
    first, first_variance = first_order(view)
    second, second_variance = second_order(view)
    precision = 1 / first_variance, 1 / second_variance
    distances = np.array([_distance(a, b, precision) for a, b in zip(first, np.diag(second), strict=True)])
    information = precision[0] + 4 * distances**2 * precision[1]
    return distances, np.divide(1.0, information, out=np.full_like(distances, inf), where=information > 0)


def _distance(first: float, second: float, precision: tuple[float, float]) -> float:
    if precision[1] == 0:
        return abs(first)
    slope = [2 * precision[1], 0.0, precision[0] - 2 * precision[1] * second, -precision[0] * first]
    roots = np.roots(slope)
    at = np.append(roots[np.abs(roots.imag) < 1e-6 * (1 + np.abs(roots.real))].real, 0.0)
    value = precision[0] * (at - first) ** 2 + precision[1] * (at**2 - second) ** 2
    return float(abs(at[np.argmin(value)]))


def combine(first: Floats, first_variance: float, second: Floats, second_variance: float) -> Floats:
    """argmin |δ−δ₁|²/2V₁ + ‖M−δδᵀ‖²_F/2V: both orders by their variances; the first has the sign (Eq. 34)."""
    if not isfinite(second_variance):
        return first
    values, vectors = eigh(second)
    # Along the leading eigenvector; where even that is not positive, the second order says that δ is 0.
    root = sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    if not isfinite(first_variance):
        return np.asarray(root, dtype=np.float64)
    ratio = second_variance / first_variance

    def objective(delta: Floats) -> tuple[float, Floats]:
        """The sum times V, up to a constant, and its slope."""
        away, image, square = delta - first, second @ delta, float(delta @ delta)
        value = ratio * float(away @ away) / 2 - float(delta @ image) + square**2 / 2
        return value, ratio * away - 2 * image + 2 * square * delta

    options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9}
    starts = (root, -root, first)
    ends = [minimize(objective, start, jac=True, method="L-BFGS-B", options=options) for start in starts]
    return np.asarray(min(ends, key=lambda end: float(end.fun)).x, dtype=np.float64)
