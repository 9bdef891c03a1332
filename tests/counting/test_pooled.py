"""Tuples and a pool in one likelihood, against densities that are summed up by hand."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from scipy.special import logit
from scipy.stats import binom

from ntmp_cli.counting import recorded
from ntmp_cli.counting.laws import Exact, NoiseLaw, OffByOne
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient
from ntmp_cli.counting.pooled import PooledObjective

Floats = NDArray[np.float64]

# Features are one of four values, with these probabilities by class.
POSITIVE, NEGATIVE = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.1, 0.15, 0.25, 0.5])


def pooled(
    sizes: list[int],
    counts: list[int],
    rows: int,
    prior: float,
    weights: Floats | None = None,
    law: NoiseLaw | None = None,
) -> PooledObjective:
    observed = CountObservations(np.array(sizes), np.array(counts), law)
    objective = CountObjective(observed, weights=weights)
    by_tuple = np.ones(len(sizes)) if weights is None else weights
    return PooledObjective(objective, rows, prior, float(by_tuple @ counts / (by_tuple @ sizes)))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 0), (3, 1), (4, 4), (5, 2)])
def test_densities_of_tuples_and_pool_are_those_summed_over_labels(n: int, m: int) -> None:
    objective = pooled([n] * 3, [m] * 3, 7, 0.35)
    rho = objective.rate
    assert rho == pytest.approx((3 * m + 7 * 0.35) / (3 * n + 7))
    p = rho * POSITIVE + (1 - rho) * NEGATIVE
    z = np.log(rho * POSITIVE) - np.log((1 - rho) * NEGATIVE)
    x = np.random.default_rng(0).integers(0, 4, 3 * n + 7)
    logs = objective.log_prob(z[x])
    for t in range(3):
        members = x[t * n : (t + 1) * n]
        by_labels = [
            np.prod([(POSITIVE if label else NEGATIVE)[i] for label, i in zip(labels, members, strict=True)])
            for labels in product((0, 1), repeat=n)
            if sum(labels) == m
        ]
        density = np.mean(by_labels)  # Eq. 1
        assert logs[t] + np.log(p[members]).sum() - binom.logpmf(m, n, rho) == pytest.approx(np.log(density))
    pool = 0.35 * POSITIVE + 0.65 * NEGATIVE
    np.testing.assert_allclose(np.exp(logs[3:]) * p[x[3 * n :]], pool[x[3 * n :]])


@pytest.mark.parametrize(("low", "high"), [(0, 1), (1, 3), (2, 2)])
def test_the_density_of_a_range_is_at_the_rate_of_the_tuples(low: int, high: int) -> None:
    """Random tuples of which a range is recorded: a sum over the labels that it allows, at the rate of the tuples."""
    records = recorded.records(np.array([low, 0]), np.array([high, 2]), recorded.EXACT)
    rate, prior, members = 0.4, 0.8, np.array([0, 3, 1])
    objective = PooledObjective(CountObjective(CountObservations([3, 3], records)), 9, prior, rate)
    rho = objective.rate
    z = np.log(rho * POSITIVE) - np.log((1 - rho) * NEGATIVE)
    log_prob = objective.log_prob(np.concatenate([z[members], z[[2, 2, 0]], z[np.arange(9) % 4]]))[0]
    by_label = np.stack([(1 - rate) * NEGATIVE, rate * POSITIVE])
    density = sum(
        np.prod(by_label[list(labels), members]) for labels in product((0, 1), repeat=3) if low <= sum(labels) <= high
    )
    p = rho * POSITIVE + (1 - rho) * NEGATIVE
    constant = 3 * np.log((1 - rate) / (1 - rho))
    assert log_prob + constant + np.log(p[members]).sum() == pytest.approx(np.log(density))


def test_memberships_of_single_rows_sum_to_one() -> None:
    """Where tuples are labels: a row is a labelled positive, a labelled negative, or of the pool."""
    objective = pooled([1] * 5, [1, 1, 1, 0, 0], 11, 0.2)
    rho, s = objective.rate, np.linspace(0.01, 0.99, 9)
    of_pool = 11 / 16 * np.exp(objective.pool_log_prob(logit(s)))
    np.testing.assert_allclose(3 / 16 * s / rho + 2 / 16 * (1 - s) / (1 - rho) + of_pool, 1)


@pytest.mark.parametrize("law", [Exact(), OffByOne(0.1)])
@pytest.mark.parametrize("weights", [None, np.array([2.0, 0.5, 1.0])])
def test_gradient_is_the_derivative(law: NoiseLaw, weights: Floats | None) -> None:
    objective = pooled([3, 1, 4], [1, 1, 2], 5, 0.7, weights, law)
    z = np.random.default_rng(1).normal(0, 2, 13)
    value, gradient = objective.value_and_gradient(z)
    expected = approx_fprime(z, lambda at: objective.value_and_gradient(at)[0], 1e-7)
    np.testing.assert_allclose(gradient, expected, atol=1e-5)
    by_unit = np.ones(8) if weights is None else np.concatenate([weights, np.ones(5)])
    assert value == pytest.approx(by_unit @ objective.log_prob(z))
    assert objective.curvature(z).shape == z.shape


def test_a_pool_at_the_rate_of_the_tuples_says_nothing() -> None:
    objective = pooled([4, 2], [1, 2], 6, 0.5)
    z = np.random.default_rng(2).normal(0, 3, 12)
    np.testing.assert_allclose(objective.value_and_gradient(z)[1][6:], 0, atol=1e-15)
    np.testing.assert_allclose(objective.pool_log_prob(z), 0, atol=1e-12)


@dataclass(frozen=True)
class Membership(NoiseLaw):
    """The likelihood of a label of a pool row, as a law of the count of one member."""

    of_negative: float
    of_positive: float

    def likelihood(self, recorded: Floats | NDArray[np.int64], k: NDArray[np.int64], n: object) -> Floats:
        return np.where(k == 1, self.of_positive, self.of_negative) + 0.0 * recorded

    def sample(self, counts: NDArray[np.int64], sizes: NDArray[np.int64], rng: np.random.Generator) -> Floats:
        raise NotImplementedError


def test_a_pool_row_is_a_tuple_of_one_member() -> None:
    objective = pooled([1] * 4, [1] * 4, 6, 0.3)
    rho, z = objective.rate, np.random.default_rng(3).normal(0, 3, 6)
    law = Membership(0.7 / (1 - rho), 0.3 / rho)
    log_prob, gradient = count_gradient(z, CountObservations(np.ones(6, int), np.zeros(6, int), law))
    np.testing.assert_allclose(objective.pool_log_prob(z), log_prob, atol=1e-12)
    np.testing.assert_allclose(objective.value_and_gradient(np.concatenate([np.zeros(4), z]))[1][4:], gradient)


def test_a_weight_of_two_is_a_tuple_that_comes_twice() -> None:
    weighted, twice = pooled([3, 2], [1, 2], 4, 0.2, np.array([2.0, 1.0])), pooled([3, 3, 2], [1, 1, 2], 4, 0.2)
    assert weighted.rate == pytest.approx(twice.rate)
    z = np.random.default_rng(4).normal(0, 1, 9)
    again = np.concatenate([z[:3], z])
    assert weighted.value_and_gradient(z)[0] == pytest.approx(twice.value_and_gradient(again)[0])


def test_scores_without_bounds_have_finite_values() -> None:
    objective = pooled([1], [1], 2, 0.4)
    value, gradient = objective.value_and_gradient(np.array([800.0, 900.0, -900.0]))
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
