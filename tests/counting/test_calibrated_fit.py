"""Calibration by counts: what the fit makes equal, and whether its error is the one that simulations show."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.special import expit

from ntmp_cli.counting.calibrated_fit import CalibratedFit, by_block, calibrated_fit
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.counting.recorded import records


def simulated(rng: np.random.Generator, tuples: int, slope: float = 0.5):
    """Scores `slope`·(true log-odds) of members of random tuples, their labels, and the observed counts."""
    sizes = rng.integers(3, 9, tuples)
    true = rng.normal(0.0, 2.0, sizes.sum()) - 0.5
    y = rng.random(len(true)) < expit(true)
    counts = np.add.reduceat(y.astype(int), np.cumsum(sizes) - sizes)
    return slope * true, y, CountObservations(sizes, counts)


def test_sums_of_every_column_are_those_of_the_posterior() -> None:
    z, _, observed = simulated(np.random.default_rng(0), 400)
    decided = (z > 0.3).astype(float)
    fit = calibrated_fit(z, CountObjective(observed), decided)
    posterior = count_posterior(fit.basis @ fit.theta, observed)
    for column in fit.basis.T:
        # The weak prior of the coefficients is all that keeps them apart.
        assert column @ fit.p == pytest.approx(column @ posterior, abs=0.05)


def covariance(fit: CalibratedFit) -> np.ndarray:
    """Of θ̂, by the influence of every tuple (Eq. 56)."""
    tuples, width = fit.influence.shape
    return fit.influence.T @ fit.influence / (tuples * (tuples - width))


def test_the_line_of_scores_is_found() -> None:
    z, _, observed = simulated(np.random.default_rng(1), 4000)
    fit = calibrated_fit(z, CountObjective(observed))
    assert fit.theta == pytest.approx([2.0, 0.0], abs=4 * np.sqrt(np.diag(covariance(fit))).max())


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_covariance_is_that_of_repeated_fits(spread: float) -> None:
    rng = np.random.default_rng(2)
    fits = []
    for _ in range(120):
        z, _, observed = simulated(rng, 80)
        fits.append(calibrated_fit(z, CountObjective(observed, spread)))
    measured = np.std([fit.theta for fit in fits], axis=0)
    expected = np.sqrt(np.mean([np.diag(covariance(fit)) for fit in fits], axis=0))
    # The standard deviation of 120 values has a relative error of 6.5 %.
    assert measured == pytest.approx(expected, rel=0.3)


def test_scores_that_separate_the_classes_have_a_finite_fit() -> None:
    y = np.tile([1, 0, 0], 40)
    z = np.where(y == 1, 5.0, -5.0)
    fit = calibrated_fit(z, CountObjective(CountObservations(np.full(40, 3), np.full(40, 1))), y.astype(float))
    assert np.isfinite(fit.theta).all()
    assert np.isfinite(fit.influence).all()
    assert fit.p == pytest.approx(y, abs=0.01)


def test_the_unit_of_scores_changes_the_fit_only_by_its_factor() -> None:
    z, _, observed = simulated(np.random.default_rng(3), 2000)
    fit, larger = calibrated_fit(z, CountObjective(observed)), calibrated_fit(20 * z, CountObjective(observed))
    factor = np.array([20.0, 1.0])
    assert larger.theta * factor == pytest.approx(fit.theta, rel=0.01, abs=0.01)
    assert (larger.influence * factor) == pytest.approx(fit.influence, rel=0.05, abs=0.05 * np.abs(fit.influence).max())


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_the_slope_is_the_derivative_of_the_probabilities(spread: float) -> None:
    z, y, observed = simulated(np.random.default_rng(4), 60)
    fit = calibrated_fit(z, CountObjective(observed, spread), y.astype(float))
    step = 1e-5
    for column in range(3):
        theta = [fit.theta + sign * step * (np.arange(3) == column) for sign in (1, -1)]
        more, less = (dataclasses.replace(fit, theta=at).p for at in theta)
        assert fit.slope[:, column] == pytest.approx((more - less) / (2 * step), abs=1e-8)


def test_influences_of_a_block_are_added() -> None:
    influence = np.arange(10.0).reshape(5, 2)
    blocks = np.array([7, 3, 7, 7, 3])
    sums = np.stack([influence[[1, 4]].sum(axis=0), influence[[0, 2, 3]].sum(axis=0)])
    # The error is the mean over as many terms as there are blocks.
    assert by_block(influence, blocks).mean(axis=0) == pytest.approx(influence.mean(axis=0))
    assert by_block(influence, blocks) == pytest.approx(sums * 2 / 5)
    assert by_block(influence, None) is influence


@pytest.mark.parametrize("columns_sd", [None, 0.3])
def test_the_influence_of_few_tuples_is_that_of_leaving_each_out(columns_sd: float | None) -> None:
    z, y, observed = simulated(np.random.default_rng(5), 12)
    rows, column = np.repeat(np.arange(12), observed.sizes), y - 0.5

    def fitted(tuples: np.ndarray) -> CalibratedFit:
        kept = np.isin(rows, tuples)
        objective = CountObjective(observed.subset(tuples))
        return calibrated_fit(z[kept], objective, *([column[kept]] if columns_sd else []), columns_sd=columns_sd)

    fit = fitted(np.arange(12))
    without = np.stack([fitted(np.delete(np.arange(12), t)).theta for t in range(12)])
    # θ̂ without a tuple differs by its influence over the number of tuples.
    moved, influence = fit.theta - without, fit.influence / 12
    slopes = (moved * influence).sum(axis=0) / (influence**2).sum(axis=0)
    assert slopes == pytest.approx(np.ones(len(slopes)), abs=0.25)


@pytest.mark.parametrize("columns_sd", [None, 0.3])
def test_the_fit_is_the_mode_under_its_prior(columns_sd: float | None) -> None:
    """Where the derivative of the log-likelihood is that of the normal prior around a line that changes nothing.

    Its standard deviation is 10 for columns of standard deviation 1."""
    z, y, observed = simulated(np.random.default_rng(6), 15)
    z = 3 * z
    fit = calibrated_fit(z, CountObjective(observed), y.astype(float), columns_sd=columns_sd)
    _, by_member = CountObjective(observed).by_tuple(fit.basis @ fit.theta)
    precision = (np.array([z.std(), 0.0, y.std()]) / 10) ** 2
    if columns_sd is not None:
        precision[2] = columns_sd**-2
    expected = precision * (fit.theta - np.array([1.0, 0.0, 0.0]))
    assert fit.basis.T @ by_member == pytest.approx(expected, abs=2e-3)


def test_observations_that_say_nothing_leave_the_scores_as_they_are() -> None:
    z = np.random.default_rng(7).normal(size=12)
    everything = CountObservations([4, 4, 4], records([0, 0, 0], [4, 4, 4]))
    assert calibrated_fit(z, CountObjective(everything)).theta == pytest.approx([1.0, 0.0])
