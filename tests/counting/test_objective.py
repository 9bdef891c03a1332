"""The objective of learners for tables: against enumeration, numerical integration and numerical derivatives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import simpson
from scipy.special import expit
from scipy.stats import norm

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.objective import CountObjective, conditional_slope
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_law, count_log_prob
from ntmp_cli.counting.presence import presence_moments, presence_of_odds
from ntmp_cli.counting.recorded import records

Floats = NDArray[np.float64]

SIZES, COUNTS = [1, 2, 3, 5], [1, 0, 2, 1]
NOISE = pytest.mark.parametrize("noise", [0.0, 0.2])
SPREADS = pytest.mark.parametrize("spread", [0.0, 0.4, 1.0])


def scores(instances: int) -> Floats:
    return np.random.default_rng(instances).normal(-0.3, 1.5, instances)


def enumerated(z: Floats, recorded: int, noise: float) -> Floats:
    """P(recorded count | z) for scores of shape (…, n): the sum over all labels of the tuple's members."""
    labels = np.array(list(product([0, 1], repeat=z.shape[-1])))
    seen = count_noise(noise).likelihood(np.array(recorded), labels.sum(axis=1), z.shape[-1])
    p = expit(z)[..., None, :]
    probability: Floats = np.where(labels == 1, p, 1 - p).prod(axis=-1) @ seen
    return probability


def integrated(law: Callable[[Floats], Floats], z: Floats, spread: float) -> float:
    """∫ P(observation | z + b) N(b; 0, τ²) db by Simpson's rule with narrow steps."""
    b = np.linspace(-9 * spread, 9 * spread, 2001)
    return float(simpson(law(z + b[:, None]) * norm.pdf(b, scale=spread), x=b))


@NOISE
@SPREADS
def test_log_probabilities_equal_the_integral_over_all_labels(spread: float, noise: float) -> None:
    observed = CountObservations(SIZES, COUNTS, count_noise(noise))
    z = scores(observed.instances)
    tuples = np.split(z, np.cumsum(SIZES)[:-1])
    laws = [partial(enumerated, recorded=m, noise=noise) for m in COUNTS]
    expected = [law(zt) if spread == 0 else integrated(law, zt, spread) for law, zt in zip(laws, tuples, strict=True)]
    assert CountObjective(observed, spread).log_prob(z) == pytest.approx(np.log(expected), abs=3e-5)


@pytest.mark.parametrize("counts", [[3, 90], [0, 100], [30, 40]])
@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_quadrature_follows_the_narrow_integrands_of_long_tuples(spread: float, counts: list[int]) -> None:
    """Nodes at fixed places would miss a mode of width 0.2 that is several standard deviations away."""
    observed = CountObservations([30, 100], counts)
    z = scores(130)
    for t, rows in enumerate((slice(0, 30), slice(30, 130))):
        alone = CountObservations(observed.sizes[t : t + 1], observed.counts[t : t + 1])
        expected = integrated(lambda at, alone=alone: np.exp(count_log_prob(at, alone)[:, 0]), z[rows], spread)
        assert CountObjective(observed, spread).log_prob(z)[t] == pytest.approx(np.log(expected), abs=1e-3)


@NOISE
@SPREADS
def test_gradient_equals_differences_of_the_value(spread: float, noise: float) -> None:
    observed = CountObservations(SIZES, COUNTS, count_noise(noise))
    objective = CountObjective(observed, spread, weights=np.array([1.0, 0.5, 2.0, 3.0]))
    z, step = scores(observed.instances), 1e-5
    _, gradient = objective.value_and_gradient(z)
    for i, away in enumerate(step * np.eye(len(z))):
        above, below = (objective.value_and_gradient(z + sign * away)[0] for sign in (1, -1))
        assert gradient[i] == pytest.approx((above - below) / (2 * step), abs=3e-4)


@NOISE
@SPREADS
def test_value_is_the_weighted_sum_of_log_probabilities(spread: float, noise: float) -> None:
    observed, weights = CountObservations(SIZES, COUNTS, count_noise(noise)), np.array([1.0, 0.0, 2.0, 0.5])
    z = scores(observed.instances)
    value, gradient = CountObjective(observed, spread, weights).value_and_gradient(z)
    assert value == pytest.approx(weights @ CountObjective(observed, spread).log_prob(z))
    assert not gradient[1:3].any()  # members of the tuple of weight 0
    assert gradient[3:].all()


def test_no_spread_is_the_limit_of_small_spreads() -> None:
    observed = CountObservations(SIZES, COUNTS)
    z = scores(observed.instances)
    exact = CountObjective(observed).value_and_gradient(z)
    limit = CountObjective(observed, 1e-4).value_and_gradient(z)
    assert limit[0] == pytest.approx(exact[0], abs=1e-6)
    assert limit[1] == pytest.approx(exact[1], abs=1e-6)


@pytest.mark.parametrize("spread", [0.5, 3.0])
def test_extreme_scores_give_finite_values(spread: float) -> None:
    observed = CountObservations([3, 40], [3, 1])
    z = np.concatenate([[-800.0, -800.0, 5.0], np.full(40, 60.0)])
    objective = CountObjective(observed, spread)
    value, gradient = objective.value_and_gradient(z)
    assert np.isfinite(value)
    assert np.isfinite(gradient).all()
    assert value == pytest.approx(objective.log_prob(z).sum())


