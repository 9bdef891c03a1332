from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binomtest
from single_estimates import value

from ntmp_cli.prior.binned_sums import BinnedSums
from ntmp_cli.prior.estimator import priors
from ntmp_cli.prior.tails import neyman_pearson, silverman


@pytest.mark.parametrize("prior", [0.2, 0.8])
def test_tail_estimators_come_near_the_prior(simulate, prior) -> None:
    data = simulate(3, 1, prior, tuples=6000, pool=10_000)
    assert value("best-bin", data) == pytest.approx(prior, abs=0.05)
    assert value("tail-ratio", data) == pytest.approx(prior, abs=0.05)


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_papers_estimator_equals_its_formula_instance_by_instance(simulate, seed) -> None:
    data = simulate(3, 1, 0.2, tuples=300, pool=500, seed=seed)
    tuples = data.scores.reshape(-1, 3)
    proxy, pool = tuples.max(axis=1), data.unlabeled

    def width(s: np.ndarray) -> float:
        q = np.quantile(s, [0.25, 0.75], method="hazen")
        return 0.9 * min(s.std(), (q[1] - q[0]) / 1.34) * len(s) ** -0.2

    grid = np.quantile(proxy, np.linspace(0.6, 0.99, 200), method="hazen")
    ratio = [ndtr((pool - t) / width(pool)).mean() / ndtr((proxy - t) / width(proxy)).mean() for t in grid]
    assert max(ratio) < 1  # an estimate that is clipped would equal any other one
    # So many bins that every instance has its own: nothing is merged.
    prior = priors.get("paper")(BinnedSums(data, bins=10**6).sample())[0]
    assert prior == pytest.approx(max(ratio), rel=1e-9)


def test_silvermans_rule_is_that_of_the_unweighted_sample() -> None:
    values = np.sort(np.random.default_rng(3).gamma(2, size=4000))
    q = np.quantile(values, [0.25, 0.75])
    expected = 0.9 * min(values.std(), (q[1] - q[0]) / 1.34) * 4000**-0.2
    assert silverman(values, np.ones(4000)) == pytest.approx(expected, rel=1e-3)
    assert silverman(np.zeros(5), np.ones(5)) > 0  # constant scores: nothing is divided by 0


def test_the_neyman_pearson_bound_equals_brute_force_with_exact_bands(simulate) -> None:
    data = simulate(3, 1, 0.3, tuples=30, pool=60)  # fewer instances than bins or thresholds: nothing is merged
    proxy = data.scores.reshape(-1, 3).max(axis=1)
    cuts = np.unique(np.concatenate([data.scores, data.unlabeled]))
    gaps = [((proxy >= t).mean() - (data.unlabeled >= t).mean(), t) for t in cuts]
    gap, cut = max(gaps, key=lambda pair: pair[0])
    bound = neyman_pearson(BinnedSums(data).sample(), 0.95)
    assert bound.value == pytest.approx(gap, abs=1e-12)
    tpr, fpr = (
        binomtest(int((s >= cut).sum()), len(s)).proportion_ci(0.975, method="exact") for s in (proxy, data.unlabeled)
    )
    assert (bound.low, bound.high) == pytest.approx((max(tpr.low - fpr.high, 0), tpr.high - fpr.low), abs=1e-9)


@pytest.mark.parametrize("prior", [0.2, 0.5, 0.8])
def test_one_minus_the_bound_lies_above_the_prior(simulate, prior) -> None:
    bound = neyman_pearson(BinnedSums(simulate(5, 2, prior)).sample(), 0.95)
    assert 1 - bound.low > prior
