"""Metrics of instance scores against true labels.

Scores are logits: an instance is called positive when its score is above 0. TP, FP, FN and TN are the
counts of that decision, P and N the numbers of true positives and negatives. A metric whose formula is
0/0 on the given labels is `nan`, which stands for "undefined": never a silent 0, never a crash. The formulas are
Eqs. 67–71 of docs/method.md.

Metrics of probabilities (calibration) use σ(score), which is P(y=1|x) at the prior π: on a test split with another
share of positives it is only right after reweighting to π, so every such metric also exists as `…_at_prior`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import DataError
from ntmp_cli.evaluation.calibration import (
    brier,
    calibration_error,
    equal_mass_calibration_error,
    label_nll,
    refuse_nan,
)
from ntmp_cli.registry import REGISTRIES, MetricFacts, Registry


class Confusion(NamedTuple):
    """Counts of the decision `score > 0`."""

    tp: int
    fp: int
    fn: int
    tn: int


class ThresholdCounts(NamedTuple):
    """True and false positives when everything at or above a threshold is called positive.

    One entry per distinct score, from the highest to the lowest: tied instances pass a threshold
    together, so the order inside a tie changes nothing. The last entry is (P, N).
    """

    tp: NDArray[np.int64]
    fp: NDArray[np.int64]


class Temperatures(NamedTuple):
    """T fitted on held-out data, by labels and by counts; nan where there was nothing to fit to."""

    labels: float = math.nan
    counts: float = math.nan


NO_TEMPERATURES = Temperatures()


class Bags(NamedTuple):
    """Scores of held-out bags, and whether a bag's rate exceeds the mean rate of all instances."""

    labels: NDArray[np.bool_]
    scores: NDArray[np.float64]


class Forecasts(NamedTuple):
    """Log-odds divided by a temperature, and the probabilities they stand for."""

    scores: NDArray[np.float64]
    p: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scored:
    """Labels and scores of the same instances, and the class prior π that they will be used at.

    Every metric reads shared counts, so that one sort and one pass serve them all.
    """

    labels: NDArray[np.bool_]
    scores: NDArray[np.float64]
    prior: float
    temperatures: Temperatures = NO_TEMPERATURES
    bags: Bags | None = None
    """Of methods that score bags."""

    def __post_init__(self) -> None:
        if self.labels.dtype != np.bool_:  # labels of ±1 would all be true
            raise TypeError(f"labels must be booleans, got {self.labels.dtype}")
        if self.labels.ndim != 1 or self.labels.shape != self.scores.shape:
            raise DataError(f"labels of shape {self.labels.shape} and scores of shape {self.scores.shape} do not match")
        if self.labels.size == 0:
            raise DataError("there are no test instances to evaluate on")
        refuse_nan(self.scores)
        if not 0 <= self.prior <= 1:
            raise DataError(f"class prior {self.prior} is not between 0 and 1")

    @cached_property
    def confusion(self) -> Confusion:
        called = self.scores > 0
        tp = int(np.count_nonzero(called & self.labels))
        fp = int(np.count_nonzero(called)) - tp
        fn = int(np.count_nonzero(self.labels)) - tp
        return Confusion(tp, fp, fn, self.labels.size - tp - fp - fn)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """From the highest score to the lowest."""
        return np.argsort(-self.scores, kind="stable")

    @cached_property
    def threshold_counts(self) -> ThresholdCounts:
        order = self.order
        scores = self.scores[order]
        # Compared rather than subtracted: inf - inf is nan and would miss a tie.
        last_of_tie = np.flatnonzero(np.append(scores[1:] != scores[:-1], True))
        tp = np.cumsum(self.labels[order], dtype=np.int64)[last_of_tie]
        return ThresholdCounts(tp, last_of_tie + 1 - tp)

    @cached_property
    def forecasts(self) -> dict[str, Forecasts | None]:
        """By what the temperature was fitted to ("": not scaled); None where it was not fitted."""
        from scipy.special import expit  # so that metric names are listed without scipy

        forecasts: dict[str, Forecasts | None] = {"": Forecasts(self.scores, expit(self.scores))}
        for name, temperature in self.temperatures._asdict().items():
            scaled = self.scores / temperature
            forecasts[name] = None if math.isnan(temperature) else Forecasts(scaled, expit(scaled))
        return forecasts

    @cached_property
    def weights_at_prior(self) -> NDArray[np.float64] | None:
        """Weights of the instances on a split whose share of positives is π; None when a class is absent."""
        positives = int(np.count_nonzero(self.labels))
        if positives in (0, self.labels.size):
            return None
        return np.where(self.labels, self.prior / positives, (1 - self.prior) / (self.labels.size - positives))


metrics: Registry[Callable[[Scored], float], MetricFacts] = REGISTRIES["metrics"]


