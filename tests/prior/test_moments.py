from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from ntmp_cli.counting.recorded import join, records
from ntmp_cli.prior.binned_sums import BinnedSums
from ntmp_cli.prior.estimator import ScoredTuples, priors

Sizes = tuple[NDArray[np.int64], NDArray[np.int64]]


def moments(data: ScoredTuples) -> float:
    """The estimate, or nan where nothing is identified."""
    return float(priors.get("moments")(BinnedSums(data).sample())[0])


def of_pairs(pairs: list[tuple[int, int]], scores: int) -> Sizes:
    n, m = (np.repeat(column, scores) for column in zip(*pairs, strict=True))
    return n, m


def lengths_and_binomial_counts(rng: np.random.Generator, tuples: int) -> Sizes:
    n = rng.integers(2, 11, tuples)
    return n, rng.binomial(n, 0.5)


MIXES: dict[str, Callable[[np.random.Generator], Sizes]] = {
    "3:1": lambda rng: of_pairs([(3, 1)], 300),
    "2:1": lambda rng: of_pairs([(2, 1)], 400),
    "3:1+3:2": lambda rng: of_pairs([(3, 1), (3, 2)], 150),
    "3:1+7:2+5:4": lambda rng: of_pairs([(3, 1), (7, 2), (5, 4)], 80),
    "pure-tuples-among-them": lambda rng: of_pairs([(3, 0), (4, 4), (1, 1), (3, 1)], 200),
    "many-small-strata": lambda rng: lengths_and_binomial_counts(rng, 150),
}


def gaussian_scores(sizes: Sizes, prior: float, unlabeled: int, rng: np.random.Generator) -> ScoredTuples:
    """Scores N(±1.5, 1): oriented, well separated, and not calibrated."""
    n, m = sizes
    within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    positive = np.append(within < np.repeat(m, n), rng.random(unlabeled) < prior)
    scores = rng.standard_normal(len(positive)) + 3 * (positive - 0.5)
    return ScoredTuples(scores[: n.sum()], n, m, scores[n.sum() :])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("prior", [0.15, 0.5, 0.8])
@pytest.mark.parametrize("mix", MIXES)
def test_estimates_scatter_around_the_true_prior(mix: str, prior: float) -> None:
    rng = np.random.default_rng(17)
    estimates = np.array([moments(gaussian_scores(MIXES[mix](rng), prior, 600, rng)) for _ in range(40)])
    assert abs(estimates.mean() - prior) < 4 * estimates.std(ddof=1) / np.sqrt(len(estimates))
    # No more scatter than a few times that of U alone, √(π(1−π)/600) ≤ 0.021.
    assert estimates.std() < 0.06


@pytest.mark.parametrize("of_each", [2, 12])
def test_the_estimate_equals_brute_force_over_pairs(of_each: int) -> None:
    """The definition, by looping: covariances over pairs inside tuples, means over pairs of different tuples."""
    rng = np.random.default_rng(2)
    data = gaussian_scores(of_pairs([(3, 1), (4, 3), (2, 0)], of_each), 0.4, 50, rng)
    tuples = np.split(1 / (1 + np.exp(-data.scores)), np.cumsum(data.sizes)[:-1])
    signal = weight = 0.0
    for n, m in ((3, 1), (4, 3)):
        stratum = [t for t, a, b in zip(tuples, data.sizes, data.counts, strict=True) if (a, b) == (n, m)]
        same = np.mean([t[i] * t[j] for t in stratum for i in range(n) for j in range(n) if i != j])
        pairs_of_tuples = permutations(stratum, 2)
        other = np.mean([x * y for one, another in pairs_of_tuples for x in one for y in another])
        pairs = len(stratum) * n * (n - 1)
        c = (m / n) * (1 - m / n) / (n - 1)  # inverse variance: pairs · c²
        signal -= pairs * c * (same - other)
        weight += pairs * c**2
    delta = np.sqrt(signal / weight)
    negative = np.mean([x - delta * m / n for t, n, m in zip(tuples, data.sizes, data.counts, strict=True) for x in t])
    expected = (np.mean(1 / (1 + np.exp(-data.unlabeled))) - negative) / delta
    assert moments(data) == pytest.approx(expected, rel=1e-10)


