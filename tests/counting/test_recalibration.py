"""The line under which counts are most probable, its derivatives, and the sign it gives."""

from __future__ import annotations

import numpy as np
import pytest
from brute_force import Floats

from ntmp_cli.counting import recalibration
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_log_prob
from ntmp_cli.counting.recalibration import Recalibration, line_derivatives, looks_mirrored, recalibrate


def simulated(n: int, m: int, tuples: int, a: float = 0.7, b: float = 0.4) -> tuple[Floats, CountObservations]:
    """Scores a·z + b of two unit Gaussians 3 apart, z their true log-odds at the tuples' rate."""
    rng = np.random.default_rng(0)
    positive = rng.permuted(np.tile(np.arange(n) < m, (tuples, 1)), axis=1).reshape(-1)
    x = rng.standard_normal(len(positive)) + 3 * (positive - 0.5)
    return a * (3 * x + np.log(m / (n - m))) + b, CountObservations(np.full(tuples, n), np.full(tuples, m))


def test_the_line_that_distorted_true_log_odds_is_undone() -> None:
    line = recalibrate(*simulated(5, 2, tuples=6000, a=0.5, b=0.8))
    assert line.slope == pytest.approx(1 / 0.5, rel=0.04)
    assert line.intercept == pytest.approx(-0.8 / 0.5, abs=0.08)


def test_no_line_of_a_grid_makes_the_counts_more_probable() -> None:
    z, observed = simulated(3, 1, tuples=300)
    line = recalibrate(z, observed)
    assert line.nll == pytest.approx(
        float(-count_log_prob(line.slope * z + line.intercept, observed).mean(axis=-1)), abs=1e-12
    )
    for a in np.linspace(0.3, 3, 28):
        for b in np.linspace(-2, 2, 21):
            assert float(-count_log_prob(a * z + b, observed).mean(axis=-1)) > line.nll - 1e-7


def test_the_slope_stays_below_its_limit() -> None:
    z, observed = simulated(5, 2, tuples=400, a=0.5)
    assert recalibrate(z, observed).slope > 1.5
    assert recalibrate(z, observed, steepest=0.0).slope == pytest.approx(1.0)
    certain = np.where(np.arange(9) % 3 == 0, 1.0, -1.0)
    assert recalibrate(certain / 100, CountObservations([3, 3, 3], [1, 1, 1])).slope == pytest.approx(np.exp(4))


def test_scores_that_are_no_numbers_have_no_line() -> None:
    slope, intercept, nll = recalibrate(np.array([0.0, np.nan, 1.0]), CountObservations([3], [1]))
    assert (slope, intercept) == (1, 0)
    assert np.isnan(nll)


def test_scores_that_say_nothing_are_not_mirrored() -> None:
    assert not looks_mirrored(np.zeros(9), CountObservations([3, 3, 3], [1, 2, 1]))


@pytest.mark.parametrize("spread", [0.0, 0.9])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_derivatives_of_every_tuple_equal_differences_of_its_log_probability(noise: float, spread: float) -> None:
    rng = np.random.default_rng(5)
    observed = CountObservations([3, 5, 2, 4], [1, 2, 2, 0], count_noise(noise))
    z, line = rng.normal(0, 2, observed.instances), Recalibration(0.8, -0.3, 0.0)
    first, second = line_derivatives(z, observed, line, spread)
    objective, steeper = CountObjective(observed, spread), np.sqrt(1 + 0.346 * spread**2)

    def log_prob(a: float, b: float) -> Floats:
        return objective.log_prob(steeper * (a * z + b))

    a, b, h = line.slope, line.intercept, 1e-4
    here = log_prob(a, b)
    by_a, by_b = log_prob(a + h, b) - log_prob(a - h, b), log_prob(a, b + h) - log_prob(a, b - h)
    assert first == pytest.approx(np.column_stack([by_a, by_b]) / (2 * h), abs=1e-3 if spread else 1e-6)
    corners = log_prob(a + h, b + h) - log_prob(a + h, b - h) - log_prob(a - h, b + h) + log_prob(a - h, b - h)
    expected = [
        (log_prob(a + h, b) - 2 * here + log_prob(a - h, b)) / h**2,
        corners / (4 * h**2),
        (log_prob(a, b + h) - 2 * here + log_prob(a, b - h)) / h**2,
    ]
    # Of an integral by quadrature, whose nodes move, the derivative is that of the integral itself.
    assert second == pytest.approx(np.column_stack(expected), abs=1e-2 if spread else 1e-5)


def test_mirrored_scores_are_recognised() -> None:
    z, observed = simulated(3, 1, tuples=200)
    assert not looks_mirrored(z, observed)
    assert looks_mirrored(-z, observed)


@pytest.mark.parametrize(("n", "m"), [(3, 1), (3, 2), (5, 1), (7, 2)])
def test_the_mirror_is_seen_in_the_likelihood_alone(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    labels = np.tile(np.arange(n) < m, (400, 1))
    z = (rng.normal(np.where(labels, 1.5, -1.5), 1.0)).astype(np.float32).reshape(-1)
    observed = CountObservations(np.full(400, n), np.full(400, m))
    assert not looks_mirrored(z, observed)
    assert looks_mirrored(-z, observed)


def test_both_signs_are_judged_under_the_law_of_the_observation(monkeypatch: pytest.MonkeyPatch) -> None:
    z, clean = simulated(3, 1, tuples=50)
    noisy = CountObservations(clean.sizes, clean.counts, count_noise(0.2))
    laws = []

    def watched(z: Floats, observed: CountObservations, spread: float = 0.0) -> Recalibration:
        laws.append(observed.law)
        return recalibrate(z, observed, spread=spread)

    monkeypatch.setattr(recalibration, "recalibrate", watched)
    assert not recalibration.looks_mirrored(z, noisy)
    assert laws == [count_noise(0.2)] * 2