def test_curvature_is_that_of_known_labels() -> None:
    observed, weights = CountObservations([2, 1], [1, 1]), np.array([1.0, 3.0])
    z = np.array([0.0, 2.0, -1.0])
    expected = expit(z) * expit(-z)
    assert CountObjective(observed).curvature(z) == pytest.approx(expected)
    assert CountObjective(observed, weights=weights).curvature(z) == pytest.approx(expected * [1, 1, 3])


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0, 2.0])
def test_the_mean_over_intercepts_of_conditional_scores_has_the_slope_of_the_scores(spread: float) -> None:
    z = np.linspace(-5, 5, 41)
    at, weights = np.polynomial.hermite_e.hermegauss(80)
    mean = expit(conditional_slope(spread) * z + spread * at[:, None]).T @ (weights / weights.sum())
    assert mean == pytest.approx(expit(z), abs=0.012)


PRESENCE_SIZES = [1, 2, 3, 6, 1, 4]


def presence() -> CountObservations:
    """At least one positive, or none, in turns; the last tuples as labels."""
    low, high = [1, 0, 1, 1, 0, 0], [1, 0, 3, 6, 0, 0]
    return CountObservations(PRESENCE_SIZES, records(low, high))


@pytest.mark.parametrize("spread", [0.4, 1.0, 2.5])
def test_presence_under_an_intercept_equals_the_integral_over_all_labels(spread: float) -> None:
    observed = presence()
    assert observed.some is not None
    z = scores(observed.instances)
    laws = [lambda at, yes=yes: abs(yes - np.prod(expit(-at), axis=-1)) for yes in observed.some.tolist()]
    expected = [
        integrated(law, zt, spread) for law, zt in zip(laws, np.split(z, np.cumsum(PRESENCE_SIZES)[:-1]), strict=True)
    ]
    objective = CountObjective(observed, spread)
    assert objective.log_prob(z) == pytest.approx(np.log(expected), abs=1e-3)
    assert objective.by_tuple(z)[0] == pytest.approx(objective.log_prob(z), abs=1e-14)
    gradient, step = objective.value_and_gradient(z)[1], 1e-5
    for i, away in enumerate(step * np.eye(len(z))):
        above, below = (objective.value_and_gradient(z + sign * away)[0] for sign in (1, -1))
        assert gradient[i] == pytest.approx((above - below) / (2 * step), abs=3e-3)


@pytest.mark.parametrize("spread", [1.0, 2.5, 5.0])
@pytest.mark.parametrize("centre", [-6.0, 0.0, 8.0])
@pytest.mark.parametrize("is_some", [False, True])
def test_presence_in_large_tuples_under_large_spreads_is_the_integral(
    is_some: bool, centre: float, spread: float
) -> None:
    """With none among many likely members the mode is far from 0, and the steps to it are many."""
    z = np.random.default_rng(0).normal(centre, 3, 1002)
    observed = CountObservations([1000, 2], records([int(is_some), 1], [1000 * is_some, 2]))
    assert observed.some is not None

    def law(at: Floats) -> Floats:
        log_none = -np.logaddexp(0, at).sum(axis=-1)
        return -np.expm1(log_none) if is_some else np.exp(log_none)

    b = np.linspace(-40, 20, 12001)
    expected = simpson(np.array([law(z[:1000] + one) for one in b]) * norm.pdf(b, scale=spread), x=b)
    assert CountObjective(observed, spread).log_prob(z)[0] == pytest.approx(np.log(expected), abs=0.06)


def test_certain_scores_are_as_certain_under_an_intercept() -> None:
    observed = CountObservations([3, 3], records([1, 0], [3, 0]))
    for z in (np.repeat([-400.0, 400.0], 3), np.repeat([-310.0, 310.0], 3)):
        value, gradient = CountObjective(observed, 2.0).by_tuple(z)
        without, _ = CountObjective(observed).by_tuple(z)
        # E[e^b] = e^2 moves small probabilities by 2 nats; the sum of three members by 3b, of variance 36.
        assert value == pytest.approx(without + np.array([2, 18]), abs=0.5)
        assert gradient == pytest.approx(np.repeat([1 / 3, -1], 3), abs=1e-6)


def test_presence_at_given_odds_is_the_presence_of_scores() -> None:
    observed = presence()
    assert observed.some is not None
    z = 2 * scores(observed.instances)
    log_prob, gradient = presence_of_odds(np.exp(z), observed, observed.some)
    expected = count_gradient(z, observed)
    assert log_prob == pytest.approx(expected[0], abs=1e-13)
    assert gradient == pytest.approx(expected[1], abs=1e-13)


@pytest.mark.parametrize("shift", [0.0, -45.0, 45.0])
def test_moments_given_presence_are_those_of_the_enumeration(shift: float) -> None:
    observed = presence()
    assert observed.some is not None
    z = scores(observed.instances) + shift
    p = expit(z)
    mean, variance = (np.add.reduceat(of, observed.starts) for of in (p, p * (1 - p)))
    given, rest = presence_moments(p, mean, variance, observed, observed.some)
    for t, zt in enumerate(np.split(z, np.cumsum(PRESENCE_SIZES)[:-1])):
        k, law = np.arange(len(zt) + 1), count_law(zt)
        allowed = law * ((k > 0) == observed.some[t])
        expected = allowed @ k / allowed.sum()
        assert given[t] == pytest.approx(expected, abs=1e-9)
        assert rest[t] == pytest.approx(min(allowed @ (k - expected) ** 2 / allowed.sum(), variance[t]), abs=1e-9)
