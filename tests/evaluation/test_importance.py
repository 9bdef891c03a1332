"""Permutation importance by the count likelihood, where the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_log_prob
from ntmp_cli.evaluation.importance import FeatureGroup, JudgedTuples, permutation_importance

WEIGHT = np.array([2.0, -1.0, 0.0, 0.5])
GROUPS = [FeatureGroup("a", slice(0, 1)), FeatureGroup("b", slice(1, 2)), FeatureGroup("rest", slice(2, 4))]


def judged(seed: int, tuples: int = 600) -> JudgedTuples:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(4 * tuples, 4))
    counts = (rng.random(len(x)) < expit(x @ WEIGHT)).reshape(tuples, 4).sum(axis=1)
    return JudgedTuples(lambda rows: rows @ WEIGHT, x, CountObservations(np.full(tuples, 4), counts))


def test_features_come_in_the_order_of_their_weights():
    nll, rows = permutation_importance([judged(0), judged(1)], GROUPS, np.random.default_rng(0), 3, 0.95)
    assert [row.name for row in rows] == ["a", "b", "rest"]
    assert rows[0].ci[0] > rows[1].ci[1]
    assert all(row.ci[0] < row.loss < row.ci[1] for row in rows)
    scores = [fold.x @ WEIGHT for fold in (judged(0), judged(1))]
    plain = [-count_log_prob(z, fold.observed) for z, fold in zip(scores, (judged(0), judged(1)), strict=True)]
    assert nll == pytest.approx(np.concatenate(plain).mean(), abs=0.01)  # the line is fitted to the counts


def test_a_feature_that_nobody_looks_at_has_no_importance_at_all():
    fold = judged(2)
    _, rows = permutation_importance([fold], [FeatureGroup("none", slice(2, 3))], np.random.default_rng(0), 2, 0.9)
    assert (rows[0].loss, rows[0].ci) == (0.0, (0.0, 0.0))


def test_the_interval_covers_the_loss_of_all_tuples():
    """Over 60 samples of tuples; the truth is that of a sample forty times as large. 95 % nominal."""
    big = judged(99, 24_000)
    _, (truth,) = permutation_importance([big], GROUPS[1:2], np.random.default_rng(0), 5, 0.95)
    inside = 0
    for seed in range(60):
        _, (row,) = permutation_importance([judged(seed, 300)], GROUPS[1:2], np.random.default_rng(seed), 5, 0.95)
        inside += row.ci[0] < truth.loss < row.ci[1]
    assert inside >= 50
