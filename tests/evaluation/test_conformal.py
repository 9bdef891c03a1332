"""Conformal intervals for counts of new groups: against their definition, and by the coverage that they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit

from ntmp_cli.counting.laws import parse_law
from ntmp_cli.counting.recorded import records
from ntmp_cli.evaluation.conformal import Residuals, count_interval, residuals
from ntmp_cli.evaluation.group_counts import count_moments


def sampled(rng: np.random.Generator, groups: int, spread: float = 0.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores, sizes from 3 to 50 and true counts; the scores are too steep and off by a constant."""
    sizes = rng.integers(3, 51, groups)
    owner = np.repeat(np.arange(groups), sizes)
    true = rng.normal(-0.5, 1.5, len(owner)) + spread * rng.normal(size=groups)[owner]
    labels = rng.random(len(owner)) < expit(true)
    return 1.6 * true + 0.7, sizes, np.bincount(owner, labels).astype(np.int64)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_intervals_cover_what_they_promise_however_poor_the_scores(spread: float) -> None:
    """Over draws of calibration tuples and new groups; the standard error of the mean coverage is below .005."""
    rng, inside = np.random.default_rng(3), []
    for _ in range(60):
        z, sizes, counts = sampled(rng, 150, spread)
        new, new_sizes, new_counts = sampled(rng, 100, spread)
        found = residuals(z, sizes, counts, 0.0, 0.9)
        low, high = count_interval([new], new_sizes, 0.0, found)
        inside.append(((low <= new_counts) & (new_counts <= high)).mean())
    assert 0.885 < np.mean(inside) < 0.935


def test_ranges_widen_and_never_lose_the_promise() -> None:
    rng = np.random.default_rng(4)
    z, sizes, counts = sampled(rng, 200)
    exact = residuals(z, sizes, counts, 0.0, 0.9)
    wide = residuals(z, sizes, records(np.maximum(counts - 1, 0), np.minimum(counts + 1, sizes)), 0.0, 0.9)
    assert (wide.below[0] < exact.below[0]).all()
    assert (exact.above[0] < wide.above[0]).all()
    tested = np.minimum(counts, 1)
    unknown = residuals(z, sizes, records(tested, tested, "pooled-test:0.9,0.9"), 0.0, 0.9)
    assert (unknown.limited, unknown.tuples) == (False, 0)


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
        found = residuals(z, sizes, records(recorded, recorded, text), 0.0, 0.9)
        assert found.tuples == 150
        low, high = count_interval([new], new_sizes, 0.0, found)
        inside.append(((low <= new_counts) & (new_counts <= high)).mean())
        widths.append((high - low).sum() / new_sizes.sum())
    assert np.mean(inside) > 0.9
    assert np.mean(widths) < 0.8


def test_noisy_tuples_are_not_needed_beside_enough_exact_ones() -> None:
    z, sizes, counts = sampled(np.random.default_rng(9), 60)
    laws = np.where(np.arange(60) < 20, "gaussian:9", "exact")
    mixed = residuals(z, sizes, records(counts, counts, laws), 0.0, 0.9)
    first = int(sizes[:20].sum())
    exact = residuals(z[first:], sizes[20:], counts[20:], 0.0, 0.9)
    assert (mixed.tuples, mixed.noisy, mixed[2:]) == (40, False, exact[2:])
    assert mixed.below[0] == pytest.approx(exact.below[0])


def test_too_few_tuples_promise_the_whole_range() -> None:
    z, sizes, counts = sampled(np.random.default_rng(5), 18)
    found = residuals(z, sizes, counts, 0.0, 0.9)
    assert not found.limited
    low, high = count_interval([z], sizes, 0.0, found)
    assert (low == 0).all()
    assert (high == sizes).all()


@pytest.mark.parametrize(("confidence", "fewest"), [(0.8, 9), (0.9, 19), (0.95, 39), (0.98, 99)])
def test_the_fewest_tuples_that_give_an_interval_are_enough(confidence: float, fewest: int) -> None:
    """2/(1 − confidence) − 1 of them: the smallest and the largest residual are the limits."""
    z, sizes, counts = sampled(np.random.default_rng(6), fewest)
    mean, sd = count_moments(z, sizes)
    found = residuals(z, sizes, counts, 0.0, confidence)
    assert (found.limited, found.first, found.last) == (True, 1, fewest)
    assert found.below[0] == pytest.approx(np.sort((counts - mean) / sd))
    assert not residuals(z[sizes[0] :], sizes[1:], counts[1:], 0.0, confidence).limited


@pytest.mark.parametrize("folds", [1, 3])
def test_the_interval_is_that_of_the_definition(folds: int) -> None:
    """Eqs. 112 and 115 by enumeration of all counts, with ranges among the tuples."""
    rng = np.random.default_rng(12)
    z, sizes, counts = sampled(rng, 45)
    fold, high = np.arange(45) % folds, np.minimum(counts + rng.integers(0, 3, 45), sizes)
    found = residuals(z, sizes, records(counts, high), 0.0, 0.8, fold)
    new, new_sizes, _ = sampled(rng, 40)
    by_fold = [new * (1 + 0.3 * k) + 0.4 * k for k in range(folds)]
    mean, sd = count_moments(z, sizes)
    below, above = (counts - mean) / sd, (high - mean) / sd
    moments = np.array([count_moments(scores, new_sizes) for scores in by_fold])
    limits = [  # of every new group: the candidate of every tuple by the fit that scored it
        (np.sort(mu[fold] + below * s[fold])[found.first - 1], np.sort(mu[fold] + above * s[fold])[found.last - 1])
        for mu, s in moments.transpose(2, 1, 0)
    ]
    inside = [[m for m in range(n + 1) if a <= m <= b] for n, (a, b) in zip(new_sizes, limits, strict=True)]
    low, upper = count_interval(by_fold, new_sizes, 0.0, found)
    assert all(inside)
    assert [*zip(low, upper, strict=True)] == [(each[0], each[-1]) for each in inside]


