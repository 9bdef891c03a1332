from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.metrics import roc_auc_score

from ntmp_cli.errors import DataError
from ntmp_cli.evaluation.significance import (
    EXACT_UP_TO,
    cliffs_delta,
    holm,
    magnitude,
    smallest_p,
    wilcoxon,
)

# Ties and zeros are the rule.
DIFFERENCES = st.lists(st.integers(-4, 4), min_size=1, max_size=9)


def by_all_signs(differences: list[int]) -> float:
    """Two-sided p by giving the ranks of what is not zero every sign."""
    d = [x for x in differences if x != 0]
    if not d:
        return 1.0
    ranks = stats.rankdata(np.abs(d))
    observed = sum(r for r, x in zip(ranks, d, strict=True) if x > 0)
    sums = [sum(itertools.compress(ranks, signs)) for signs in itertools.product([0, 1], repeat=len(d))]
    low, high = np.mean([s <= observed + 1e-9 for s in sums]), np.mean([s >= observed - 1e-9 for s in sums])
    return min(1.0, 2 * min(low, high))


@given(DIFFERENCES)
@settings(max_examples=60, deadline=None)
def test_wilcoxon_counts_all_signs(differences: list[int]) -> None:
    test = wilcoxon(np.array(differences) / 7)
    assert test.p == pytest.approx(by_all_signs(differences), abs=1e-12)
    assert test.exact
    assert test.nonzero == sum(d != 0 for d in differences)


@given(st.lists(st.floats(-100, 100).filter(lambda x: abs(x) > 1e-3), min_size=1, max_size=30))
def test_wilcoxon_agrees_with_scipy_without_ties(differences: list[float]) -> None:
    d = np.array(differences)
    if len(np.unique(np.abs(np.round(d, 12)))) < len(d):
        return
    reference = stats.wilcoxon(d, method="exact")
    assert wilcoxon(d).p == pytest.approx(reference.pvalue, abs=1e-12)


def test_wilcoxon_of_published_data() -> None:
    # Depression before and after a tranquilliser (Hollander and Wolfe 1973), as in R's wilcox.test: V = 40, one-sided
    # p = 0.01953.
    first = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
    second = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
    test = wilcoxon(first - second)
    assert test.statistic == 40
    assert test.p == pytest.approx(2 * 0.01953, abs=2e-5)
    # Darwin's maize, crossed less self-fertilised, in eighths of an inch: W⁺ = 96, p = 0.0413.
    maize = np.array([49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48.0])
    test = wilcoxon(maize)
    assert test.statistic == 96
    assert test.p == pytest.approx(0.041259765625)


def test_beyond_the_exact_range_the_normal_law_agrees_with_scipy() -> None:
    rng = np.random.default_rng(0)
    d = np.round(rng.normal(0.1, 1.0, EXACT_UP_TO + 50), 1)
    reference = stats.wilcoxon(d, method="asymptotic", correction=False)
    test = wilcoxon(d)
    assert not test.exact
    assert test.p == pytest.approx(reference.pvalue, rel=1e-9)


def test_exact_and_normal_law_meet() -> None:
    d = np.random.default_rng(1).normal(0.15, 1.0, EXACT_UP_TO)
    assert wilcoxon(d).exact
    reference = stats.wilcoxon(d, method="asymptotic", correction=False)
    assert wilcoxon(d).p == pytest.approx(reference.pvalue, rel=0.02)


def test_no_difference_speaks_against_nothing() -> None:
    assert wilcoxon(np.zeros(5)) == (0.0, 1.0, 0, True)


def test_differences_that_only_rounding_tells_apart_are_ties() -> None:
    d = np.array([0.9 - 0.8, 0.8 - 0.7, -(0.3 - 0.2), 0.2 - 0.2])
    assert wilcoxon(d).p == by_all_signs([1, 1, -1, 0])


@pytest.mark.parametrize("pairs", [1, 2, 3, 5, 10])
def test_the_smallest_p_is_reached_when_all_signs_agree(pairs: int) -> None:
    assert (
        wilcoxon(np.arange(1.0, pairs + 1)).p == pytest.approx(smallest_p(pairs)) == pytest.approx(2.0 ** (1 - pairs))
    )


def test_five_seeds_reach_one_sixteenth() -> None:
    assert smallest_p(5) == 0.0625


# Holm ----------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closed_test_of_bonferroni(p: list[float]) -> None:
    """Adjusted p of i: the largest Bonferroni p of any set of hypotheses that holds i."""
    indices = range(len(p))
    sets = [s for k in range(1, len(p) + 1) for s in itertools.combinations(indices, k)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in indices]
    assert holm(p) == pytest.approx(expected, abs=1e-12)


def test_holm_of_known_values() -> None:
    # As R's p.adjust(method = "holm") has them.
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.04, 0.01, 0.9]) == pytest.approx([0.08, 0.03, 0.9])
    assert holm([0.0625]) == [0.0625]
    assert holm([]) == []


# Cliff ---------------------------------------------------------------------------------------------

