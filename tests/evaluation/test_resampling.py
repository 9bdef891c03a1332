from __future__ import annotations

import itertools
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from ntmp_cli.evaluation import resampling
from ntmp_cli.evaluation.resampling import bca_interval, intervals_by_size, percentile_interval, resamples


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_every_resample_is_there_with_its_probability(size: int) -> None:
    frequencies = Counter(
        tuple(np.bincount(indices, minlength=size)) for indices in itertools.product(range(size), repeat=size)
    )
    counts, probabilities = resamples(size)
    probability_of = {tuple(row.astype(int)): p for row, p in zip(counts, probabilities, strict=True)}
    assert probability_of == pytest.approx({row: times / size**size for row, times in frequencies.items()})
    assert len(probability_of) == len(counts)


def test_beyond_n_resamples_they_come_from_the_generator() -> None:
    first, same_seed, other_seed = (resamples(12, 500, np.random.default_rng(seed)).counts for seed in (0, 0, 1))
    assert first.shape == (500, 12)
    assert np.array_equal(first, same_seed)
    assert not np.array_equal(first, other_seed)
    assert (first.sum(axis=1) == 12).all()
    assert np.array_equal(resamples(12).counts, resamples(12).counts)


def scipys(values: Any, method: str, seed: int = 0) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return stats.bootstrap((values,), np.mean, n_resamples=10_000, method=method, rng=np.random.default_rng(seed))


def within_monte_carlo(limit: float, result: Any, tail: float) -> bool:
    """Between the quantiles of scipy's own resamples that are four standard errors to either side of the tail."""
    error = 4 * np.sqrt(max(tail * (1 - tail), 1e-4) / 10_000)
    spread = result.bootstrap_distribution
    low, high = np.quantile(spread, [max(tail - error, 0), min(tail + error, 1)], method="nearest")
    return bool(low - 1e-12 <= limit <= high + 1e-12)


@pytest.mark.parametrize("size", [2, 3, 5, 8, 20])
def test_percentile_interval_is_scipys_within_monte_carlo_error(size: int) -> None:
    values = np.random.default_rng(size).gamma(2.0, size=(6, size))
    interval = percentile_interval(values)
    for row, low, high in zip(values, *interval, strict=True):
        result = scipys(row, "percentile")
        assert within_monte_carlo(low, result, 0.025)
        assert within_monte_carlo(high, result, 0.975)


@pytest.mark.parametrize("size", [5, 8, 20])
def test_bca_interval_is_scipys_within_monte_carlo_error(size: int) -> None:
    values = np.random.default_rng(size).gamma(2.0, size=(6, size))
    interval = bca_interval(values)
    for row, low, high in zip(values, *interval, strict=True):
        several = [scipys(row, "BCa", seed) for seed in range(4)]
        spread = np.ptp(several[0].bootstrap_distribution)
        # With five values there are 126 different means: a limit may fall on the next one.
        room = (0.08 if size == 5 else 0.02) * spread
        lows, highs = zip(*(result.confidence_interval for result in several), strict=True)
        assert min(lows) - room <= low <= max(lows) + room
        assert min(highs) - room <= high <= max(highs) + room


# Of the size of powers, of accuracies, of their differences, and so small that their cubes underflow. One value of the
# second sample is the mean, exactly: it differs from it by nothing that could be a scale.
SCALES = {"wide": (1.0, 0.0), "accuracies": (2.0**-8, 0.875), "differences": (2.0**-12, 0.0), "tiny": (2.0**-400, 0.0)}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sample", [(1, 2, 4, 8, 16), (3, 3, 4, 6, 14)])
def test_bca_of_a_known_sample_is_the_formula_by_hand(sample: tuple[int, ...], scale: str) -> None:
    """The steps of Efron and Tibshirani (1993, section 14.3), with every one of the 3,125 resamples counted."""
    expected = by_the_formula(np.array(sample, dtype=float))
    factor, shift = SCALES[scale]
    low, high = bca_interval(factor * np.array([sample], dtype=float) + shift)
    # In units of the sample: an interval moves and stretches with its values.
    assert [(low[0] - shift) / factor, (high[0] - shift) / factor] == pytest.approx(expected, rel=1e-9)
    assert expected != by_the_formula(np.array(sample, dtype=float), acceleration=0.0)


def by_the_formula(values: Any, acceleration: float | None = None) -> list[float]:
    means = np.sort([np.mean(draw) for draw in itertools.product(values, repeat=5)])
    normal = stats.norm
    below = (np.mean(means < values.mean()) + np.mean(means <= values.mean())) / 2
    jackknife = np.array([np.delete(values, i).mean() for i in range(5)])
    d = jackknife.mean() - jackknife
    a = (d**3).sum() / (6 * (d**2).sum() ** 1.5) if acceleration is None else acceleration
    z0 = normal.ppf(below)
    tails = [normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in normal.ppf([0.025, 0.975])]
    return [float(means[int(np.ceil(tail * len(means) - 1e-9)) - 1]) for tail in tails]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=7))
def test_limits_lie_in_order_among_the_values(values: list[float]) -> None:
    for interval in (percentile_interval, bca_interval):
        (low,), (high,) = interval(np.array([values]))
        assert min(values) <= low <= high <= max(values)


def test_equal_values_have_no_spread() -> None:
    for interval in (percentile_interval, bca_interval):
        low, high = interval(np.full((1, 5), 0.9))
        assert (low[0], high[0]) == (0.9, 0.9)


def test_one_value_has_no_interval() -> None:
    assert all(np.isnan(limit).all() for limit in percentile_interval(np.array([[0.5], [0.7]])))
    assert intervals_by_size([[0.5], []]) == [resampling.Limits(None, None, None, None)] * 2


@pytest.mark.parametrize("size", [5, 12])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    values = np.random.default_rng(0).normal(size=(40, size))
    in_one_block = [percentile_interval(values), bca_interval(values)]
    monkeypatch.setattr(resampling, "_BLOCK", 3 * len(resamples(size).counts))
    for expected, in_blocks in zip(in_one_block, [percentile_interval(values), bca_interval(values)], strict=True):
        assert np.allclose(expected, in_blocks, rtol=0, atol=1e-12)


def test_samples_of_all_sizes_come_back_in_their_order() -> None:
    samples = [[0.1, 0.5, 0.3], [0.2], [0.4, 0.8], [0.5, 0.1, 0.9]]
    limits_of_samples = intervals_by_size(samples)
    for sample, limits in zip(samples, limits_of_samples, strict=True):
        if len(sample) > 1:
            assert (limits.low, limits.high) == tuple(float(x[0]) for x in percentile_interval(np.array([sample])))


def test_the_interval_covers_the_mean_as_often_as_it_says() -> None:
    values = np.random.default_rng(1).normal(0.0, 1.0, size=(2000, 40))
    low, high = percentile_interval(values, rng=np.random.default_rng(0), n_resamples=2000)
    assert 0.92 < np.mean((low < 0) & (high > 0)) < 0.96
