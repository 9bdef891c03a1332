"""Probabilities of instances fitted to the counts of tuples, with a standard error that is robust to a wrong model.

The log-odds at the tuples' rate are B·θ. The columns of B are functions of cross-fitted scores: a line, and the
function whose mean in each class is to be estimated. At the fitted θ every column h of B satisfies
Σ h·P(y=1 | count) = Σ h·p. Therefore Σ h·p estimates the sum of h over the positives even if the line is wrong
("targeted" calibration; Eq. 55). The error is the sandwich estimate (Eq. 56): it assumes independent tuples, not that
the fitted law is the true one.
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
# Number of instances whose probabilities at all nodes are held in memory at a time.
BLOCK = 2**16
# Nodes of the normal law of tuples' intercepts.
_AT, _WEIGHTS = normal_nodes(15)


@dataclass(frozen=True)
class CalibratedFit:
    """The fitted θ and the influence of every tuple: θ̂ − θ is approximately the mean of the rows of `influence`."""

    theta: Floats
    basis: Floats
    """(instances, K) columns of the members; the first two are the score and 1."""
    influence: Floats
    """(T, K)"""
    objective: CountObjective
    log_prob: float
    """Log-probability of all counts."""

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
    """Maximum-likelihood log-odds a·z + b + Σ c·column, for members' scores z, tuple after tuple (Eq. 55).

    `columns_sd` is the standard deviation of the normal prior of c; by default the prior is wide.
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
    # The influence of leaving a tuple out grows with its share of the information.
    leverage = np.clip(np.einsum("jk,tkj->t", inverse, information) / tuples, 0.0, MOST_LEVERAGE)
    influence: Floats = by_tuple @ inverse / (1 - leverage)[:, None]
    return CalibratedFit(theta, basis, influence, objective, float(log_prob * tuples))


def by_block(influence: Floats, blocks: Ints | None) -> Floats:
    """Influences summed over the tuples of a block, for data where only blocks are independent."""
    if blocks is None:
        return influence
    _, codes = np.unique(blocks, return_inverse=True)
    number = int(codes.max()) + 1
    sums = np.zeros((number, *influence.shape[1:]))
    np.add.at(sums, codes, influence)
    return sums * (number / len(influence))
