"""Metrics of a classifier on new instances without any label: from cross-fitted scores and the counts of tuples.

Recall and false-positive rate at a threshold are estimated by calibrated probabilities that are targeted at the
decision (Eq. 55). With a prior they give the four cells of the confusion matrix (Eq. 58), and the cells give every
metric. The interval is that of the metric on a given number of new instances: it combines the error of the estimate,
the error of the prior, and the sampling error of the new instances (Eq. 60).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logit, stdtrit

from ntmp_cli.counting.calibrated_fit import CalibratedFit, by_block, calibrated_fit
from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recalibration import CLEAR_NATS
from ntmp_cli.evaluation.ranks import average_ranks

FEWEST_TUPLES = 10
# Quantiles of smaller pools are noise.
FEWEST_IN_POOL = 30
# A wider interval is uninformative.
WIDEST = 0.3
# Standard deviation of the prior of the step of the log-odds at a threshold. With a wider prior the fit often assigns
# no positive below the threshold, and the error of their number is lost.
STEP_SD = 1.0
_STEP = 1e-5
# An estimated share is at least half an instance away from 0 and 1.
HALF_AN_INSTANCE = 0.5


@dataclass(frozen=True)
class PoolScores:
    """Scores of the pool: by the fits of folds, and by the classifier that was fitted to all tuples."""

    by_folds: Floats
    by_classifier: Floats

    def threshold_of_folds(self, threshold: float) -> float:
        """The fold threshold that as much of the pool exceeds as exceeds this threshold of the classifier (Eq. 57)."""
        return _matched(threshold, self.by_classifier, self.by_folds)

    def threshold_of_classifier(self, threshold: float) -> float:
        return _matched(threshold, self.by_folds, self.by_classifier)


def _matched(at: float, scores: Floats, others: Floats) -> float:
    """Map `at` from quantiles of `scores` to quantiles of `others`; beyond the last score, extrapolate by a shift."""
    if len(scores) < FEWEST_IN_POOL:
        return at
    here, there = np.sort(scores), np.sort(others)
    inside = min(max(at, float(here[0])), float(here[-1]))
    return float(np.interp(inside, here, there)) + at - inside


@dataclass(frozen=True)
class ScoredCounts:
    """Members' scores at the tuples' rate, by scorers that did not see the tuple, and what was observed of it."""

    z: Floats
    observed: CountObservations
    spread: float = 0.0
    blocks: Ints | None = None
    """(T,) tuples of one block are not independent of each other."""
    pool: PoolScores | None = None
    """Scores of the pool, if z are scores of fold fits: fits to fewer tuples may be more or less extreme."""

    @property
    def objective(self) -> CountObjective:
        return CountObjective(self.observed, self.spread)

    @property
    def rate(self) -> float:
        return self.observed.rate

    @cached_property
    def gain(self) -> float:
        """Log-likelihood of the counts under calibrated scores minus that under a constant."""
        from scipy.optimize import minimize_scalar

        objective, ones = self.objective, np.ones_like(self.z)

        def loss(intercept: float) -> float:
            return -float(objective.log_prob(intercept * ones).sum())

        middle = float(logit(self.rate))
        constant = minimize_scalar(loss, bounds=(middle - 3, middle + 3), method="bounded").fun
        return calibrated_fit(self.z, objective).log_prob + float(constant)


@dataclass(frozen=True)
class Deployment:
    """Where the classifier will be used."""

    prior: float
    prior_error: float = 0.0
    """Standard error, where the prior is an estimate."""
    instances: int = 1000
    """Number of new instances."""
    confidence: float = 0.95


@dataclass(frozen=True)
class Expected:
    """A metric with its interval, or the reason why none is given."""

    value: float | None
    ci: tuple[float, float] | None
    reason: str | None = None


# Cells are shares of all instances: true positives, false positives, false negatives, true negatives.
CELL_METRICS: dict[str, Callable[[Floats], float]] = {
    "accuracy": lambda c: float(c[0] + c[3]),
    "precision": lambda c: float(c[0] / (c[0] + c[1])),
    "recall": lambda c: float(c[0] / (c[0] + c[2])),
    "f1": lambda c: float(2 * c[0] / (2 * c[0] + c[1] + c[2])),
}
METRICS = (*CELL_METRICS, "auroc")


def expected_metrics(scored: ScoredCounts, threshold: float, where: Deployment) -> dict[str, Expected]:
    """All metrics of the decision "positive above the threshold", for scores at the tuples' rate."""
    if (reason := cannot_be_told(scored)) is not None:
        return {name: Expected(None, None, reason) for name in METRICS}
    at = threshold if scored.pool is None else scored.pool.threshold_of_folds(threshold)
    decided = (scored.z > at).astype(np.float64)
    constant = decided.min() == decided.max()
    fit = calibrated_fit(scored.z, scored.objective, *(() if constant else (decided,)), columns_sd=STEP_SD)
    rates, influence = _rates(fit, decided)
    influence = by_block(influence, scored.blocks)
    metrics = {name: _of_cells(metric, rates, influence, scored, where) for name, metric in CELL_METRICS.items()}
    return {**metrics, "auroc": _auroc(scored, where)}


def cannot_be_told(scored: ScoredCounts) -> str | None:
    """Why no metric is given: tuples of one class, too few of them, or scores that their counts do not confirm."""
    tuples = len(scored.observed)
    if scored.observed.exact and scored.rate in (0.0, 1.0):
        return "cannot be estimated from tuples of one class"
    if tuples >= FEWEST_TUPLES and 0 < scored.rate < 1 and scored.gain >= CLEAR_NATS:
        return None
    return f"cannot be estimated from {tuples} tuples"


