"""Metrics without labels: intervals cover the metrics of new labelled instances, or none is given."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.evaluation.expected_metrics import METRICS, Deployment, ScoredCounts, expected_metrics

TRUTH = {
    "accuracy": lambda y, z: accuracy_score(y, z > 0),
    "precision": lambda y, z: precision_score(y, z > 0),
    "recall": lambda y, z: recall_score(y, z > 0),
    "f1": lambda y, z: f1_score(y, z > 0),
    "auroc": roc_auc_score,
}


def draw(rng: np.random.Generator, rows: int, scale: float = 2.0):
    """Overconfident scores whose line is bent: three times the true log-odds below 0, twice above."""
    true = rng.normal(-0.5, scale, rows)
    y = rng.random(rows) < expit(true)
    return np.where(true < 0, 3, 2) * true, y


def scored(rng: np.random.Generator, tuples: int, scale: float = 2.0) -> ScoredCounts:
    sizes = rng.integers(3, 9, tuples)
    z, y = draw(rng, int(sizes.sum()), scale)
    return ScoredCounts(z, CountObservations(sizes, np.add.reduceat(y.astype(int), np.cumsum(sizes) - sizes)))


@pytest.mark.slow
@pytest.mark.parametrize("tuples", [40, 150])
def test_intervals_cover_the_metrics_of_new_instances(tuples: int) -> None:
    """Of 60 intervals at 95 %, fewer than 50 hits happen once in a thousand times if 93 % cover."""
    rng = np.random.default_rng(tuples)
    hits, told = dict.fromkeys(METRICS, 0), dict.fromkeys(METRICS, 0)
    for _ in range(60):
        data = scored(rng, tuples)
        z, y = draw(rng, 500)
        # New instances have the rate of the tuples; the threshold is that of the scores as they are.
        expected = expected_metrics(data, 0.0, Deployment(data.rate, instances=500))
        for name in METRICS:
            if (ci := expected[name].ci) is not None:
                told[name] += 1
                hits[name] += ci[0] <= TRUTH[name](y, z) <= ci[1]
    assert told["accuracy"] >= 40
    for name in METRICS:
        assert hits[name] >= 50 / 60 * told[name], name


def test_the_few_positives_below_a_low_threshold_keep_their_error() -> None:
    """With a wide prior of the step 74 of 100 intervals are told, of which 86 % cover; now 100, of which 93 % do."""
    rng = np.random.default_rng(3)

    def rare(rows: int):
        z = rng.normal(-3.0, 2.0, rows)
        return z, rng.random(rows) < expit(z)

    hits = told = 0
    for _ in range(30):
        sizes = rng.integers(4, 11, 200)
        z, y = rare(int(sizes.sum()))
        counts = np.add.reduceat(y.astype(int), np.cumsum(sizes) - sizes)
        data = ScoredCounts(z, CountObservations(sizes, counts))
        recall = expected_metrics(data, -3.0, Deployment(data.rate, instances=600))["recall"]
        z, y = rare(600)
        if recall.ci is not None:
            told += 1
            hits += recall.ci[0] <= np.mean(z[y] > -3.0) <= recall.ci[1]
    assert told >= 27
    assert hits >= 25 / 30 * told


def test_an_overconfident_classifier_is_not_promised_what_it_claims() -> None:
    data = scored(np.random.default_rng(0), 2000)
    claimed = float(expit(np.abs(data.z)).mean())
    accuracy = expected_metrics(data, 0.0, Deployment(data.rate))["accuracy"]
    truth = np.mean([np.mean((z > 0) == y) for z, y in (draw(np.random.default_rng(s), 5000) for s in range(20))])
    assert accuracy.value == pytest.approx(truth, abs=0.02)
    assert claimed > accuracy.ci[1]


def test_scores_without_information_promise_nothing() -> None:
    rng = np.random.default_rng(3)
    sizes = np.full(60, 5)
    data = ScoredCounts(rng.normal(size=300), CountObservations(sizes, rng.integers(0, 6, 60)))
    expected = expected_metrics(data, 0.0, Deployment(0.5))
    assert {expected[name].reason for name in METRICS} == {"cannot be told from 60 tuples"}
    assert all(expected[name].value is None and expected[name].ci is None for name in METRICS)


def test_few_tuples_promise_nothing() -> None:
    expected = expected_metrics(scored(np.random.default_rng(4), 6), 0.0, Deployment(0.5))
    assert expected["accuracy"].reason == "cannot be told from 6 tuples"


def test_another_prior_moves_accuracy_but_not_recall() -> None:
    data = scored(np.random.default_rng(5), 1000)
    low, high = (expected_metrics(data, 0.0, Deployment(prior)) for prior in (0.1, 0.9))
    assert low["recall"].value == pytest.approx(high["recall"].value)
    assert low["precision"].value < high["precision"].value


def test_the_error_of_an_estimated_prior_widens_the_interval() -> None:
    data = scored(np.random.default_rng(6), 1000)
    known, estimated = (expected_metrics(data, 0.0, Deployment(0.4, error))["precision"] for error in (0.0, 0.02))
    assert estimated.ci[1] - estimated.ci[0] > known.ci[1] - known.ci[0]
