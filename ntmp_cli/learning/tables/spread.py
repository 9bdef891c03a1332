"""The spread τ of the random intercepts of tuples: whether natural groups differ beyond their features."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from ntmp_cli.counting.laws import Floats
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.linear import NO_LINE, count_fit

SMALLEST_SPREAD, LARGEST_SPREAD = 0.05, 5.0
# Iterations: fits under the previous spread, then the spread under which counts are most probable given their scores.
SPREAD_STEPS = 2
# Residual counts depend on predicted ones if the slope exceeds so many standard errors.
CLEAR_SLOPE = 3.0
# With fewer tuples than this no slope is clear, and a large one suffices: intercepts that are independent of the
# features leave slopes below 1.
FEW_TUPLES, LARGE_SLOPE = 30, 1.0
# A spread of intercepts is used if twice the gain of the out-of-fold log-likelihood exceeds this.
CLEAR_GAIN = 3.84


def spread_of(judging: TableData, scores_under: Callable[[float], Floats]) -> float:
    """The spread τ of tuples' intercepts under which fits predict other counts best; 0 if none (Eq. 46).

    `scores_under(τ)` are out-of-fold scores of the members of `judging` by fits with this spread. Fits without spread
    give a first τ, and fits with this τ the final one: those without are overconfident, which inflates τ. If residual
    counts depend on the features, an intercept that is independent of them is the wrong model and would absorb the
    signal.
    """

    def value(spread: float, z: Floats) -> float:
        log_prob = judging.objective(spread).log_prob(z)
        return float(log_prob.sum() if judging.weights is None else judging.weights @ log_prob)

    scores = scores_under(0.0)
    if _scatter_follows_features(scores, judging):
        return 0.0
    none, spread = value(0.0, scores), 0.0
    for _ in range(SPREAD_STEPS):
        scores = scores if spread == 0 else scores_under(spread)
        spread = _likeliest(partial(value, z=scores))
        if 2 * (value(spread, scores) - none) <= CLEAR_GAIN:
            return 0.0
    return spread


def _scatter_follows_features(scores: Floats, judging: TableData) -> bool:
    """Whether residual shares increase with predicted shares, by regression.

    They do if tuples were sampled at different rates: features shift with the rate, and predictions at the rate of all
    tuples stay too close to it. Intercepts that are independent of the features give a slope of 0.
    """
    observed, n = judging.observed, judging.observed.sizes.astype(np.float64)
    line = count_fit(scores[:, None], judging.objective(), 0.0, NO_LINE)
    predicted = observed.sum_by_tuple(expit(line.scores(scores[:, None]))) / n
    weights = n if judging.weights is None else n * judging.weights
    away = predicted - np.average(predicted, weights=weights)
    residual = observed.likely / n - predicted
    residual = residual - np.average(residual, weights=weights)
    total = float(weights @ away**2)
    if total == 0:
        return False
    slope = float(weights @ (away * residual)) / total
    error = float(np.linalg.norm(weights * away * (residual - slope * away))) / total
    return slope > CLEAR_SLOPE * error or (len(n) < FEW_TUPLES and slope > LARGE_SLOPE)


def _likeliest(value: Callable[[float], float]) -> float:
    """The spread that maximises `value`."""

    def loss(log_spread: float) -> float:
        return -value(float(np.exp(log_spread)))

    bounds = (np.log(SMALLEST_SPREAD), np.log(LARGEST_SPREAD))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 0.02}).x))
