"""Probabilities of instances fitted to the counts of tuples, with an error that holds where the model does not.

Log-odds at the tuples' rate are B·θ, B a few functions of cross-fitted scores: a line, and the function whose mean in
each class is asked for. At the fitted θ every column h of B has Σ h·P(y=1 | count) = Σ h·p, so that Σ h·p estimates the
sum of h over the positives even if the line is wrong ("targeted" calibration; Eq. 55). Its error is the sandwich
(Eq. 56): tuples are independent, their law need not be the fitted one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.normal_nodes import normal_nodes
from ntmp_cli.counting.objective import CountObjective

# Coefficients have a normal prior of this standard deviation, per standard deviation of their column: without it,
# scores that separate the classes have no finite fit.
PRIOR_SD = 10.0
_STEP = 1e-4
MOST_LEVERAGE = 0.9
# Instances whose probabilities at all nodes are in memory at a time.
BLOCK = 2**16
# Nodes of the normal law of tuples' intercepts.
_AT, _WEIGHTS = normal_nodes(15)


@dataclass(frozen=True)
class CalibratedFit:
    """θ with what its error is made of: θ̂ − θ is about the mean of the rows of `influence`."""

    theta: Floats
    basis: Floats
    """(instances, K) columns of the members; the first two are the score and 1."""
    influence: Floats
    """(T, K)"""
    objective: CountObjective
    log_prob: float
    """Of all counts."""

    @cached_property
    def p(self) -> Floats:
        """P(y=1) of every member at the tuples' rate."""
        return self.probabilities(self.basis)[0]

    @cached_property
    def slope(self) -> Floats:
        """(instances, K) ∂p/∂θ."""
        slopes: Floats = self.probabilities(self.basis)[1][:, None] * self.basis
        return slopes

    def probabilities(self, basis: Floats) -> tuple[Floats, Floats]:
        """P(y=1) of instances with these columns, of any tuple, and its derivative by their log-odds."""
        z = basis @ self.theta
        mean, slope = np.empty_like(z), np.empty_like(z)
        for first in range(0, len(z), BLOCK):
            block = slice(first, first + BLOCK)
            p = expit(z[block] + self.objective.spread * _AT[:, None])
            mean[block], slope[block] = _WEIGHTS @ p, _WEIGHTS @ (p * (1 - p))
        return mean, slope


def calibrated_fit(
    z: Floats, objective: CountObjective, *columns: Floats, columns_sd: float | None = None
) -> CalibratedFit:
    """The likeliest log-odds a·z + b + Σ c·column of these tuples, whose members' scores stand in a row (Eq. 55).

    `columns_sd` is the standard deviation of c, where its prior is not the wide one.
    """
    basis = np.column_stack([z, np.ones_like(z), *columns])
    scale = np.maximum(basis.std(axis=0), 1e-12)
    scale[1] = 1.0
    ridge = scale**2 / PRIOR_SD**2
    ridge[1] = 0.0
    if columns_sd is not None:
        ridge[2:] = 1 / columns_sd**2
    centre = np.zeros(basis.shape[1])
    centre[0] = 1.0
    observed = objective.observed
    tuples = len(observed)

    def scores(theta: Floats) -> tuple[float, Floats]:
        """Mean log-probability, and the derivatives of every tuple's (T, K)."""
        log_prob, gradient = objective.by_tuple(basis @ theta)
        by_tuple = np.column_stack([observed.sum_by_tuple(gradient * column) for column in basis.T])
        return float(log_prob.mean()), by_tuple

    def loss(at: Floats) -> tuple[float, Floats]:
        value, by_tuple = scores(at / scale)
        away = at / scale - centre
        gradient = -by_tuple.mean(axis=0) + ridge * away / tuples
        return -value + float(ridge @ away**2) / (2 * tuples), gradient / scale

    from scipy.optimize import minimize  # only here: commands that fit nothing start faster

    theta = minimize(loss, centre * scale, jac=True, method="L-BFGS-B", options={"maxiter": 500}).x / scale
    log_prob, by_tuple = scores(theta)
    # (T, K, K) information of every tuple, by central differences.
    information = np.stack(
        [
            (scores(theta - step)[1] - scores(theta + step)[1]) / (2 * _STEP / size)
            for step, size in zip(np.diag(_STEP / scale), scale, strict=True)
        ],
        axis=1,
    )
    total = information.mean(axis=0) + np.diag(ridge) / tuples
    inverse = np.linalg.pinv((total + total.T) / 2, hermitian=True)
    # Without a tuple, θ would be where the others put it: its influence grows with its share of the information.
    leverage = np.clip(np.einsum("jk,tkj->t", inverse, information) / tuples, 0.0, MOST_LEVERAGE)
    influence: Floats = by_tuple @ inverse / (1 - leverage)[:, None]
    return CalibratedFit(theta, basis, influence, objective, float(log_prob * tuples))


def by_block(influence: Floats, blocks: Ints | None) -> Floats:
    """Influences of blocks instead of those of their tuples, where only blocks are independent of each other."""
    if blocks is None:
        return influence
    _, codes = np.unique(blocks, return_inverse=True)
    number = int(codes.max()) + 1
    sums = np.zeros((number, *influence.shape[1:]))
    np.add.at(sums, codes, influence)
    return sums * (number / len(influence))
