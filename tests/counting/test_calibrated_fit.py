"""Calibration by counts: what the fit makes equal, and whether its error is the one that simulations show."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from ntmp_cli.counting.calibrated_fit import CalibratedFit, calibrated_fit
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior


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
