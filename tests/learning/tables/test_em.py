"""EM with scikit-learn classifiers: soft labels, their fixed point, and the spread of natural groups."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from synthetic import natural_groups, table

from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.learning.tables.em import em, fit_estimator, soft_labels
from ntmp_cli.learning.tables.linear import constant_model, count_fit


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_without_spread_soft_labels_are_the_posterior_by_enumeration() -> None:
    z = np.array([-1.0, 0.3, 2.0, 0.5])
    p = expit(z)
    outcomes = np.array([y for y in itertools.product([0, 1], repeat=4) if sum(y) == 2])
    weights = np.prod(np.where(outcomes == 1, p, 1 - p), axis=1)
    expected = weights @ outcomes / weights.sum()
    observed = CountObservations(np.array([4]), np.array([2]))
    assert soft_labels(z, CountObjective(observed)) == pytest.approx(expected, abs=1e-12)


def test_an_intercept_takes_what_a_whole_tuple_has_in_common() -> None:
    """All members alike: without spread they would follow their own count, with a large one hardly."""
    observed = CountObservations(np.array([20, 20]), np.array([16, 4]))
    plain, spread = (soft_labels(np.zeros(40), CountObjective(observed, tau)) for tau in (0.0, 3.0))
    assert plain[[0, 20]] == pytest.approx([0.8, 0.2])
    assert np.abs(spread - 0.5).max() < 0.05


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_em_with_logistic_regression_ends_at_the_penalised_likelihood(spread: float) -> None:
    """Its fixed point is where L-BFGS on the likelihood, with the intercepts integrated out, ends as well."""
    data = natural_groups(60, 8, 1.0)
    *_, fitted = em(LogisticRegression(C=0.5, tol=1e-8), data, 20, spread)
    exact = count_fit(data.x, data.objective(spread), 2.0, constant_model(3, data.rate))
    assert fitted.coef_[0] == pytest.approx(exact.weight, abs=2e-3)
    assert fitted.intercept_[0] == pytest.approx(exact.bias, abs=2e-3)


def test_natural_groups_get_the_spread_of_the_other_learners() -> None:
    fitted = fit_estimator(natural_groups(200, 10, 1.5), LogisticRegression(), rng())
    assert fitted.spread == pytest.approx(1.5, abs=0.5)
    assert fitted.scorer.slope == pytest.approx(1, abs=0.3)


def test_random_groups_have_none() -> None:
    assert fit_estimator(table(np.full(100, 6)).data, LogisticRegression(), rng()).spread == 0