VALUES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=6)


@given(VALUES)
@settings(deadline=None)
def test_cliffs_delta_is_twice_the_auroc_less_one(pairs: list[tuple[int, int]]) -> None:
    values, reference = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    cliff = cliffs_delta(values, reference)
    auroc = roc_auc_score([1] * len(values) + [0] * len(reference), np.concatenate([values, reference]))
    assert cliff.delta == pytest.approx(2 * auroc - 1, abs=1e-12)
    assert cliff.within == pytest.approx(np.mean([np.sign(a - b) for a, b in pairs]))
    low, high = cliff.interval
    assert low is not None
    assert high is not None
    assert -1 <= low <= cliff.delta <= high <= 1
    back = cliffs_delta(reference, values)
    assert back.delta == pytest.approx(-cliff.delta)


@pytest.mark.parametrize("differences", [[math.nan], [math.nan, 0.1, 0.2, -0.3], [math.nan] * (EXACT_UP_TO + 1)])
def test_differences_that_are_not_a_number_are_refused(differences: list[float]) -> None:
    with pytest.raises(DataError, match=f"{np.isnan(differences).sum()} of {len(differences)} paired differences"):
        wilcoxon(np.array(differences))


@pytest.mark.parametrize("size", [3, 5, 10])
@pytest.mark.parametrize(("shift", "correlation"), [(0.5, 0.0), (1.0, 0.8)])
def test_cliffs_interval_covers_at_few_pairs(size: int, shift: float, correlation: float) -> None:
    """Where the bootstrap over pairs covers 47 to 93 %: of normal pairs δ is 2Φ(shift/√2) − 1."""
    rng = np.random.default_rng(0)
    expected, covered = 2 * stats.norm.cdf(shift / math.sqrt(2)) - 1, 0
    for _ in range(300):
        common, own, theirs = rng.normal(size=(3, size))
        values, reference = (math.sqrt(correlation) * common + math.sqrt(1 - correlation) * x for x in (own, theirs))
        low, high = cliffs_delta(values + shift, reference).interval
        assert low is not None
        assert high is not None
        covered += low <= expected <= high
    assert covered >= 0.93 * 300


def test_cliffs_interval_is_that_of_the_formula_by_hand() -> None:
    values, reference = np.array([1.0, 3.0, 2.5]), np.array([0.5, 2.0, 2.7])
    # Wins +1, losses −1: rows (+,−,−), (+,+,+), (+,+,−); δ = 3/9; without one pair 2/4, 0, 2/4.
    variance = 2 / 3 * (2 * (1 / 2 - 1 / 3) ** 2 + (0 - 1 / 3) ** 2)
    delta, t = 1 / 3, stats.t.ppf(0.975, 2)
    half = t * math.sqrt(variance) * math.sqrt((1 - delta**2) ** 2 + t**2 * variance)
    expected = [(delta - delta**3 + side * half) / (1 - delta**2 + t**2 * variance) for side in (-1, 1)]
    cliff = cliffs_delta(values, reference)
    assert cliff.delta == pytest.approx(delta)
    assert cliff.interval == pytest.approx(expected)


def test_the_variance_of_cliffs_delta_is_at_least_that_of_its_lower_limit() -> None:
    cliff = cliffs_delta(np.array([0.0, 0.0, 1.0]), np.array([0.0, 0.0, 2.0]))
    # Wins less losses of the rows: (0, 0, -), (0, 0, -), (+, +, -); the jackknife over the pairs gives 1/36 only.
    delta, variance, t = -1 / 9, (1 - 1 / 81) / 8, stats.t.ppf(0.975, 2)
    half = t * math.sqrt(variance) * math.sqrt((1 - delta**2) ** 2 + t**2 * variance)
    expected = [(delta - delta**3 + side * half) / (1 - delta**2 + t**2 * variance) for side in (-1, 1)]
    assert cliff.delta == pytest.approx(delta)
    assert cliff.interval == pytest.approx(expected)


def test_complete_separation_is_no_certainty() -> None:
    cliff = cliffs_delta(np.arange(5.0) + 10, np.arange(5.0))
    t = stats.t.ppf(0.975, 4)
    assert cliff.delta == 1
    assert cliff.interval == pytest.approx(((5 - t**2) / (5 + t**2), 1))
    mirrored = cliffs_delta(np.arange(5.0), np.arange(5.0) + 10)
    assert mirrored.interval == pytest.approx((-1, (t**2 - 5) / (5 + t**2)))


def test_one_pair_has_no_interval() -> None:
    cliff = cliffs_delta(np.array([1.0]), np.array([0.5]))
    assert (cliff.delta, cliff.within) == (1, 1)
    assert cliff.interval == (None, None)


def test_words_of_the_effect() -> None:
    edges = {0.0: "negligible", 0.146: "negligible", 0.147: "small", 0.33: "medium", 0.473: "medium", 0.474: "large"}
    for delta, word in {**edges, 1.0: "large"}.items():
        assert magnitude(delta) == magnitude(-delta) == word
