"""The count law of tuples that were sampled at different rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import betabinom, binom

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.counting.recorded import records
from ntmp_cli.counting.varying_rates import fit_varying_rates


def sampled(law: str, concentration: float, seed: int = 0) -> tuple[np.ndarray, CountObservations]:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 12, 60)
    owner = np.repeat(np.arange(60), sizes)
    labels = rng.random(len(owner)) < rng.beta(0.4 * concentration, 0.6 * concentration, 60)[owner]
    z = np.log(2 / 3) + 1.5 * (rng.normal(size=len(owner)) + np.where(labels, 0.75, -0.75))
    true = np.bincount(owner, labels).astype(float)
    return z, CountObservations(sizes, records(true, true, law))


@pytest.mark.parametrize("law", ["exact", "off-by-one:0.2", "geometric:1", "pooled-test:0.9,0.8"])
def test_the_loss_is_that_of_the_weighted_law(law: str) -> None:
    z, observed = sampled("exact", 3.0)
    if law.startswith("pooled"):
        some = (observed.counts > 0).astype(float)
        observed = CountObservations(observed.sizes, records(some, some, law))
    elif law != "exact":
        observed = CountObservations(observed.sizes, records(observed.counts, observed.counts, law))
    fit = fit_varying_rates(z, observed)
    slope, intercept, c = np.exp(fit.at[0]), fit.at[1], np.exp(-fit.at[2])
    rate, logs = observed.rate, []
    for t, (n, start) in enumerate(zip(observed.sizes.tolist(), observed.starts.tolist(), strict=True)):
        k = np.arange(n + 1)
        weights = betabinom.pmf(k, n, c * rate, c * (1 - rate)) / binom.pmf(k, n, rate)
        joint = count_law((slope * z[start : start + n] + intercept)[None])[0] * weights
        likelihood = observed.likelihood(k[:, None], np.array([t]))[:, 0]
        logs.append(np.log(joint @ likelihood / joint.sum()))
    assert fit.nll == pytest.approx(-np.mean(logs), abs=1e-9)


def test_rates_that_vary_are_found_and_make_the_counts_more_probable() -> None:
    z, observed = sampled("exact", 3.0)
    fit = fit_varying_rates(z, observed)
    assert fit.nll < recalibrate(z, observed).nll - 0.02
    assert 1 < np.exp(-fit.at[2]) < 12


def test_tuples_of_one_rate_have_the_loss_of_a_line() -> None:
    rng = np.random.default_rng(1)
    z, sizes = rng.normal(-0.5, 2.0, 600), np.full(60, 10)
    counts = (rng.random(600) < expit(z)).reshape(60, 10).sum(axis=1)
    observed = CountObservations(sizes, counts)
    assert fit_varying_rates(z, observed).nll == pytest.approx(recalibrate(z, observed).nll, abs=0.01)


def test_large_tuples_have_finite_losses() -> None:
    rng = np.random.default_rng(2)
    z, sizes = rng.normal(-0.5, 2.0, 8_000), np.full(4, 2_000)
    recorded = np.array([200.0, 700.0, 1_100.0, 1_900.0])
    assert np.isfinite(fit_varying_rates(z, CountObservations(sizes, records(recorded, recorded, "gaussian:5"))).nll)
