"""An L2-regularised logistic model fitted to whole tuples by their exact count likelihood (Eq. 41, by L-BFGS)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.objective import CountObjective, ScoreObjective
from ntmp_cli.learning.groups import usable_rate

MOST_STEPS = 300


class LinearModel(NamedTuple):
    """score = x·weight + bias."""

    weight: Floats
    bias: float

    def scores(self, x: NDArray[np.floating[Any]]) -> Floats:
        scores: Floats = x @ self.weight + self.bias
        return scores

    def moved(self, shift: float) -> LinearModel:
        """The same with `shift` added to all scores."""
        return LinearModel(self.weight, self.bias + shift)


# z → z, as a model of one score: the start of the search for a line.
NO_LINE = LinearModel(np.ones(1), 0.0)


def constant_model(features: int, rate: float) -> LinearModel:
    """The same log-odds for every instance."""
    return LinearModel(np.zeros(features), float(logit(rate)))


def count_fit(
    x: Floats, objective: ScoreObjective, penalty: float, start: LinearModel, centre: Floats | None = None
) -> LinearModel:
    """Minimise −Σ log P(observation) + penalty/2 |w − centre|² (Eq. 41) from `start`; the bias is not penalised.

    The centre is 0 by default.
    """

    def loss(model: LinearModel) -> tuple[float, Floats]:
        value, gradient = objective.value_and_gradient(model.scores(x))
        return -value, -gradient

    return _minimise(x, loss, penalty, start, centre)


def count_path(
    x: Floats,
    objective: ScoreObjective,
    penalties: Sequence[float],
    start: LinearModel,
    centre: Floats | None = None,
) -> Iterator[tuple[float, LinearModel]]:
    """Fits from the strongest penalty to the weakest, each started at the one before."""
    model = start
    for penalty in sorted(penalties, reverse=True):
        model = count_fit(x, objective, penalty, model, centre)
        yield penalty, model


def soft_label_fit(x: Floats, objective: CountObjective, penalty: float) -> LinearModel:
    """Logistic regression with m/n as every member's label (Eq. 45): biased, but convex, and oriented by the rates."""
    observed, weights = objective.observed, objective.weights
    targets = np.repeat(observed.likely / observed.sizes, observed.sizes)
    return logistic_fit(x, targets, penalty, None if weights is None else weights[observed.owner])


def recalibrated(model: LinearModel, x: Floats, objective: CountObjective) -> LinearModel:
    """The model on the line a·score + b with a ≥ 0 under which the observations are most probable (Eq. 30)."""
    line = oriented_line(model.scores(x), objective)
    slope = float(line.weight[0])
    return LinearModel(slope * model.weight, slope * model.bias + line.bias)


def oriented_line(z: Floats, objective: CountObjective) -> LinearModel:
    """The line a·z + b with a ≥ 0 under which the observations are most probable.

    Scores that point to the positive class by construction are never flipped by chance: if a negative slope is more
    probable, the slope is 0.
    """
    line = count_fit(z[:, None], objective, 0.0, NO_LINE)
    if line.weight[0] >= 0:
        return line
    return count_fit(np.zeros((len(z), 1)), objective, 0.0, LinearModel(np.zeros(1), line.bias))


def logistic_fit(x: Floats, targets: Floats, penalty: float, weights: Floats | None = None) -> LinearModel:
    """Logistic regression on labels between 0 and 1."""
    by_row = np.ones(len(x)) if weights is None else weights

    def loss(model: LinearModel) -> tuple[float, Floats]:
        z = model.scores(x)
        return float(by_row @ (np.logaddexp(0, z) - targets * z)), by_row * (expit(z) - targets)

    rate = usable_rate(float(np.average(targets, weights=by_row)), len(x))
    return _minimise(x, loss, penalty, constant_model(x.shape[1], rate))


def _minimise(
    x: Floats,
    loss: Callable[[LinearModel], tuple[float, Floats]],
    penalty: float,
    start: LinearModel,
    centre: Floats | None = None,
) -> LinearModel:
    """Minimise `loss`, which returns a value and its derivative by every score."""

    def objective(at: Floats) -> tuple[float, Floats]:
        model = LinearModel(at[1:], float(at[0]))
        value, by_score = loss(model)
        away = model.weight if centre is None else model.weight - centre
        gradient = np.concatenate([[by_score.sum()], x.T @ by_score + penalty * away])
        return value + 0.5 * penalty * float(away @ away), gradient

    at = np.concatenate([[start.bias], start.weight])
    best = minimize(objective, at, jac=True, method="L-BFGS-B", options={"maxiter": MOST_STEPS}).x
    return LinearModel(best[1:], float(best[0]))
