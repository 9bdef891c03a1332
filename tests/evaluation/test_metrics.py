from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn import metrics as sk

from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.evaluation.metrics import (
    BAG_METRICS,
    Bags,
    Scored,
    Temperatures,
    accuracy_curve,
    default_columns,
    evaluate_metrics,
    facts_of,
    metrics,
)
from ntmp_cli.registry import MetricFacts

# Few distinct values, 0 and both infinities among them: ties are the rule, and 0 is the threshold.
TIED = st.sampled_from([-math.inf, -2.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, math.inf])
PAIRS = st.lists(st.tuples(st.booleans(), TIED), min_size=2, max_size=60)


def scored(pairs: list[tuple[bool, float]], prior: float = 0.5) -> Scored:
    labels, scores = zip(*pairs, strict=True)
    return Scored(np.array(labels, dtype=bool), np.array(scores, dtype=float), prior)


def value(name: str, pairs: list[tuple[bool, float]], prior: float = 0.5) -> float:
    return metrics.get(name)(scored(pairs, prior))


def ranked(data: Scored) -> Any:
    """Scores with the same order and ties that scikit-learn accepts: it refuses infinities."""
    return np.clip(data.scores, -10, 10)


def close(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=1e-12, abs_tol=1e-12)


@given(PAIRS)
def test_ranking_metrics_agree_with_scikit_learn(pairs: list[tuple[bool, float]]) -> None:
    data = scored(pairs)
    got = evaluate_metrics(data, ["ap", "auroc", "best_f1"])
    if not data.labels.any():
        assert all(math.isnan(v) for v in got.values())
        return
    assert close(got["ap"], sk.average_precision_score(data.labels, ranked(data)))
    precisions, recalls, _ = sk.precision_recall_curve(data.labels, ranked(data))
    with np.errstate(invalid="ignore"):
        f1s = 2 * precisions * recalls / (precisions + recalls)
    assert close(got["best_f1"], np.nanmax(f1s))
    if data.labels.all():
        assert math.isnan(got["auroc"])
    else:
        assert close(got["auroc"], sk.roc_auc_score(data.labels, ranked(data)))


@given(PAIRS)
def test_threshold_metrics_agree_with_scikit_learn(pairs: list[tuple[bool, float]]) -> None:
    data = scored(pairs)
    y, called = data.labels, data.scores > 0
    got = evaluate_metrics(data, ["accuracy", "tpr", "fpr", "precision", "f1", "macro_f1"])

    def expect(name: str, defined: bool | np.bool_, expected: float) -> None:
        assert close(got[name], expected) if defined else math.isnan(got[name])

    expect("accuracy", True, sk.accuracy_score(y, called))
    expect("tpr", y.any(), sk.recall_score(y, called, zero_division=0))
    expect("fpr", not y.all(), 1 - sk.recall_score(~y, ~called, zero_division=0))
    expect("precision", called.any(), sk.precision_score(y, called, zero_division=0))
    positive, negative = (y | called).any(), (~y | ~called).any()
    expect("f1", positive, sk.f1_score(y, called, zero_division=0))
    macro = sk.f1_score(y, called, labels=[False, True], average="macro", zero_division=0)
    expect("macro_f1", positive and negative, macro)


@given(PAIRS)
def test_auroc_is_the_share_of_pairs_in_order(pairs: list[tuple[bool, float]]) -> None:
    above = [s for label, s in pairs if label]
    below = [s for label, s in pairs if not label]
    wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p, n in itertools.product(above, below)]
    if wins:
        assert close(value("auroc", pairs), math.fsum(wins) / len(wins))


@given(PAIRS, st.floats(0, 1))
def test_accuracy_at_prior_is_the_mean_of_instances_weighted_to_the_prior(
    pairs: list[tuple[bool, float]], prior: float
) -> None:
    positives = sum(label for label, _ in pairs)
    got = value("accuracy_at_prior", pairs, prior)
    if positives in (0, len(pairs)):
        assert math.isnan(got)
        return
    weights = [prior / positives if label else (1 - prior) / (len(pairs) - positives) for label, _ in pairs]
    right = [weight for weight, (label, score) in zip(weights, pairs, strict=True) if label == (score > 0)]
    assert close(got, math.fsum(right))


@given(PAIRS)
def test_accuracy_at_the_share_of_positives_is_the_accuracy(pairs: list[tuple[bool, float]]) -> None:
    share = sum(label for label, _ in pairs) / len(pairs)
    if 0 < share < 1:
        assert close(value("accuracy_at_prior", pairs, share), value("accuracy", pairs))