def facts_of(metric: str) -> MetricFacts:
    """How values of a metric are read: direction, unit, place in a report."""
    return metrics.entry(metric).facts


def default_columns() -> tuple[str, ...]:
    """Metrics that a report shows by default, in their order."""
    placed = [(entry.facts.column, name) for name, entry in metrics.entries().items() if entry.facts.column is not None]
    return tuple(name for _, name in sorted(placed))


def evaluate_metrics(scored: Scored, names: Sequence[str]) -> dict[str, float]:
    """Each named metric of `scored`, in the given order; `nan` where it is undefined."""
    return {name: metrics.get(name)(scored) for name in names}


def accuracy_curve(labels: NDArray[np.bool_], epoch_scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Accuracy after each epoch, from scores of shape (epochs, instances)."""
    if epoch_scores.ndim != 2 or epoch_scores.shape[1:] != labels.shape:
        raise DataError(f"labels of shape {labels.shape} and scores of shape {epoch_scores.shape} do not match")
    if labels.size == 0:
        raise DataError("there are no test instances to evaluate on")
    refuse_nan(epoch_scores)
    accuracies: NDArray[np.float64] = ((epoch_scores > 0) == labels).mean(axis=1)
    return accuracies


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else math.nan


@metrics.register("ap", column=2)
def ap(scored: Scored) -> float:
    """Average precision: area under the precision-recall steps, Σₖ (Rₖ − Rₖ₋₁) Precₖ.

    k runs over the distinct scores from high to low, Rₖ = TPₖ/P and Precₖ = TPₖ/(TPₖ+FPₖ); no
    interpolation, as in `sklearn.metrics.average_precision_score`. Undefined without positives.
    """
    tp, fp = scored.threshold_counts
    precisions = tp / (tp + fp)
    return _ratio(float(np.sum(np.diff(tp, prepend=0) * precisions)), float(tp[-1]))


@metrics.register("auroc", column=3)
def auroc(scored: Scored) -> float:
    """Area under the ROC curve: chance that a positive outscores a negative, a tie counting half.

    Mann and Whitney (1947): Σₖ (FPₖ − FPₖ₋₁)(TPₖ + TPₖ₋₁) / (2 P N). Undefined when a class is absent.
    """
    tp, fp = scored.threshold_counts
    before = np.concatenate(([0], tp[:-1]))
    twice = np.sum(np.diff(fp, prepend=0) * (tp + before))
    return _ratio(float(twice), 2.0 * float(tp[-1]) * float(fp[-1]))


@metrics.register("accuracy", unit="percent", column=1)
def accuracy(scored: Scored) -> float:
    """Share of test instances classified correctly (COR), on the test split as it is: (TP+TN)/(P+N)."""
    tp, _, _, tn = scored.confusion
    return _ratio(tp + tn, scored.labels.size)


@metrics.register("accuracy_at_prior", unit="percent")
def accuracy_at_prior(scored: Scored) -> float:
    """Accuracy reweighted to the class prior π of the unlabeled pool: π·TPR + (1−π)·TNR.

    The accuracy on a test set whose share of positives is π. Undefined when a class
    is absent.
    """
    tp, fp, fn, tn = scored.confusion
    return scored.prior * _ratio(tp, tp + fn) + (1 - scored.prior) * _ratio(tn, tn + fp)


@metrics.register("tpr")
def tpr(scored: Scored) -> float:
    """True positive rate (recall): TP/P. Undefined without positives."""
    tp, _, fn, _ = scored.confusion
    return _ratio(tp, tp + fn)


@metrics.register("fpr", lower_is_better=True)
def fpr(scored: Scored) -> float:
    """False positive rate: FP/N; lower is better. Undefined without negatives."""
    _, fp, _, tn = scored.confusion
    return _ratio(fp, fp + tn)


@metrics.register("precision")
def precision(scored: Scored) -> float:
    """Share of called positives that are positive: TP/(TP+FP). Undefined when nothing is called positive."""
    tp, fp, _, _ = scored.confusion
    return _ratio(tp, tp + fp)


@metrics.register("f1")
def f1(scored: Scored) -> float:
    """F1 of the positive class: 2TP/(2TP+FP+FN). Undefined when there is no positive, true or called."""
    tp, fp, fn, _ = scored.confusion
    return _f1(tp, fp + fn)


@metrics.register("macro_f1", column=4)
def macro_f1(scored: Scored) -> float:
    """Mean of the F1 of the positive and of the negative class. Undefined when either is.

    (2TP/(2TP+FP+FN) + 2TN/(2TN+FP+FN)) / 2, as `sklearn.metrics.f1_score(average="macro")`.
    """
    tp, fp, fn, tn = scored.confusion
    return (_f1(tp, fp + fn) + _f1(tn, fp + fn)) / 2


@metrics.register("best_f1")
def best_f1(scored: Scored) -> float:
    """Highest F1 of the positive class over all thresholds: maxₖ 2TPₖ/(2TPₖ+FPₖ+FNₖ).

    The threshold is chosen on the test labels, so this bounds what a better threshold could reach.
    With TPₖ+FNₖ = P the denominator is TPₖ+FPₖ+P. Undefined without positives, where every threshold
    would score 0 whatever the scores.
    """
    tp, fp = scored.threshold_counts
    positives = tp[-1]
    return float(np.max(2 * tp / (tp + fp + positives))) if positives else math.nan


def _f1(hits: int, errors: int) -> float:
    return _ratio(2 * hits, 2 * hits + errors)


# Calibration ---------------------------------------------------------------------------------------

_MEASURES: dict[str, tuple[str, Callable[[Scored, Forecasts, NDArray[np.float64] | None], float]]] = {
    "ece": (
        "Expected calibration error, 15 bins of equal width",
        lambda scored, forecasts, weights: calibration_error(scored.labels, forecasts.p, weights),
    ),
    "ece_mass": (
        "Expected calibration error, 15 bins of equal mass",
        lambda scored, forecasts, weights: equal_mass_calibration_error(
            scored.labels, forecasts.p, weights, order=scored.order[::-1]
        ),
    ),
    "brier": (
        "Brier score, the mean (p − y)²",
        lambda scored, forecasts, weights: brier(scored.labels, forecasts.p, weights),
    ),
    "brier_multiclass": (
        "Brier score over both classes, the mean Σₖ (pₖ − yₖ)²",
        lambda scored, forecasts, weights: 2 * brier(scored.labels, forecasts.p, weights),
    ),
    "nll": (
        "Mean −log P(label)",
        lambda scored, forecasts, weights: label_nll(scored.labels, forecasts.scores, weights),
    ),
}


def _register_calibration() -> None:
    """Each measure as the split is and reweighted to π, of the scores as they are and after either temperature."""
    for measure, (description, function) in _MEASURES.items():
        for scaling in ("", *Temperatures._fields):
            for at_prior in (False, True):
                if measure == "brier_multiclass" and scaling and at_prior:
                    continue  # twice brier_at_prior_scaled_…, by a name that no screen holds
                name = measure + "_at_prior" * at_prior + f"_scaled_{scaling}" * bool(scaling)
                metric = _calibration_metric(function, scaling, at_prior)
                variant = ", reweighted to the prior" * at_prior + f", temperature by {scaling}" * bool(scaling)
                metric.__doc__ = f"{description}{variant}."
                # Log-losses have no upper limit, and the Brier score over both classes goes up to 2.
                unit = "number" if measure in ("nll", "brier_multiclass") else "fraction"
                metrics.register(name, lower_is_better=True, unit=unit)(metric)


def _calibration_metric(
    measure: Callable[[Scored, Forecasts, NDArray[np.float64] | None], float], scaling: str, at_prior: bool
) -> Callable[[Scored], float]:
    def metric(scored: Scored) -> float:
        forecasts, weights = scored.forecasts[scaling], scored.weights_at_prior if at_prior else None
        if forecasts is None or (at_prior and weights is None):
            return math.nan
        return measure(scored, forecasts, weights)

    return metric


_register_calibration()


@metrics.register("temperature_labels", descriptive=True, unit="number")
def temperature_labels(scored: Scored) -> float:
    """Temperature fitted to the labels of held-out unlabeled instances; undefined without them."""
    return scored.temperatures.labels


@metrics.register("temperature_counts", descriptive=True, unit="number")
def temperature_counts(scored: Scored) -> float:
    """Temperature fitted to the counts of held-out tuples; undefined without them."""
    return scored.temperatures.counts


# Bags ----------------------------------------------------------------------------------------------


@metrics.register("bag_auroc")
def bag_auroc(scored: Scored) -> float:
    """AUROC of bag scores, held-out tuples and bags of U above the mean rate against those below.

    Undefined where bags have no score or are all of one kind.
    """
    return math.nan if scored.bags is None else auroc(_as_scored(scored.bags, scored.prior))


@metrics.register("bag_accuracy", unit="percent")
def bag_accuracy(scored: Scored) -> float:
    """Share of held-out bags whose score has the right sign: above 0 where their rate exceeds the mean rate.

    Undefined where bags have no score or are all of one kind.
    """
    bags = scored.bags
    if bags is None or bags.labels.all() or not bags.labels.any():
        return math.nan
    return float(np.mean((bags.scores > 0) == bags.labels))


BAG_METRICS = frozenset({"bag_auroc", "bag_accuracy"})


def _as_scored(bags: Bags, prior: float) -> Scored:
    return Scored(bags.labels, bags.scores, prior)
