"""Metrics without labels: intervals cover the metrics of new labelled instances, or none is given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score, roc_auc_score

from ntmp_cli.counting.calibrated_fit import calibrated_fit
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.evaluation.expected_metrics import (
    METRICS,
    Deployment,
    Expected,
    PoolScores,
    ScoredCounts,
    _interval,
    expected_metrics,
)
from ntmp_cli.evaluation.expected_of_run import chosen_threshold, parsed_rule

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
    assert {expected[name].reason for name in METRICS} == {"cannot be estimated from 60 tuples"}
    assert all(expected[name].value is None and expected[name].ci is None for name in METRICS)


def test_few_tuples_promise_nothing() -> None:
    expected = expected_metrics(scored(np.random.default_rng(4), 6), 0.0, Deployment(0.5))
    assert expected["accuracy"].reason == "cannot be estimated from 6 tuples"


def test_few_tuples_promise_nothing_however_good_their_scores_are() -> None:
    y = np.tile([1, 1, 1, 0, 0, 1, 0, 0, 0, 0], 9)
    data = ScoredCounts(np.where(y, 8.0, -8.0) + np.arange(90) / 100, CountObservations([3, 7] * 9, [3, 1] * 9))
    assert data.gain > 8
    assert expected_metrics(data, 0.0, Deployment(0.5))["accuracy"].value is not None
    few = ScoredCounts(data.z[:40], CountObservations([3, 7] * 4, [3, 1] * 4))
    assert few.gain > 8
    assert {one.reason for one in expected_metrics(few, 0.0, Deployment(0.5)).values()} == {
        "cannot be estimated from 8 tuples"
    }


def test_an_interval_that_tells_nothing_is_withheld() -> None:
    data = scored(np.random.default_rng(1), 40)
    narrow, wide = (_interval(0.6, error, 0.0, 0.0, data, Deployment(0.5)) for error in (0.001, 0.02))
    assert narrow.value == 0.6
    assert narrow.ci[1] - narrow.ci[0] < 0.3
    assert wide == Expected(None, None, "cannot be estimated from 40 tuples")


def test_another_prior_moves_accuracy_but_not_recall() -> None:
    data = scored(np.random.default_rng(5), 1000)
    low, high = (expected_metrics(data, 0.0, Deployment(prior)) for prior in (0.1, 0.9))
    assert low["recall"].value == pytest.approx(high["recall"].value)
    assert low["precision"].value < high["precision"].value


def test_the_error_of_an_estimated_prior_widens_the_interval() -> None:
    data = scored(np.random.default_rng(6), 1000)
    known, estimated = (expected_metrics(data, 0.0, Deployment(0.4, error))["precision"] for error in (0.0, 0.02))
    assert estimated.ci[1] - estimated.ci[0] > known.ci[1] - known.ci[0]


# Fits of folds and the classifier that was fitted to all tuples --------------------------------------


def scored_by_folds(rng: np.random.Generator) -> tuple[ScoredCounts, PoolScores, np.ndarray, np.ndarray]:
    """Scores of folds' fits, a pool, and how a classifier scores it that is half as extreme as they are."""
    data, (z, y) = scored(rng, 1000), draw(rng, 4000)
    return data, PoolScores(z, 0.5 * z), 0.5 * z, y


def test_metrics_are_those_of_the_classifier_not_of_the_fits_of_folds() -> None:
    data, pool, z, y = scored_by_folds(np.random.default_rng(7))
    where = Deployment(data.rate, instances=len(y))
    matched = expected_metrics(replace(data, pool=pool), 1.0, where)["recall"]
    truth = recall_score(y, z > 1.0)
    assert matched.ci[0] < truth < matched.ci[1]
    assert matched.value == pytest.approx(expected_metrics(data, 2.0, where)["recall"].value, abs=0.005)
    assert expected_metrics(data, 1.0, where)["recall"].ci[0] > truth


def test_a_rule_chooses_a_threshold_of_the_classifier() -> None:
    data, pool, _, _ = scored_by_folds(np.random.default_rng(8))
    rule = parsed_rule("cost=1:4")
    of_folds, of_classifier = (chosen_threshold(rule, one, 0.4) for one in (data, replace(data, pool=pool)))
    assert of_folds > 1
    assert of_classifier == pytest.approx(0.5 * of_folds, abs=0.01)


@pytest.mark.parametrize("threshold", [-30.0, -2.0, 0.3, 30.0])
def test_matching_back_gives_the_same_threshold(threshold: float) -> None:
    _, pool, _, _ = scored_by_folds(np.random.default_rng(9))
    assert pool.threshold_of_folds(pool.threshold_of_classifier(threshold)) == pytest.approx(threshold, abs=0.05)


def test_small_pools_match_nothing() -> None:
    pool = PoolScores(np.arange(29.0), 2 * np.arange(29.0))
    assert pool.threshold_of_folds(4.0) == pool.threshold_of_classifier(4.0) == 4.0


def test_a_rule_does_not_divide_equal_scores() -> None:
    """Three different scores: a recall of .9 is reached by all from the middle one on."""
    rng = np.random.default_rng(10)
    data = scored(rng, 1000)
    rounded = replace(data, z=np.clip(np.round(data.z / 2), -1, 1) * 2)
    at = chosen_threshold(parsed_rule("recall=0.9"), rounded, data.rate)
    fit = calibrated_fit(rounded.z, rounded.objective)
    assert fit.p[rounded.z > at].sum() / fit.p.sum() >= 0.9
    assert at not in {-2.0, 0.0, 2.0}


@pytest.mark.parametrize(("blocks", "freedom"), [(None, 197), (5, 2), (3, 1)])
def test_intervals_over_few_blocks_have_the_t_quantile_of_blocks(blocks, freedom) -> None:
    """An error that is estimated from five blocks is uncertain itself, however many tuples they have."""
    owner = None if blocks is None else np.arange(200) % blocks
    scored = SimpleNamespace(observed=range(200), blocks=owner, spread=0.0)
    found = _interval(0.8, 1e-5, 0.0, 0.0, scored, Deployment(0.5))
    half = stats.t.ppf(0.975, freedom) * np.sqrt(1e-5) / (0.8 * 0.2)
    assert found.ci == pytest.approx(expit(logit(0.8) + np.array([-half, half])))
