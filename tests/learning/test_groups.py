from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from ntmp_cli.learning.groups import (
    class_weights,
    effective_gap,
    moments,
    normalised_gap,
    rate_shift,
    signal_to_noise,
    usable_rate,
)

# (instances, n, m) of a group; the rate is m/n.
GROUPS = st.lists(
    st.tuples(st.integers(1, 5000), st.integers(1, 12)).flatmap(
        lambda g: st.tuples(st.just(g[0]), st.just(g[1]), st.integers(0, g[1]))
    ),
    min_size=2,
    max_size=7,
)


def sizes_and_rates(groups: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([float(g[0]) for g in groups]), np.array([g[2] / g[1] for g in groups])


def distinct(rates: np.ndarray) -> bool:
    return float(np.ptp(rates)) > 0


@settings(deadline=None, max_examples=100)
@given(GROUPS)
def test_the_weights_make_both_class_means_unbiased(groups: list[tuple[int, int, int]]) -> None:
    sizes, rates = sizes_and_rates(groups)
    assume(distinct(rates))
    plus, minus = class_weights(sizes, rates)
    scale = 1e-12 * max(1.0, np.abs(plus).sum(), np.abs(minus).sum())
    assert plus @ rates == pytest.approx(1, abs=scale)
    assert plus @ (1 - rates) == pytest.approx(0, abs=scale)
    assert minus @ rates == pytest.approx(0, abs=scale)
    assert minus @ (1 - rates) == pytest.approx(1, abs=scale)


@pytest.mark.parametrize(
    ("sizes", "rates"),
    [([1, 2965], [1.0, 8 / 9]), ([1, 10**6], [1.0, 8 / 9]), ([3, 10**5, 7], [1 / 3, 0.3, 0.31])],
)
def test_very_unequal_groups_lose_no_digits(sizes: list[int], rates: list[float]) -> None:
    """The textbook formula is off by 1e-11 to 5e-9 here."""
    plus, minus = class_weights(sizes, rates)
    theta = np.array(rates)
    sums = [plus @ theta, plus @ (1 - theta), minus @ theta, minus @ (1 - theta)]
    assert sums == pytest.approx([1, 0, 0, 1], abs=2e-14)


@settings(deadline=None, max_examples=100)
@given(GROUPS)
def test_the_weights_are_the_least_norm_solution_of_the_constraints(groups: list[tuple[int, int, int]]) -> None:
    """min Σw²/N s.t. A w = b is, with v = w/√N, the least-norm solution that the pseudo-inverse gives."""
    sizes, rates = sizes_and_rates(groups)
    assume(distinct(rates))
    constraints = np.stack([rates, 1 - rates]) * np.sqrt(sizes)
    expected = np.sqrt(sizes)[:, None] * np.linalg.lstsq(constraints, np.eye(2), rcond=None)[0]
    plus, minus = class_weights(sizes, rates)
    scale = np.abs(expected).max()
    assert np.allclose(plus, expected[:, 0], rtol=1e-8, atol=1e-9 * scale)
    assert np.allclose(minus, expected[:, 1], rtol=1e-8, atol=1e-9 * scale)


@settings(deadline=None, max_examples=60)
@given(GROUPS, st.integers(0, 2**32))
def test_no_other_unbiased_weights_have_less_variance(groups: list[tuple[int, int, int]], seed: int) -> None:
    sizes, rates = sizes_and_rates(groups)
    assume(distinct(rates) and len(groups) > 2)
    constraints = np.stack([rates, 1 - rates])
    # A random direction that changes neither constraint.
    direction = np.random.default_rng(seed).standard_normal(len(groups))
    direction -= np.linalg.pinv(constraints) @ (constraints @ direction)
    assume(np.linalg.norm(direction) > 1e-6)
    for weights in class_weights(sizes, rates):
        best = np.sum(weights**2 / sizes)
        for step in (-1.0, -0.01, 0.01, 1.0):
            assert np.sum((weights + step * direction) ** 2 / sizes) > best * (1 - 1e-12)


def test_a_numerical_optimiser_finds_the_same_weights() -> None:
    sizes, rates = np.array([300.0, 120.0, 80.0, 500.0]), np.array([1 / 3, 2 / 3, 2 / 5, 0.5])
    for weights, (on_positive, on_negative) in zip(class_weights(sizes, rates), ((1, 0), (0, 1)), strict=True):
        optimum = minimize(
            lambda w: np.sum(w**2 / sizes),
            np.zeros(4),
            method="SLSQP",
            constraints=[
                {"type": "eq", "fun": lambda w, target=on_positive: w @ rates - target},
                {"type": "eq", "fun": lambda w, target=on_negative: w @ (1 - rates) - target},
            ],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert optimum.success
        assert np.allclose(optimum.x, weights, atol=1e-4)


def test_two_groups_have_the_weights_of_the_papers_identification_lemma() -> None:
    alpha, prior = 2 / 5, 0.7
    plus, minus = class_weights([150, 40], [alpha, prior])
    gap = prior - alpha
    assert np.allclose(plus, [-(1 - prior) / gap, (1 - alpha) / gap], atol=1e-14)
    assert np.allclose(minus, [prior / gap, -alpha / gap], atol=1e-14)


@settings(deadline=None, max_examples=100)
@given(GROUPS)
def test_moments_are_the_sums_over_groups(groups: list[tuple[int, int, int]]) -> None:
    sizes, rates = sizes_and_rates(groups)
    s0, s1, s2, d = moments(sizes, rates)
    assert s0 == sizes.sum()
    assert s1 == pytest.approx(sum(n * r for n, r in zip(sizes, rates, strict=True)), rel=1e-12)
    assert s2 == pytest.approx(sum(n * r * r for n, r in zip(sizes, rates, strict=True)), rel=1e-12)
    assert d == pytest.approx(s0 * s2 - s1**2, abs=1e-10 * s0**2)


@settings(deadline=None, max_examples=100)
@given(GROUPS)
def test_the_gap_is_the_spread_of_the_rate_over_all_instances(groups: list[tuple[int, int, int]]) -> None:
    sizes, rates = sizes_and_rates(groups)
    everyone = np.repeat(rates, sizes.astype(int))
    assert effective_gap(sizes, rates) == pytest.approx(everyone.std(), abs=1e-12)


def test_the_gap_of_two_equal_groups_is_half_the_distance_of_their_rates() -> None:
    assert effective_gap([70, 70], [0.2, 0.8]) == pytest.approx(0.3, abs=1e-15)


def test_a_tiny_spread_of_rates_is_not_lost_to_cancellation() -> None:
    """S₀S₂ − S₁² would be 0 or negative here."""
    _, _, _, d = moments([1000, 1000], [0.5, 0.5 + 1e-9])
    assert d == pytest.approx((2000 * 0.5e-9) ** 2, rel=1e-6)
    plus, _ = class_weights([1000, 1000], [0.5, 0.5 + 1e-9])
    assert np.allclose(plus, [-0.5e9, 0.5e9], rtol=1e-6)


@pytest.mark.parametrize("rates", [[0.5, 0.5], [1 / 3] * 4, [0.0, 0.0, 0.0], [1.0, 1.0], [0.1 + 0.2, 0.3], [0.4]])
def test_equal_rates_identify_nothing(rates: list[float]) -> None:
    sizes = np.arange(1, len(rates) + 1) * 17
    assert effective_gap(sizes, rates) < 1e-15
    with pytest.raises(ZeroDivisionError, match=r"^all groups have the same positive rate$"):
        class_weights(sizes, rates)


@pytest.mark.parametrize(("rate", "usable"), [(0.0, 0.05), (0.01, 0.05), (0.3, 0.3), (0.97, 0.95), (1.0, 0.95)])
def test_a_usable_rate_is_at_least_half_an_instance_away_from_both_ends(rate: float, usable: float) -> None:
    assert usable_rate(rate, 10) == pytest.approx(usable)
    assert rate_shift(0.2, rate, 10) == pytest.approx(np.log(0.2 / 0.8) - np.log(usable / (1 - usable)))
    assert usable_rate(rate, 0) == 0.5


@settings(deadline=None, max_examples=50)
@given(GROUPS)
def test_the_signal_to_noise_is_that_of_the_estimated_difference_of_a_perfect_score(
    groups: list[tuple[int, int, int]],
) -> None:
    sizes, rates = sizes_and_rates(groups)
    assume(distinct(rates))
    plus, minus = class_weights(sizes, rates)
    centre = float(sizes @ rates / sizes.sum())
    error = np.sqrt(((plus - minus) ** 2 / sizes).sum() * centre * (1 - centre))
    assert signal_to_noise(sizes, rates) == pytest.approx(1 / error, rel=1e-6)


@pytest.mark.parametrize("sizes", [[100.0, 100.0], [10.0, 990.0], [700.0, 3.0]])
def test_the_normalised_gap_of_one_stratum_is_the_distance_to_the_prior(sizes: list[float]) -> None:
    assert normalised_gap(sizes, [0.3, 0.8]) == pytest.approx(0.5)
    assert signal_to_noise(sizes, [1.0, 1.0]) == 0.0


def test_a_pool_of_the_rate_of_all_groups_has_no_signal_to_noise() -> None:
    assert signal_to_noise([40.0, 10.0], [0.0, 0.0]) == 0.0


def test_strata_of_one_rate_have_the_gap_of_their_union() -> None:
    assert normalised_gap([30.0, 50.0, 20.0], [0.3, 0.3, 0.8]) == pytest.approx(0.5)