def test_a_single_tuple_of_a_stratum_has_no_covariance_to_give() -> None:
    rng = np.random.default_rng(3)
    data = gaussian_scores(of_pairs([(3, 1), (4, 2), (5, 2)], 1), 0.5, 50, rng)
    assert np.isnan(moments(data))


@pytest.mark.parametrize("constant", [0.0, 0.1, -0.3, 2.0, 5.5, -7.1, 1 / 3, 40.0])
@pytest.mark.parametrize("sizes", [of_pairs([(3, 1)], 50), of_pairs([(7, 3)], 1000), of_pairs([(5, 2), (3, 2)], 7)])
def test_constant_scores_identify_nothing(constant: float, sizes: Sizes) -> None:
    n, m = sizes
    assert np.isnan(moments(ScoredTuples(np.full(n.sum(), constant), n, m, np.full(30, constant))))


def test_differences_at_the_level_of_rounding_identify_nothing() -> None:
    n, m = of_pairs([(3, 1)], 40)
    scores = 0.3 + np.tile([1e-12, -1e-12, 0.0], 40)
    assert np.isnan(moments(ScoredTuples(scores, n, m, scores)))


def test_scores_that_move_tuples_as_a_whole_identify_nothing() -> None:
    n, m = of_pairs([(3, 1)], 40)
    scores = np.repeat(np.random.default_rng(0).standard_normal(40), 3)
    assert np.isnan(moments(ScoredTuples(scores, n, m, scores)))


@pytest.mark.parametrize("pair", [(1, 0), (1, 1), (4, 0), (4, 4)])
def test_tuples_of_one_class_identify_nothing(pair: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    assert np.isnan(moments(gaussian_scores(of_pairs([pair], 60), 0.5, 60, rng)))


def test_mirrored_scores_give_the_mirrored_prior_of_mirrored_counts() -> None:
    """(p₊, p₋, π, m) and (p₋, p₊, 1−π, n−m) are the same data under other names."""
    rng = np.random.default_rng(4)
    data = gaussian_scores(of_pairs([(3, 1), (5, 2)], 100), 0.3, 300, rng)
    mirrored = ScoredTuples(-data.scores, data.sizes, data.sizes - data.counts, -data.unlabeled)
    assert moments(mirrored) == pytest.approx(1 - moments(data), abs=1e-10)


def test_the_unit_of_small_scores_changes_no_estimate() -> None:
    """Where the sigmoid is a line, down to differences that are small but far above rounding."""
    rng = np.random.default_rng(5)
    data = gaussian_scores(of_pairs([(3, 1), (5, 2)], 200), 0.3, 300, rng)
    of_unit = [
        moments(ScoredTuples(unit * data.scores, data.sizes, data.counts, unit * data.unlabeled))
        for unit in (1e-2, 1e-4)
    ]
    assert of_unit[1] == pytest.approx(of_unit[0], abs=1e-4)
    assert np.isfinite(of_unit[1])


def test_tuples_of_unknown_count_are_not_used() -> None:
    rng = np.random.default_rng(6)
    data = gaussian_scores(of_pairs([(3, 1), (5, 2)], 100), 0.3, 300, rng)
    ranges = records(np.zeros(40), np.full(40, 3.0))
    longer = ScoredTuples(
        np.append(data.scores, rng.normal(2, 1, 120)),
        np.append(data.sizes, np.full(40, 3)),
        join([data.counts, ranges]),
        data.unlabeled,
    )
    assert moments(longer) == pytest.approx(moments(data), abs=1e-9)
