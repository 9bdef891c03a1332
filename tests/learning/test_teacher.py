"""Another run as a teacher: its probabilities of single instances, and how it takes a network off its plateau."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import expit, logit

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.counting.recorded import records
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.teacher import Teacher, teacher_targets
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.tuple_source import ArraySource


def source(tuples: int = 60, seed: int = 0) -> ArraySource:
    """Positives are three above negatives in the first of four features."""
    rng = np.random.default_rng(seed)
    positive = np.concatenate([np.tile([1, 0, 0], tuples), rng.random(3 * tuples) < 0.5]).astype(bool)
    x = rng.normal(size=(len(positive), 4)).astype(np.float32)
    x[positive, 0] += 3
    return ArraySource(x[: 3 * tuples], np.full(tuples, 3), np.ones(tuples, np.int64), x[3 * tuples :])


def log_odds(raw: np.ndarray) -> np.ndarray:
    """At a prior of one half."""
    return 3 * (raw[:, 0].astype(float) - 1.5)


def config(**settings) -> TrainConfig:
    return TrainConfig(prior=0.5, model="mlp", warmup="teacher", teacher="run", **settings)


def test_targets_are_the_posteriors_given_the_counts_and_the_probabilities_at_the_prior():
    data = source()
    inside, outside = teacher_targets(config(), data, Teacher(log_odds, 0.5))
    expected = count_posterior(log_odds(data.tuples), CountObservations(data.sizes, data.counts))
    assert inside == pytest.approx(expected, abs=1e-6)
    assert inside.reshape(-1, 3).sum(axis=1) == pytest.approx(np.ones(60), abs=1e-5)
    assert outside == pytest.approx(expit(log_odds(data.unlabeled)), abs=1e-6)


def test_scores_of_a_teacher_at_another_prior_are_moved():
    data = source()
    at_half = teacher_targets(config(), data, Teacher(log_odds, 0.5))
    moved = teacher_targets(config(), data, Teacher(lambda raw: log_odds(raw) + float(logit(0.8)), 0.8))
    assert moved[0] == pytest.approx(at_half[0], abs=1e-6)
    assert moved[1] == pytest.approx(at_half[1], abs=1e-6)


def test_a_posterior_given_a_range_is_that_at_the_rate_of_the_tuples():
    """By adding up all labellings of three members at the rate of the tuples; the pool has another prior."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(9, 4)).astype(np.float32)
    counts = records([0, 1, 1], [1, 2, 3])
    data = ArraySource(x, np.full(3, 3), counts, rng.normal(size=(6, 4)).astype(np.float32))
    at_prior = TrainConfig(prior=0.9, model="mlp", warmup="teacher", teacher="run")
    inside, outside = teacher_targets(at_prior, data, Teacher(log_odds, 0.5))
    z = log_odds(x).reshape(3, 3) + logit(data.task.rate)
    expected = np.zeros((3, 3))
    for t, (low, high) in enumerate(((0, 1), (1, 2), (1, 3))):
        labellings = [y for y in itertools.product((0, 1), repeat=3) if low <= sum(y) <= high]
        weights = np.exp([np.dot(y, z[t]) for y in labellings])
        expected[t] = weights @ np.array(labellings) / weights.sum()
    assert inside == pytest.approx(expected.ravel(), abs=1e-6)
    assert outside == pytest.approx(expit(log_odds(data.unlabeled) + logit(0.9)), abs=1e-6)


def test_an_instance_that_is_used_again_is_scored_once():
    scored: list[int] = []

    def counted(raw: np.ndarray) -> np.ndarray:
        scored.append(len(raw))
        return log_odds(raw)

    raw = source().tuples
    teacher = Teacher(counted, 0.5)
    twice = teacher.log_odds(np.concatenate([raw, raw[:50]]), 0.5)
    assert twice == pytest.approx(log_odds(np.concatenate([raw, raw[:50]])))
    assert teacher.log_odds(raw[::-1], 0.5) == pytest.approx(log_odds(raw[::-1]))
    assert scored == [len(raw)]


def test_a_network_learns_what_its_teacher_says_while_it_warms_up():
    data = source(200)
    four = config(epochs=4, batch_size=60, self_training=0.0, trust="prior")
    trained = train_scorer(Training(four, data, teacher=Teacher(log_odds, 0.5)))
    # The cross-entropy with the teacher; over the second half of training the teacher has no weight.
    first, second, *rest = (record.fields["teacher"] for record in trained.outcome.records)
    assert 0 < second < first < 0.4  # a constant has at least 0.6
    assert rest == [0, 0]
    fresh = source(300, seed=5).tuples
    assert np.corrcoef(trained.scorer.score(fresh), log_odds(fresh))[0, 1] > 0.8


def test_the_weights_depend_on_what_the_teacher_says():
    one = config(epochs=1, batch_size=60, self_training=0.0, trust="prior")
    runs = [
        train_scorer(Training(one, source(), teacher=Teacher(lambda raw, side=side: side * log_odds(raw), 0.5)))
        for side in (1, 1, -1)
    ]
    weights = [run.outcome.weights["network.1.weight"].numpy() for run in runs]
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


def test_a_teacher_and_its_warm_up_need_each_other():
    data = source()
    for settings, message in (({"warmup": "teacher"}, "needs the run"), ({"teacher": "run"}, "has no effect")):
        with pytest.raises(UsageError, match=message):
            train_scorer(Training(TrainConfig(prior=0.5, model="mlp", **settings), data))
    with pytest.raises(UsageError, match="needs the run of a teacher"):
        train_scorer(Training(config(), data))
