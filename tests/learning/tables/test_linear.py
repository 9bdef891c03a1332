"""The linear learner: against other optimisers, its path of penalties, weights of tuples."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from synthetic import table

from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_log_prob
from ntmp_cli.learning.tables.linear import (
    constant_model,
    count_fit,
    count_path,
    logistic_fit,
    oriented_line,
    recalibrated,
    soft_label_fit,
)

SIZES = np.tile([3, 4, 6], 20)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_count_fit_is_the_optimum_that_an_optimiser_without_gradients_reaches(spread: float) -> None:
    data = table(SIZES).data
    x, objective, penalty = data.standardisation(data.x)[:, :2], data.objective(spread), 3.0

    def loss(at: np.ndarray) -> float:
        return -float(objective.log_prob(at[0] + x @ at[1:]).sum()) + penalty / 2 * float(at[1:] @ at[1:])

    expected = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-8})
    model = count_fit(x, objective, penalty, constant_model(2, data.rate))
    assert [model.bias, *model.weight] == pytest.approx(expected.x, abs=2e-3)


def test_tuples_of_one_are_logistic_regression() -> None:
    """A count of a single member is its label."""
    drawn = table(np.ones(200, dtype=np.int64))
    x = drawn.data.standardisation(drawn.data.x)[:, :3]
    expected = LogisticRegression(C=1 / 5.0, tol=1e-8, max_iter=1000).fit(x, drawn.labels)
    start = constant_model(3, 0.5)
    for model in (count_fit(x, drawn.data.objective(), 5.0, start), logistic_fit(x, drawn.labels.astype(float), 5.0)):
        assert model.weight == pytest.approx(expected.coef_[0], abs=1e-3)
        assert model.bias == pytest.approx(expected.intercept_[0], abs=1e-3)


def test_path_equals_single_fits_and_shrinks_with_the_penalty() -> None:
    data = table(SIZES).data
    x, objective = data.standardisation(data.x), data.objective()
    start = soft_label_fit(x, objective, 10.0)
    path = dict(count_path(x, objective, [1.0, 100.0, 10.0], start))
    assert list(path) == [100.0, 10.0, 1.0]
    norms = [float(np.linalg.norm(model.weight)) for model in path.values()]
    assert norms == sorted(norms)
    alone = count_fit(x, objective, 10.0, start)
    assert path[10.0].weight == pytest.approx(alone.weight, abs=1e-2)


def test_a_tuple_of_weight_two_counts_as_two_tuples() -> None:
    sizes, counts = np.array([3, 4, 5, 3]), np.array([1, 3, 2, 0])
    x = np.random.default_rng(0).normal(size=(15, 2))
    twice = CountObjective(CountObservations(np.append(sizes, sizes[0]), np.append(counts, counts[0])))
    weighted = CountObjective(CountObservations(sizes, counts), weights=np.array([2.0, 1, 1, 1]))
    start = constant_model(2, 0.4)
    expected = count_fit(np.concatenate([x, x[:3]]), twice, 1.0, start)
    model = count_fit(x, weighted, 1.0, start)
    assert model.weight == pytest.approx(expected.weight, abs=1e-3)
    assert soft_label_fit(x, weighted, 1.0).weight == pytest.approx(
        soft_label_fit(np.concatenate([x, x[:3]]), twice, 1.0).weight, abs=1e-3
    )


def test_counts_tell_more_than_soft_labels() -> None:
    drawn = table(np.full(300, 8))
    x, test = drawn.data.standardisation(drawn.data.x), drawn.data.standardisation(drawn.test_x)
    soft = soft_label_fit(x, drawn.data.objective(), 1.0)
    model = count_fit(x, drawn.data.objective(), 1.0, soft)
    # Blurred labels shrink the log-odds; the likelihood of counts does not.
    assert model.weight[:2] == pytest.approx([1.5, -1.0], abs=0.35)
    assert np.abs(soft.weight[:2]).max() < 0.5
    single = CountObservations(np.ones(len(test)), drawn.test_labels)
    assert count_log_prob(model.scores(test), single).mean() > count_log_prob(soft.scores(test), single).mean()


def test_a_strong_penalty_ends_at_its_centre() -> None:
    data = table(SIZES).data
    x, objective = data.standardisation(data.x), data.objective()
    centre = np.array([0.5, -0.25, 0.0, 0.0])
    start = constant_model(4, data.rate)
    assert count_fit(x, objective, 1e6, start, centre).weight == pytest.approx(centre, abs=1e-3)
    assert count_fit(x, objective, 1e6, start).weight == pytest.approx(np.zeros(4), abs=1e-3)


def test_recalibration_keeps_the_direction_and_raises_the_likelihood() -> None:
    data = table(SIZES).data
    x, objective = data.standardisation(data.x), data.objective()
    soft = soft_label_fit(x, objective, 1.0)
    model = recalibrated(soft, x, objective)
    ratio = model.weight[:3] / soft.weight[:3]
    assert ratio == pytest.approx(np.full(3, ratio[0]))
    assert ratio[0] > 1
    assert objective.log_prob(model.scores(x)).sum() > objective.log_prob(soft.scores(x)).sum()


def test_scores_that_point_the_wrong_way_say_nothing_instead_of_being_turned_around() -> None:
    """The line is then the best constant: with labels, the log-odds of their share."""
    labels = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    objective = CountObjective(CountObservations(np.ones(8, dtype=np.int64), labels))
    z = np.array([0.0, -1.0, -2.0, 2.0, 1.0, -1.0, 0.5, 0.0])
    line = oriented_line(z, objective)
    assert line.weight.tolist() == [0.0]
    assert line.bias == pytest.approx(np.log(3 / 5), abs=1e-3)
    assert oriented_line(-z, objective).weight[0] > 0.5