@pytest.mark.parametrize(("residual", "answer"), [(0.0, 3), (-1.2, 2), (-2.0, 1)])
def test_where_the_limits_lie_between_two_counts_one_of_these_is_the_answer(residual: float, answer: int) -> None:
    """The mean is 2.6, the standard deviation 1.2: the limits are 2.6, 1.1 and 0.2."""
    limits = (np.full(40, residual),)
    low, high = count_interval(
        [np.full(5, 0.1)], np.array([5]), 0.0, Residuals(limits, limits, 2, 39, 0.9, noisy=False)
    )
    assert (low.tolist(), high.tolist()) == ([answer], [answer])


def test_labelled_rows_do_not_calibrate_intervals_of_groups() -> None:
    """Residuals of single rows are small: with as many of them as groups, three quarters of groups were inside."""
    rng, inside = np.random.default_rng(15), []
    for _ in range(30):
        z, sizes, counts = sampled(rng, 60, spread=1.0)
        rows = rng.normal(-0.5, 1.5, 200)
        labels = (rng.random(200) < expit(rows)).astype(np.int64)
        new, new_sizes, new_counts = sampled(rng, 100, spread=1.0)
        ones, both = np.ones(200, dtype=np.int64), np.concatenate([z, 1.6 * rows + 0.7])
        found = residuals(both, np.concatenate([sizes, ones]), np.concatenate([counts, labels]), 0.0, 0.9)
        assert found.tuples == 60
        low, high = count_interval([new], new_sizes, 0.0, found)
        inside.append(((low <= new_counts) & (new_counts <= high)).mean())
    assert np.mean(inside) > 0.89
    low, high = count_interval([np.full(2, 9.0)], np.ones(2, dtype=np.int64), 0.0, found)
    assert (low.tolist(), high.tolist()) == ([0, 0], [1, 1])


def least_squares(shares: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Weights of a linear probability model of groups; with few groups it fits them far better than new ones."""
    weights: np.ndarray = np.linalg.lstsq(np.c_[np.ones(len(x)), x], shares, rcond=None)[0]
    return weights


def test_cv_plus_covers_what_it_guarantees_where_fits_overfit() -> None:
    """60 groups, 30 features, five fits: the mean coverage over 200 samples, whose standard error is below .01."""
    rng, inside, guaranteed, groups, folds = np.random.default_rng(13), [], 1.0, 60, 5
    for _ in range(200):
        x = rng.normal(size=(groups + 20, 30))
        counts = rng.binomial(20, expit(0.6 * x[:, 0]))
        sizes, fold = np.full(groups, 20), np.arange(groups) % folds
        z, new = np.empty((groups, 1)), []
        for k in range(folds):
            own = np.append(fold == k, np.zeros(20, bool))
            weights = least_squares(counts[:groups][fold != k] / 20, x[:groups][fold != k])
            scores = logit(np.clip(np.c_[np.ones(len(x)), x] @ weights, 0.01, 0.99))
            z[fold == k] = scores[own][:, None]
            new.append(np.repeat(scores[groups:], 20))
        found = residuals(np.repeat(z, 20), sizes, counts[:groups], 0.0, 0.9, fold)
        low, high = count_interval(new, np.full(20, 20), 0.0, found)
        inside.append(((low <= counts[groups:]) & (counts[groups:] <= high)).mean())
        guaranteed = found.guaranteed
    assert guaranteed == pytest.approx(1 - 0.2 - 2 * min(2 * 0.8 / 13, (1 - 5 / 60) / 6))
    assert 0.88 < np.mean(inside) < 0.98


def test_the_guarantee_of_noisy_records_is_that_of_twice_the_miss() -> None:
    """A true count outside leaves its record outside half of the time, so that all terms count twice."""
    ranks = (tuple(np.zeros(30) for _ in range(5)),) * 2
    exact, noisy = (Residuals(*ranks, 3, 140, 0.95, noisy=noisy) for noisy in (False, True))
    assert 0.9 - exact.guaranteed == pytest.approx((0.9 - noisy.guaranteed) / 2)
    assert Residuals(*ranks, 3, 140, 0.5, noisy=True).guaranteed == 0.0


def guaranteed(by_fold: list[int], confidence: float = 0.9) -> float:
    ranks = tuple(np.zeros(tuples) for tuples in by_fold)
    return Residuals(ranks, ranks, 1, sum(by_fold), confidence, noisy=False).guaranteed


def test_the_guarantee_is_that_of_the_folds_that_have_tuples() -> None:
    """As if there were five folds, three tuples had 0.42 instead of 1 − 2δ."""
    assert guaranteed([19, 0, 0, 0, 0]) == 0.9
    assert guaranteed([1, 1, 1, 0, 0], confidence=0.6) == pytest.approx(0.2)


def test_the_second_term_of_the_guarantee_is_for_folds_of_equal_size() -> None:
    assert guaranteed([4, 4, 4, 4, 4]) == pytest.approx(0.8 - 2 * 0.75 / 6)
    assert guaranteed([5, 4, 4, 4, 3]) == pytest.approx(0.8 - 2 * 1.6 / 5)