@given(PAIRS, st.randoms())
def test_order_of_instances_changes_nothing(pairs: list[tuple[bool, float]], random: Any) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    for name in metrics.names():
        # Sums of probabilities depend on their order in the last digit.
        assert value(name, shuffled) == pytest.approx(value(name, pairs), rel=1e-12, abs=1e-15, nan_ok=True)


def test_constant_scores_rank_by_chance() -> None:
    pairs = [(True, 1.0), (False, 1.0), (False, 1.0), (False, 1.0)]
    got = evaluate_metrics(scored(pairs), ["auroc", "ap", "tpr", "fpr", "precision", "best_f1"])
    assert got == {"auroc": 0.5, "ap": 0.25, "tpr": 1.0, "fpr": 1.0, "precision": 0.25, "best_f1": 0.4}


def test_a_score_of_zero_is_negative() -> None:
    pairs = [(True, 0.0), (False, 0.0)]
    assert value("tpr", pairs) == 0
    assert math.isnan(value("precision", pairs))
    assert value("f1", pairs) == 0


@pytest.mark.parametrize(
    ("label", "score", "undefined"),
    [
        (True, 1.0, {"auroc", "accuracy_at_prior", "fpr", "macro_f1"}),
        (True, -1.0, {"auroc", "accuracy_at_prior", "fpr", "precision"}),
        (False, 1.0, {"ap", "auroc", "accuracy_at_prior", "tpr", "best_f1"}),
        (False, -1.0, {"ap", "auroc", "accuracy_at_prior", "tpr", "precision", "f1", "macro_f1", "best_f1"}),
    ],
)
def test_a_single_class_leaves_metrics_undefined(label: bool, score: float, undefined: set[str]) -> None:
    got = evaluate_metrics(scored([(label, score)] * 3), metrics.names())
    # Without held-out data there is no temperature, and a class that is absent cannot be reweighted to the prior.
    always = {name for name in metrics.names() if "at_prior" in name or "scaled" in name or "temperature" in name}
    always |= BAG_METRICS  # and no bag has a score
    assert {name for name, v in got.items() if math.isnan(v)} == undefined | always


def test_metrics_share_one_sort_and_one_count(monkeypatch: pytest.MonkeyPatch) -> None:
    data = scored([(True, 1.0), (False, 2.0)])
    evaluate_metrics(data, metrics.names())
    assert data.threshold_counts is data.threshold_counts
    assert data.confusion is data.confusion
    monkeypatch.setattr(np, "argsort", lambda *_, **__: pytest.fail("sorted again"))
    evaluate_metrics(data, metrics.names())


def test_every_metric_describes_itself_in_one_line() -> None:
    assert metrics.names() == sorted(
        [
            "ap",
            "auroc",
            "accuracy",
            "accuracy_at_prior",
            "tpr",
            "fpr",
            "precision",
            "f1",
            "macro_f1",
            "best_f1",
            "bag_auroc",
            "bag_accuracy",
            "temperature_counts",
            "temperature_labels",
            *(
                measure + weighting + scaling
                for measure in ("ece", "ece_mass", "brier", "brier_multiclass", "nll")
                for weighting in ("", "_at_prior")
                for scaling in ("", "_scaled_labels", "_scaled_counts")
                if not (measure == "brier_multiclass" and weighting and scaling)
            ),
        ]
    )
    assert all(10 < len(line) < 110 for line in metrics.summaries().values())


@given(PAIRS, st.floats(0.05, 0.95), st.floats(0.2, 5))
def test_calibration_metrics_are_those_of_the_scaled_and_weighted_probabilities(
    pairs: list[tuple[bool, float]], prior: float, temperature: float
) -> None:
    plain = scored(pairs)
    data = Scored(plain.labels, plain.scores, prior, Temperatures(temperature, math.nan))
    positives = int(data.labels.sum())
    both_classes = 0 < positives < len(pairs)
    weights = np.where(data.labels, prior / max(positives, 1), (1 - prior) / max(len(pairs) - positives, 1))
    for suffix, scale in (("", 1.0), ("_scaled_labels", temperature)):
        p = expit(data.scores / scale)
        for name, sample_weight in (("brier", None), ("brier_at_prior", weights)):
            got = metrics.get(name + suffix)(data)
            if sample_weight is None or both_classes:
                assert close(got, sk.brier_score_loss(data.labels, p, sample_weight=sample_weight, pos_label=True))
            else:
                assert math.isnan(got)
        classes = np.stack([1 - p, p], axis=1) - np.eye(2)[data.labels.astype(int)]
        assert close(metrics.get("brier_multiclass" + suffix)(data), float((classes**2).sum(axis=1).mean()))
        sure_and_wrong = np.isinf(data.scores) & (data.labels != (data.scores > 0))
        got = metrics.get("nll" + suffix)(data)
        if sure_and_wrong.any():
            assert math.isnan(got)
        else:
            right = np.where(data.labels, p, 1 - p)
            assert got == pytest.approx(-np.log(right).mean(), abs=1e-12)
    assert math.isnan(metrics.get("ece_scaled_counts")(data))
    assert metrics.get("temperature_labels")(data) == temperature


