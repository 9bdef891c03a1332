"""The count law of tuples that were sampled at different rates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from scipy.stats import betabinom, binom

from ntmp_cli.counting.laws import parse_law
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.counting.recorded import records
from ntmp_cli.counting.varying_rates import fit_varying_rates, most_members


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


@pytest.mark.parametrize(("mean", "law"), [(0.4, "gaussian:9"), (0.4, "round:7"), (0.03, "off-by-one:0.2")])
def test_the_loss_of_the_largest_tuples_is_exact(mean: float, law: str) -> None:
    """Against sums in logarithms: from 301 members on, or 150 of a rare class, it was wrong by a hundred nats."""
    rng, n = np.random.default_rng(2), most_members(mean)
    labels = rng.random((12, n)) < rng.beta(5 * mean, 5 * (1 - mean), 12)[:, None]
    z = 2 * rng.normal(size=labels.shape) + np.where(labels, 2.0, -2.0) + np.log(mean / (1 - mean))
    sizes, true = np.full(12, n), labels.sum(axis=1)
    recorded = parse_law(law).sample(true, sizes, rng).astype(float)
    observed = CountObservations(sizes, records(recorded, recorded, law))
    fit = fit_varying_rates(z.ravel(), observed)
    slope, intercept, c = np.exp(fit.at[0]), fit.at[1], np.exp(-fit.at[2])
    rate, k = observed.rate, np.arange(n + 1)
    joint = np.full((12, n + 1), -np.inf)
    joint[:, 0] = 0.0
    for scores in slope * z.T + intercept:
        more = joint[:, :-1] - np.logaddexp(0, -scores)[:, None]
        joint -= np.logaddexp(0, scores)[:, None]
        joint[:, 1:] = np.logaddexp(joint[:, 1:], more)
    joint += betabinom.logpmf(k, n, c * rate, c * (1 - rate)) - binom.logpmf(k, n, rate)
    with np.errstate(divide="ignore"):
        likelihood = np.log(observed.likelihood(np.repeat(k[:, None], 12, axis=1), np.arange(12)))
    logs = logsumexp(joint + likelihood.T, axis=1) - logsumexp(joint, axis=1)
    assert fit.nll == pytest.approx(-logs.mean(), abs=1e-8)


def test_tuples_of_a_rare_class_are_fewer_members_away_from_the_limit() -> None:
    assert (most_members(0.5), most_members(0.9)) == (300, 256)
    assert most_members(0.03) == most_members(0.97) == 168
    assert most_members(1e-9) == most_members(0.01)
