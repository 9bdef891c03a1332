"""Any scikit-learn classifier learned from counts, by expectation maximisation (Eq. 43).

E-step: the exact posterior q_i = P(y_i=1 | z, observation) of every member given its tuple's count.
M-step: the classifier is fitted to every row twice, as positive with weight q_i and as negative with weight 1 − q_i.

Natural groups have a random intercept b, which the M-step would need as an offset; classifiers of scikit-learn take
none. The labels account for it instead: q_i = σ(z_i) + ∂ log P(observation | z) / ∂z_i, with b integrated out. Without
spread this is the posterior. A classifier that matches its labels on average in every direction of its parameters,
Σ (q_i − σ(z_i)) ∂z_i = 0, is then a stationary point of the likelihood with intercepts.

The first labels come from the linear count likelihood. A flexible classifier reproduces its labels more closely in
every round, so the number of rounds is chosen by the out-of-fold count likelihood; the same scores determine the line
that calibrates the log-odds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.results import FoldFits
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import Split, cross_fitted_spread, fold_fits, folds
from ntmp_cli.learning.tables.estimator_scorer import EstimatorScorer, log_odds
from ntmp_cli.learning.tables.fits import PENALTIES, START_PENALTY, linear_path

ROUNDS = 6


@dataclass(frozen=True)
class FittedEstimator:
    """The classifier and its out-of-fold scores; the fields are those of `FittedTable`."""

    scorer: EstimatorScorer
    """Log-odds at the rate of the tuples."""
    judged: Ints
    scores: Floats
    pool_scores: Floats
    spread: float
    nll: float
    learners: Sequence[dict[str, Any]]
    folds: FoldFits | None = None
    """Without the classifiers of the folds: forests of every round and fold would be large."""


def fit_estimator(
    data: TableData, estimator: Any, rng: np.random.Generator, splits: Sequence[Split] | None = None
) -> FittedEstimator:
    """The classifier, fitted to all tuples; the number of rounds maximises the out-of-fold count likelihood.

    Given `splits` replace the folds; the fit is then to the training tuples of all splits.
    """
    require_weighted(estimator)
    seeded = with_seeds(estimator, rng)
    cross_fitting = folds(data, rng) if splits is None else splits
    judged = np.sort(np.concatenate([split.judged for split in cross_fitting]))
    spread = cross_fitted_spread(data, cross_fitting)
    by_round = _out_of_fold(data, seeded, cross_fitting, spread)
    judging, members = data.subset(judged), data.rows(judged)
    lines = [recalibrate(z[members], judging.observed, spread=spread) for z in by_round]
    best = int(np.argmin([line.nll for line in lines]))
    line = lines[best]
    whole = data if splits is None else data.subset(np.unique(np.concatenate([s.training for s in splits])))
    *_, fitted = em(seeded, whole, best + 1, spread)
    facts = {"learner": type(estimator).__name__, "weight": 1.0, "nll": line.nll, "rounds": best + 1}
    scorer = EstimatorScorer(fitted, data.x.shape[1], line.slope, line.intercept)
    z = line.slope * by_round[best] + line.intercept
    by_fold = fold_fits(cross_fitting)
    return FittedEstimator(scorer, judged, z[members], z[len(data.x) :], spread, line.nll, [facts], by_fold)


def em(estimator: Any, data: TableData, rounds: int, spread: float = 0.0) -> Iterator[Any]:
    """The fitted classifier of every round."""
    z = _first_scores(data, spread)
    for _ in range(rounds):
        fitted = _weighted_fit(estimator, data, soft_labels(z, data.objective(spread)))
        yield fitted
        z = log_odds(fitted, data.x)


def soft_labels(z: Floats, objective: CountObjective) -> Floats:
    """σ(z) + ∂ log P(observation) / ∂z of every member, within [0, 1]; without spread the exact posterior."""
    if objective.spread == 0:
        return count_posterior(z, objective.observed)
    _, gradient = objective.by_tuple(z)
    labels: Floats = np.clip(expit(z) + gradient, 0.0, 1.0)
    return labels


def _first_scores(data: TableData, spread: float) -> Floats:
    """Scores by the linear count likelihood; the penalty is weak if all tuples have one rate.

    A strong one may give a constant, at which EM would stay, or flip the classes.
    """
    penalty = min(PENALTIES) if data.one_rate else START_PENALTY
    standardise = data.standardisation
    return linear_path(data, standardise, [penalty], spread)[penalty].scores(standardise(data.x))


def require_weighted(estimator: Any) -> None:
    """Refuse an estimator that EM cannot use."""
    name = type(estimator).__name__
    last = _last_step(estimator)
    if not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise UsageError(f"{name} is not a scikit-learn classifier", hint="Pass one, as in LogisticRegression().")
    lacks = [] if has_fit_parameter(last, "sample_weight") else ["fit(…, sample_weight=…)"]
    lacks += [] if hasattr(estimator, "predict_proba") else ["predict_proba"]
    if lacks:
        raise UsageError(
            f"{name} cannot learn from counts: it has no {' and no '.join(lacks)}",
            hint="Use a classifier that has both, such as LogisticRegression or RandomForestClassifier.",
        )


def with_seeds(estimator: Any, rng: np.random.Generator) -> Any:
    """A copy whose unset seeds are set, so that equal seeds of a training give equal classifiers."""
    names = sorted(name for name in estimator.get_params() if name.rpartition("__")[2] == "random_state")
    params = estimator.get_params()
    # Draw a seed for every name, also for those that are set, so that a step's seed does not depend on the others.
    seeds = {name: int(rng.integers(2**31 - 1)) for name in names}
    return clone(estimator).set_params(**{name: seed for name, seed in seeds.items() if params[name] is None})


def _out_of_fold(data: TableData, estimator: Any, splits: Sequence[Split], spread: float) -> Floats:
    """(rounds, instances and pool) out-of-fold log-odds; NaN for tuples that no split validates.

    The fit of each split scores a share of the pool.
    """
    x = data.x if data.unlabeled is None else np.concatenate([data.x, data.unlabeled])
    scores = np.full((ROUNDS, len(x)), np.nan)
    for fold, split in enumerate(splits):
        rows = np.concatenate([data.rows(split.judged), np.arange(len(data.x) + fold, len(x), len(splits))])
        for number, fitted in enumerate(em(estimator, data.subset(split.training), ROUNDS, spread)):
            scores[number, rows] = log_odds(fitted, x[rows])
    return scores


def _weighted_fit(estimator: Any, data: TableData, q: Floats) -> Any:
    """The M-step (Eq. 43); rows of weight 0 are left out, because some classifiers count rows."""
    by_row = np.ones(len(q)) if data.weights is None else data.weights[data.observed.owner]
    weights = np.concatenate([by_row * q, by_row * (1 - q)])
    labels, used = np.repeat([1, 0], len(q)), weights > 0
    x = np.concatenate([data.x, data.x])[used]
    name = "sample_weight"
    if (steps := getattr(estimator, "steps", None)) is not None:
        name = f"{steps[-1][0]}__sample_weight"
    try:
        return clone(estimator).fit(x, labels[used], **{name: weights[used]})
    except (ValueError, TypeError) as error:  # raised by scikit-learn for wrong parameters or data
        raise UsageError(f"{type(estimator).__name__} cannot be fitted: {error}") from error


def _last_step(estimator: Any) -> Any:
    steps = getattr(estimator, "steps", None)
    return estimator if steps is None else steps[-1][1]
