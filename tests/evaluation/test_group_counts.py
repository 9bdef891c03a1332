"""Counts of new groups: moments and quantiles against the law of the count, intervals by the coverage they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit

from ntmp_cli.counting.large import LARGE
from ntmp_cli.counting.laws import parse_law
from ntmp_cli.counting.recorded import records
from ntmp_cli.evaluation.group_counts import (
    count_interval,
    count_moments,
    count_quantiles,
    residual_limits,
)

LEVELS = np.array([0.05, 0.5, 0.95])


def sampled(rng: np.random.Generator, groups: int, spread: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, sizes from 3 to 50 and true counts; the scores are too steep and off by a constant."""
    sizes = rng.integers(3, 51, groups)
    owner = np.repeat(np.arange(groups), sizes)
    true = rng.normal(-0.5, 1.5, len(owner)) + spread * rng.normal(size=groups)[owner]
    labels = rng.random(len(owner)) < expit(true)
    return 1.6 * true + 0.7, sizes, np.bincount(owner, labels).astype(np.int64)


def test_moments_are_those_of_the_binomial_and_grow_with_the_intercept() -> None:
    z, sizes = np.full(30, 0.4), np.array([10, 20])
    mean, sd = count_moments(z, sizes)
    p = expit(0.4)
    assert mean == pytest.approx(sizes * p)
    assert sd**2 == pytest.approx(sizes * p * (1 - p) + 0.25)
    assert (count_moments(z, sizes, 0.8)[1] > sd).all()


def test_quantiles_are_those_of_the_law() -> None:
    sizes = np.array([5, 12, LARGE + 400])
    z = np.full(int(sizes.sum()), -0.3)
    found = count_quantiles(z, sizes, 0.0, LEVELS)
    for group, n in enumerate(sizes.tolist()):
        expected = stats.binom.ppf(LEVELS, n, expit(-0.3))
        assert found[group] == pytest.approx(expected, abs=0 if n <= LARGE else 1)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_intervals_cover_what_they_promise_however_poor_the_scores(spread: float) -> None:
    """Over draws of calibration tuples and new groups; the standard error of the mean coverage is below .005."""
    rng, inside = np.random.default_rng(3), []
    for _ in range(60):
        z, sizes, counts = sampled(rng, 150, spread)
        new, new_sizes, new_counts = sampled(rng, 100, spread)
        limits = residual_limits(z, sizes, counts, 0.0, 0.9)
        low, high = count_interval(new, new_sizes, 0.0, limits)
        inside.append(((low <= new_counts) & (new_counts <= high)).mean())
    assert 0.885 < np.mean(inside) < 0.935


def test_ranges_widen_and_never_lose_the_promise() -> None:
    rng = np.random.default_rng(4)
    z, sizes, counts = sampled(rng, 200)
    exact = residual_limits(z, sizes, counts, 0.0, 0.9)
    wide = residual_limits(z, sizes, records(np.maximum(counts - 1, 0), np.minimum(counts + 1, sizes)), 0.0, 0.9)
    assert wide.low < exact.low < exact.high < wide.high
    tested = np.minimum(counts, 1)
    unknown = residual_limits(z, sizes, records(tested, tested, "pooled-test:0.9,0.9"), 0.0, 0.9)
    assert (unknown.low, unknown.high, unknown.tuples) == (-np.inf, np.inf, 0)


@pytest.mark.parametrize(
    "text", ["gaussian:2", "laplace:1.5", "geometric:0.5", "off-by-one:0.5", "round:5", "suppress:4"]
)
def test_intervals_of_noisy_counts_cover_the_true_ones(text: str) -> None:
    """At least as often as promised, and they are not the whole range."""
    rng, law, inside, widths = np.random.default_rng(8), parse_law(text), [], []
    for _ in range(30):
        z, sizes, counts = sampled(rng, 150)
        recorded = law.sample(counts, sizes, rng).astype(np.float64)
        new, new_sizes, new_counts = sampled(rng, 100)
        limits = residual_limits(z, sizes, records(recorded, recorded, text), 0.0, 0.9)
        assert limits.tuples == 150
        low, high = count_interval(new, new_sizes, 0.0, limits)
        inside.append(((low <= new_counts) & (new_counts <= high)).mean())
        widths.append((high - low).sum() / new_sizes.sum())
    assert np.mean(inside) > 0.9
    assert np.mean(widths) < 0.8


def test_noisy_tuples_are_not_needed_beside_enough_exact_ones() -> None:
    z, sizes, counts = sampled(np.random.default_rng(9), 60)
    laws = np.where(np.arange(60) < 20, "gaussian:9", "exact")
    mixed = residual_limits(z, sizes, records(counts, counts, laws), 0.0, 0.9)
    first = int(sizes[:20].sum())
    assert mixed == residual_limits(z[first:], sizes[20:], counts[20:], 0.0, 0.9)


def test_too_few_tuples_promise_the_whole_range() -> None:
    z, sizes, counts = sampled(np.random.default_rng(5), 18)
    limits = residual_limits(z, sizes, counts, 0.0, 0.9)
    assert (limits.low, limits.high) == (-np.inf, np.inf)
    low, high = count_interval(z, sizes, 0.0, limits)
    assert (low == 0).all()
    assert (high == sizes).all()


@pytest.mark.parametrize(("confidence", "fewest"), [(0.8, 9), (0.9, 19), (0.95, 39), (0.98, 99)])
def test_the_fewest_tuples_that_give_an_interval_are_enough(confidence: float, fewest: int) -> None:
    """2/(1 − confidence) − 1 of them: the smallest and the largest residual are the limits."""
    z, sizes, counts = sampled(np.random.default_rng(6), fewest)
    mean, sd = count_moments(z, sizes)
    residuals = (counts - mean) / sd
    limits = residual_limits(z, sizes, counts, 0.0, confidence)
    assert (limits.low, limits.high) == (residuals.min(), residuals.max())


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.2])
@pytest.mark.parametrize("score", [-3.0, 0.4])
def test_quantiles_of_large_groups_go_on_where_those_of_small_ones_end(score: float, spread: float) -> None:
    """With an intercept of the group its count is skewed, however many members it has."""
    small, large = (count_quantiles(np.full(n, score), np.array([n]), spread, LEVELS)[0] for n in (LARGE, LARGE + 1))
    assert large == pytest.approx(small, abs=1)
    certain = count_quantiles(np.repeat([-500.0, 500.0], 200), np.array([400]), 0.0, LEVELS)[0]
    assert (certain == 200).all()
