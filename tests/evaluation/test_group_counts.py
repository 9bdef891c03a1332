"""Counts of new groups: moments and quantiles against the law of the count."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from ntmp_cli.counting.large import LARGE
from ntmp_cli.evaluation.group_counts import count_moments, count_quantiles, probability_of_any

LEVELS = np.array([0.05, 0.5, 0.95])


def test_moments_are_those_of_the_binomial_and_grow_with_the_intercept() -> None:
    z, sizes = np.full(30, 0.4), np.array([10, 20])
    mean, sd = count_moments(z, sizes)
    p = expit(0.4)
    assert mean == pytest.approx(sizes * p)
    assert sd**2 == pytest.approx(sizes * p * (1 - p) + 0.25)
    assert (count_moments(z, sizes, 0.8)[1] > sd).all()


def test_the_probability_of_at_least_one_is_that_of_sampled_groups() -> None:
    rng, sizes = np.random.default_rng(7), np.array([1, 4, 9])
    z = rng.normal(-2, 1, int(sizes.sum()))
    none = [np.prod(expit(-part)) for part in np.split(z, np.cumsum(sizes)[:-1])]
    assert probability_of_any(z, sizes) == pytest.approx(1 - np.array(none))
    intercepts = 1.2 * rng.normal(size=(40_000, 1))
    sampled = [1 - np.prod(expit(-part - intercepts), axis=1).mean() for part in np.split(z, np.cumsum(sizes)[:-1])]
    assert probability_of_any(z, sizes, 1.2) == pytest.approx(sampled, abs=0.006)  # four standard errors
    rare = probability_of_any(np.full(3, -50.0), np.array([3]))
    assert rare == pytest.approx(3 * np.exp(-50.0), rel=1e-9)


def test_quantiles_are_those_of_the_law() -> None:
    sizes = np.array([5, 12, LARGE + 400])
    z = np.full(int(sizes.sum()), -0.3)
    found = count_quantiles(z, sizes, 0.0, LEVELS)
    for group, n in enumerate(sizes.tolist()):
        expected = stats.binom.ppf(LEVELS, n, expit(-0.3))
        assert found[group] == pytest.approx(expected, abs=0 if n <= LARGE else 1)


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.2])
@pytest.mark.parametrize("score", [-3.0, 0.4])
def test_quantiles_of_large_groups_go_on_where_those_of_small_ones_end(score: float, spread: float) -> None:
    """With an intercept of the group its count is skewed, however many members it has."""
    small, large = (count_quantiles(np.full(n, score), np.array([n]), spread, LEVELS)[0] for n in (LARGE, LARGE + 1))
    assert large == pytest.approx(small, abs=1)
    certain = count_quantiles(np.repeat([-500.0, 500.0], 200), np.array([400]), 0.0, LEVELS)[0]
    assert (certain == 200).all()