def test_at_its_own_share_of_positives_reweighting_changes_nothing() -> None:
    data = scored([(True, 2.0), (True, -0.5), (True, 1.0), (False, 0.3), (False, -3.0)], prior=0.6)
    for measure in ("ece", "ece_mass", "brier", "brier_multiclass", "nll"):
        assert close(metrics.get(f"{measure}_at_prior")(data), metrics.get(measure)(data))


def test_a_metric_says_how_its_values_are_read() -> None:
    facts = {name: entry.facts for name, entry in metrics.entries().items()}
    lower = {name for name in facts if facts[name].lower_is_better}
    assert lower == {"fpr"} | {name for name in facts if name.startswith(("ece", "brier", "nll"))}
    assert {name for name in facts if facts[name].descriptive} == {"temperature_labels", "temperature_counts"}
    assert {name for name in facts if facts[name].unit == "percent"} == {
        "accuracy",
        "accuracy_at_prior",
        "bag_accuracy",
    }
    unbounded = {name for name in facts if name.startswith(("nll", "temperature", "brier_multiclass"))}
    assert {name for name in facts if facts[name].unit == "number"} == unbounded
    assert facts_of("fpr") == MetricFacts(lower_is_better=True)
    assert default_columns() == ("accuracy", "ap", "auroc", "macro_f1")


def test_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'accuracy'"):
        evaluate_metrics(scored([(True, 1.0)]), ["acuracy"])


def test_nan_scores_are_refused() -> None:
    with pytest.raises(DataError, match="1 of 2 scores are NaN"):
        scored([(True, math.nan), (False, 0.0)])


def test_unusable_input_is_refused() -> None:
    none = np.zeros(0)
    with pytest.raises(DataError, match="no test instances"):
        Scored(none.astype(bool), none, 0.5)
    with pytest.raises(DataError, match="do not match"):
        Scored(np.ones(3, dtype=bool), np.zeros(2), 0.5)
    with pytest.raises(DataError, match=r"class prior 1\.5"):
        scored([(True, 1.0)], prior=1.5)
    with pytest.raises(TypeError, match="booleans"):
        Scored(np.array([1, -1]), np.zeros(2), 0.5)


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.integers(0, 5), st.data())
def test_accuracy_curve_is_the_accuracy_of_each_epoch(labels: list[bool], epochs: int, data: Any) -> None:
    row = st.lists(TIED, min_size=len(labels), max_size=len(labels))
    scores = data.draw(st.lists(row, min_size=epochs, max_size=epochs))
    curve = accuracy_curve(np.array(labels), np.array(scores).reshape(epochs, len(labels)))
    assert curve.shape == (epochs,)
    expected = [value("accuracy", list(zip(labels, epoch, strict=True))) for epoch in scores]
    assert np.allclose(curve, expected, rtol=0, atol=1e-15)


def test_accuracy_curve_refuses_what_it_cannot_score() -> None:
    labels = np.array([True, False])
    with pytest.raises(DataError, match="1 of 4 scores are NaN"):
        accuracy_curve(labels, np.array([[0.0, 1.0], [np.nan, 1.0]]))
    with pytest.raises(DataError, match="do not match"):
        accuracy_curve(labels, np.zeros((3, 1)))
    with pytest.raises(DataError, match="no test instances"):
        accuracy_curve(labels[:0], np.zeros((3, 0)))


def test_bags_are_judged_where_they_are_scored_and_differ() -> None:
    data = scored([(True, 1.0), (False, -1.0)])
    labels, bag_scores = np.array([True, True, False]), np.array([0.5, -0.2, -0.4])
    judged = evaluate_metrics(replace(data, bags=Bags(labels, bag_scores)), ["bag_auroc", "bag_accuracy"])
    assert judged == {"bag_auroc": sk.roc_auc_score(labels, bag_scores), "bag_accuracy": pytest.approx(2 / 3)}
    undecided = replace(data, bags=Bags(np.array([True, False]), np.array([0.5, 0.0])))
    assert evaluate_metrics(undecided, ["bag_accuracy"]) == {"bag_accuracy": 1.0}
    alike = replace(data, bags=Bags(np.array([True, True]), np.array([0.5, 1.0])))
    for unjudged in (data, alike):
        assert all(math.isnan(value) for value in evaluate_metrics(unjudged, ["bag_auroc", "bag_accuracy"]).values())
