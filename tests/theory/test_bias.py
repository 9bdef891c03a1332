"""Biases of wrong priors and wrong counts, held against populations on a few points."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from design_strategies import PRIORS, designs, fitted_class_means
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.theory.bias import (
    count_bound,
    largest_bias,
    largest_prior_bias,
    misfiled_bias,
    prior_bound,
    reach_of_proxy,
    shifted_bias,
    shrunk_prior,
    sub_gaussian_reach,
)
from ntmp_cli.theory.recorded_counts import recorded_strata
from ntmp_cli.theory.strata import Design, Groups, Stratum

ERRORS = st.floats(-0.2, 0.2)


def bias_of(groups: Groups, true_rates: np.ndarray, plus: np.ndarray, minus: np.ndarray, losses: np.ndarray) -> float:
    """R̃ − R of the weights of `groups` where the rates are really `true_rates`: losses (2, points) of ℓ₊ and ℓ₋."""
    densities = true_rates[:, None] * plus + (1 - true_rates)[:, None] * minus
    fitted = fitted_class_means(groups, densities)
    prior = groups.prior
    risk = prior * fitted[0] @ losses[0] + (1 - prior) * fitted[1] @ losses[1]
    return float(risk - true_rates[-1] * plus @ losses[0] - (1 - true_rates[-1]) * minus @ losses[1])


@settings(deadline=None, max_examples=150)
@given(designs(), st.integers(0, 2**31), st.floats(0, 0.2))
def test_no_population_has_a_larger_bias(design: Design, seed: int, reach: float) -> None:
    groups, rng = design.stratified(), np.random.default_rng(seed)
    assume(groups.spread > 1e-4)
    errors = rng.uniform(-reach, reach, len(groups.rates))
    plus, minus = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    losses = rng.choice([0, 1, rng.random()], (2, 4))
    measured = bias_of(groups, groups.rates + errors, plus, minus, losses)
    assert abs(measured) <= largest_bias(groups, errors) * (1 + 1e-7) + 1e-9


@settings(deadline=None, max_examples=100)
@given(designs(), st.integers(0, 2**31))
def test_classes_that_do_not_overlap_reach_it(design: Design, seed: int) -> None:
    groups, rng = design.stratified(), np.random.default_rng(seed)
    assume(groups.spread > 1e-3)
    errors = rng.uniform(-0.1, 0.1, len(groups.rates))
    plus, minus = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    corners = [np.array(corner, dtype=float).reshape(2, 2) for corner in product([0, 1], repeat=4)]
    worst = max(abs(bias_of(groups, groups.rates + errors, plus, minus, losses)) for losses in corners)
    assert largest_bias(groups, errors) == pytest.approx(worst, rel=1e-6, abs=1e-9)


@given(PRIORS, st.integers(2, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), ERRORS)
def test_one_stratum_and_a_wrong_prior_have_the_closed_form_within_the_papers_bound(
    prior: float, tuple_: tuple[int, int], error: float
) -> None:
    n, m = tuple_
    alpha = m / n
    assume(abs(prior - alpha) > 1e-3)
    groups = Design((Stratum(n, m, 700),), 900, prior).stratified()
    bias = largest_prior_bias(groups, error)
    assert bias == pytest.approx(abs(error) * (prior * (1 - alpha) + (1 - prior) * alpha) / abs(prior - alpha))
    # π̂ is trained with; the prior is π̂ + error, and δ = −error.
    bound = prior_bound(alpha, prior + error, -error)
    assert bound is None or bias <= bound * (1 + 1e-9)


@given(PRIORS, st.integers(0, 6), ERRORS, st.integers(0, 2**31))
def test_the_papers_prior_bound_holds_for_its_own_plug_in(prior: float, m: int, error: float, seed: int) -> None:
    """Theorem (misspecified class prior), whose risk keeps the true π in front of the wrong class means."""
    alpha, wrong = m / 6, prior + error
    assume(0 < wrong < 1 and abs(wrong - alpha) > 1e-3)
    rng = np.random.default_rng(seed)
    plus, minus, losses = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3)), rng.random((2, 3))
    p_u, p_t = prior * plus + (1 - prior) * minus, alpha * plus + (1 - alpha) * minus
    hat_plus = ((1 - alpha) * p_u - (1 - wrong) * p_t) / (wrong - alpha)
    hat_minus = (-alpha * p_u + wrong * p_t) / (wrong - alpha)
    measured = prior * (hat_plus - plus) @ losses[0] + (1 - prior) * (hat_minus - minus) @ losses[1]
    bound = prior_bound(alpha, prior, error)
    assert bound is None or abs(measured) <= bound + 1e-12


@given(PRIORS, st.integers(0, 6), ERRORS)
def test_the_papers_prior_bound_has_the_least_distance_of_the_theorem(prior: float, m: int, error: float) -> None:
    alpha = m / 6
    assume(0 < prior + error < 1)
    between = np.linspace(prior, prior + error, 10_001) - alpha
    gamma = float(np.abs(between).min())
    assume(gamma > 1e-3 or between[0] * between[-1] < 0)
    crosses = between[0] * between[-1] <= 0
    assert prior_bound(alpha, prior, error) == (None if crosses else pytest.approx(2 * abs(error) / gamma**2))


@given(PRIORS, st.integers(0, 6), ERRORS, st.integers(0, 2**31))
def test_the_papers_count_bound_holds(prior: float, m: int, error: float, seed: int) -> None:
    """Theorem (random count misspecification), for every realisation of α̂."""
    alpha = m / 6
    wrong = alpha + error
    assume(abs(prior - wrong) > 1e-3)
    rng = np.random.default_rng(seed)
    plus, minus, losses = rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(3)), rng.random((2, 3))
    p_u, p_t = prior * plus + (1 - prior) * minus, alpha * plus + (1 - alpha) * minus
    hat_plus = ((1 - wrong) * p_u - (1 - prior) * p_t) / (prior - wrong)
    hat_minus = (-wrong * p_u + prior * p_t) / (prior - wrong)
    measured = prior * (hat_plus - plus) @ losses[0] + (1 - prior) * (hat_minus - minus) @ losses[1]
    bound = count_bound(alpha, prior, abs(error))
    assert bound is None or abs(measured) <= bound + 1e-12


def test_a_prior_error_that_reaches_the_rate_has_no_bound() -> None:
    assert prior_bound(1 / 3, 0.4, -0.0667) is None
    assert prior_bound(1 / 3, 0.4, -0.05) == pytest.approx(2 * 0.05 / (0.4 - 1 / 3 - 0.05) ** 2)


def test_a_prior_error_that_points_away_from_the_rate_keeps_its_distance() -> None:
    assert prior_bound(1 / 3, 0.5, 0.02) == pytest.approx(1.44)
    assert prior_bound(1 / 3, 0.5, -0.02) == pytest.approx(0.04 / (0.5 - 1 / 3 - 0.02) ** 2)
    assert prior_bound(2 / 3, 0.5, -0.02) == pytest.approx(1.44)


@settings(deadline=None, max_examples=60)
@given(st.integers(3, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), st.data())
def test_the_shrunk_prior_of_one_stratum_is_that_of_the_closed_form(
    tuple_: tuple[int, int], data: st.DataObject
) -> None:
    """Of priors s above α the worst bias is (e−d+s)(A/s + 1−2α), A = 2α(1−α), with d that of the estimate."""
    n, m = tuple_
    alpha = m / n
    estimate = data.draw(st.floats(alpha + 0.01, min(alpha + 0.3, 0.97)))
    error = data.draw(st.floats(0.005, 0.3))
    away, a = estimate - alpha, 2 * alpha * (1 - alpha)

    def worst(s: float) -> float:
        return (error - away + s) * (a / s + 1 - 2 * alpha)

    farthest = min(away + error, 1 - 1e-3 - alpha)
    stationary = np.sqrt((error - away) * a / (1 - 2 * alpha)) if error > away and alpha < 0.5 else np.inf
    best = float(np.clip(stationary, away, farthest)) if error > away else min((away, farthest), key=worst)
    shrunk = shrunk_prior(Design((Stratum(n, m, 400),), 900, estimate), error)
    if shrunk is None:
        assert worst(away) <= worst(best) * (1 + 1e-3)
    else:
        assert shrunk.worst_bias_of_estimate == pytest.approx(worst(away))
        assert shrunk.worst_bias == pytest.approx(worst(best), rel=1e-3)
        # Exchanging the classes mirrors everything.
        mirrored = shrunk_prior(Design((Stratum(n, n - m, 400),), 900, 1 - estimate), error)
        assert mirrored.prior == pytest.approx(1 - shrunk.prior, abs=1e-9)


def test_no_prior_of_the_interval_has_a_larger_bias_than_the_shrunk_one_promises() -> None:
    design = Design((Stratum(3, 1, 400), Stratum(5, 2, 20)), 900, 0.38)
    shrunk = shrunk_prior(design, 0.12)
    plus, minus = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    corners = [np.array(corner, dtype=float).reshape(2, 2) for corner in product([0, 1], repeat=4)]

    def worst(trained: float) -> float:
        groups = design.at(trained).stratified()
        rates = [np.array([*groups.rates[:-1], true]) for true in np.linspace(0.26, 0.5, 25)]
        return max(abs(bias_of(groups, true, plus, minus, losses)) for true in rates for losses in corners)

    assert worst(shrunk.prior) == pytest.approx(shrunk.worst_bias, rel=1e-6)
    assert worst(design.prior) == pytest.approx(shrunk.worst_bias_of_estimate, rel=1e-6)
    assert shrunk.worst_bias < 0.8 * shrunk.worst_bias_of_estimate
    assert shrunk.prior > design.prior
    assert shrunk_prior(design, 0.02) is None  # these priors do not reach the rates


def test_the_reach_of_a_variance_proxy_holds_for_normal_errors_on_both_sides() -> None:
    errors = np.random.default_rng(0).normal(0, 0.03, 200_000)
    for confidence in (0.6, 0.95):
        assert (np.abs(errors) <= reach_of_proxy(0.03, confidence)).mean() >= confidence
    # A random sign is sub-Gaussian with v = 1 and always 1 away: log(1/δ), as the corollary writes it, is too short.
    assert reach_of_proxy(1.0, 0.35) >= 1 > np.sqrt(2 * np.log(1 / 0.65))


def test_counts_within_epsilon_have_no_bound_where_they_reach_the_prior() -> None:
    assert count_bound(1 / 3, 0.4, 1 / 3, 0.01) is None


NOISY = Design((Stratum(3, 1, 40_000), Stratum(4, 4, 20_000)), 90_000, 0.6)


def drawn_with_noise(noise: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    n = np.repeat([s.n for s in NOISY.strata], [int(s.tuples) for s in NOISY.strata])
    m = np.repeat([s.m for s in NOISY.strata], [int(s.tuples) for s in NOISY.strata])
    return n, m, OffByOne(noise).sample(m, n, rng)


def test_noisy_counts_bias_stratified_training_by_what_simulated_records_say() -> None:
    n, m, seen = drawn_with_noise(0.15)
    kinds = sorted(set(zip(n.tolist(), seen.tolist(), strict=True)))
    at = [(n == a) & (seen == b) for a, b in kinds]
    groups = Groups(
        np.array([*(n[rows].sum() for rows in at), NOISY.unlabeled], dtype=float),
        np.array([*(b / a for a, b in kinds), NOISY.prior]),
    )
    true = np.array([*((m[rows] / n[rows]).mean() for rows in at), NOISY.prior])
    plus, minus = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    corners = [np.array(corner, dtype=float).reshape(2, 2) for corner in product([0, 1], repeat=4)]
    worst = max(abs(bias_of(groups, true, plus, minus, losses)) for losses in corners)
    expected = misfiled_bias(recorded_strata(NOISY.strata, 0.15), NOISY.unlabeled, NOISY.prior)
    assert expected > 0.03
    assert expected == pytest.approx(worst, rel=0.03)


def test_noisy_counts_shift_the_mean_rate_only_where_tuples_are_pure() -> None:
    n, m, seen = drawn_with_noise(0.15)
    noisy, true = float((seen / n).mean()), float((m / n).mean())
    assert noisy < true - 0.005  # 4 of 4 can only be recorded lower
    bias = shifted_bias(recorded_strata(NOISY.strata, 0.15), NOISY.unlabeled, NOISY.prior)
    expected = 2 * NOISY.prior * (1 - NOISY.prior) * (true - noisy) / abs(NOISY.prior - noisy)
    assert bias == pytest.approx(expected, rel=0.1)
    mixed = recorded_strata((Stratum(3, 1, 500.0),), 0.15)
    assert shifted_bias(mixed, 1000, 0.6) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_the_mean_of_noisy_counts_stays_within_its_sub_gaussian_reach(confidence: float) -> None:
    small = Design((Stratum(3, 1, 30), Stratum(5, 2, 10)), 50, 0.5)
    n = np.repeat([3, 5], [30, 10])
    m, rng = np.repeat([1, 2], [30, 10]), np.random.default_rng(3)
    away = np.array([(OffByOne(0.9).sample(m, n, rng) - m) / n for _ in range(3000)]).mean(axis=1)
    reach = sub_gaussian_reach(small, confidence)
    assert (np.abs(away) <= reach).mean() >= confidence
    assert reach < 1 / 3  # far less than the count of one tuple may be off
    proxy = math.sqrt(30 / 9 + 10 / 25) / 40
    assert reach == pytest.approx(proxy * math.sqrt(2 * math.log(2 / (1 - confidence))))