def _rates(fit: CalibratedFit, decided: Floats) -> tuple[Floats, Floats]:
    """(recall, false-positive rate) (Eq. 57) and the influence of every tuple on them, (T, 2)."""
    observed, p = fit.objective.observed, fit.p
    rates, influence = [], []
    for weight, sign in ((p, 1.0), (1 - p, -1.0)):
        rate = float(decided @ weight / weight.sum())
        away = decided - rate
        mean = weight.sum() / len(observed)
        by_theta = sign * away @ fit.slope / weight.sum()
        influence.append(observed.sum_by_tuple(away * weight) / mean + fit.influence @ by_theta)
        rates.append(rate)
    return np.array(rates), np.column_stack(influence)


def _cells(rates: Floats, prior: float) -> Floats:
    tpr, fpr = rates
    return np.array([prior * tpr, (1 - prior) * fpr, prior * (1 - tpr), (1 - prior) * (1 - fpr)])


def _of_cells(
    metric: Callable[[Floats], float], rates: Floats, influence: Floats, scored: ScoredCounts, where: Deployment
) -> Expected:
    instances, rate = scored.observed.instances, scored.rate
    edges = HALF_AN_INSTANCE / (instances * np.array([rate, 1 - rate]))
    inside = np.clip(rates, edges, 1 - edges)
    cells = _cells(inside, where.prior)
    value = metric(cells)
    by_rates = np.array(
        [(metric(_cells(inside + s, where.prior)) - metric(_cells(inside - s, where.prior))) / (2 * _STEP)
         for s in _STEP * np.eye(2)]
    )  # fmt: skip
    up, down = (min(max(where.prior + s, _STEP), 1 - _STEP) for s in (_STEP, -_STEP))
    by_prior = (metric(_cells(inside, up)) - metric(_cells(inside, down))) / (up - down)
    by_cell = np.array([(metric(cells + s) - metric(cells - s)) / (2 * _STEP) for s in _STEP * np.eye(4)])
    chance = float(by_cell**2 @ cells - (by_cell @ cells) ** 2)
    independent = len(influence)
    error = float(np.sum((influence @ by_rates) ** 2)) / (independent * max(independent - 3, 1))
    # Shares of 0 and 1 have zero influence; their error is the binomial one.
    least = np.array([rate, 1 - rate]) * instances
    error = max(error, float(by_rates**2 @ (inside * (1 - inside) / least)))
    return _interval(value, error, chance, (by_prior * where.prior_error) ** 2, scored, where)


def _interval(
    value: float, error: float, chance: float, by_prior: float, scored: ScoredCounts, where: Deployment
) -> Expected:
    """The interval, computed on the logit scale so that it stays between 0 and 1."""
    # Members of natural groups resemble each other: new groups differ from these as these differ among themselves.
    new = max(chance / where.instances, error if scored.spread > 0 else 0.0)
    independent = len(scored.observed) if scored.blocks is None else len(np.unique(scored.blocks))
    quantile = float(stdtrit(max(independent - 3, 1), (1 + where.confidence) / 2))
    deviation = min(float(np.sqrt(error + new + by_prior)), 0.5)
    # A metric within its error of 0 or 1 may be exactly 0 or 1.
    at = min(max(value, deviation, 1e-9), 1 - max(deviation, 1e-9))
    half = quantile * deviation / (at * (1 - at))
    low, high = (float(x) for x in expit(logit(at) + np.array([-half, half])))
    low, high = (0.0 if value < at else low), (1.0 if value > at else high)
    if high - low > WIDEST:
        return Expected(None, None, f"cannot be estimated from {len(scored.observed)} tuples")
    return Expected(value, (low, high))


def _auroc(scored: ScoredCounts, where: Deployment) -> Expected:
    """P(a positive scores above a negative), ties half (Eq. 59); targeted at the share of instances below a score."""
    z, observed = scored.z, scored.observed
    below = (average_ranks(z) - 0.5) / len(z)
    fit = calibrated_fit(z, scored.objective, below)
    order, p = np.argsort(z, kind="stable"), fit.p
    # Of every instance: the negatives below it and the positives above it, ties half, as shares.
    values, tie = np.unique(z[order], return_inverse=True)
    negative, positive = (np.bincount(tie, weights=w[order], minlength=len(values)) for w in (1 - p, p))
    lower, higher = np.empty_like(z), np.empty_like(z)
    lower[order] = ((np.cumsum(negative) - negative / 2) / negative.sum())[tie]
    higher[order] = ((positive.sum() - np.cumsum(positive) + positive / 2) / positive.sum())[tie]
    value = float(p @ lower / p.sum())
    tuples = len(observed)
    of_positive, of_negative = (lower - value) / p.sum(), (higher - value) / (1 - p).sum()
    by_theta = (of_positive - of_negative) @ fit.slope
    influence = tuples * observed.sum_by_tuple(of_positive * p + of_negative * (1 - p)) + fit.influence @ by_theta
    influence = by_block(influence, scored.blocks)
    error = float(influence @ influence) / (len(influence) * max(len(influence) - 3, 1))
    chance = float((p @ (lower - value) ** 2 / p.sum()) / where.prior)
    chance += float(((1 - p) @ (higher - value) ** 2 / (1 - p).sum()) / (1 - where.prior))
    least = value * (1 - value) / (observed.instances * min(scored.rate, 1 - scored.rate))
    return _interval(value, max(error, least / 4), chance, 0.0, scored, where)
