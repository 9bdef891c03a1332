"""Laws of noise: likelihood, sampler and matrix are the same law."""

from __future__ import annotations

from dataclasses import astuple
from math import comb
from time import perf_counter

import numpy as np
import pytest
from brute_force import off_by_one
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ntmp_cli.counting.laws import Exact, NoiseLaw, OffByOne, count_noise, law_text, noise_laws, parse_law
from ntmp_cli.errors import UsageError

LAWS = [
    *(Exact(), OffByOne(0.0), OffByOne(0.3), OffByOne(1.0)),
    *map(parse_law, ("detect:0.9,0.95", "suppress:3", "round:1")),
]
SIZES = st.lists(st.integers(1, 6).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), min_size=1, max_size=50)


def test_laws_are_registered_by_name() -> None:
    assert {"exact", "off-by-one", "gaussian", "detect"} <= set(noise_laws.names())
    assert noise_laws.get("off-by-one") is OffByOne
    with pytest.raises(UsageError, match="unknown count-law 'of-by-one'; did you mean 'off-by-one'"):
        noise_laws.get("of-by-one")


def test_a_rate_of_zero_is_the_exact_law() -> None:
    assert count_noise(0.0) == Exact()
    assert count_noise(0.2) == OffByOne(0.2)


@pytest.mark.parametrize("rate", [-0.1, 1.5, float("nan")])
def test_a_rate_that_is_no_probability_is_refused(rate: float) -> None:
    with pytest.raises(UsageError, match="must be from 0 to 1"):
        OffByOne(rate)


@pytest.mark.parametrize("n", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.0, 0.3, 1.0])
def test_off_by_one_moves_a_count_to_its_neighbours(n: int, rate: float) -> None:
    expected = [[off_by_one(m, k, n, rate) for k in range(n + 1)] for m in range(n + 1)]
    assert OffByOne(rate).matrix(n) == pytest.approx(np.array(expected))


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_the_recorded_counts_of_a_true_one_add_up_to_one(law: NoiseLaw, n: int) -> None:
    assert law.matrix(n).sum(axis=0) == pytest.approx(np.ones(n + 1))


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_support_holds_every_true_count_that_can_be_behind_a_recorded_one(law: NoiseLaw, n: int) -> None:
    recorded, k = np.arange(n + 1), np.arange(n + 1)
    low, high = law.support(recorded, np.full(n + 1, n))
    outside = (k < low[:, None]) | (k > high[:, None])
    assert (low >= 0).all()
    assert (high <= n).all()
    assert (law.matrix(n)[outside] == 0).all()


@pytest.mark.parametrize("law", LAWS, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_matrix_is_what_is_sampled(law: NoiseLaw, n: int) -> None:
    rng, size = np.random.default_rng(0), 40_000
    for m in range(n + 1):
        seen = law.sample(np.full(size, m), np.full(size, n), rng)
        assert np.bincount(seen, minlength=n + 1) / size == pytest.approx(law.matrix(n)[:, m], abs=0.012)


@settings(deadline=None, max_examples=60)
@given(SIZES, st.floats(0, 1), st.integers(0, 2**32))
def test_a_recorded_count_is_off_by_at_most_one_and_stays_in_range(
    pairs: list[tuple[int, int]], rate: float, seed: int
) -> None:
    n, m = (np.array(column) for column in zip(*pairs, strict=True))
    recorded = OffByOne(rate).sample(m, n, np.random.default_rng(seed))
    assert (np.abs(recorded - m) <= 1).all()
    assert ((recorded >= 0) & (recorded <= n)).all()


@settings(deadline=None, max_examples=60)
@given(SIZES, st.integers(0, 2**32))
def test_no_noise_keeps_and_full_noise_moves_every_count(pairs: list[tuple[int, int]], seed: int) -> None:
    n, m = (np.array(column) for column in zip(*pairs, strict=True))
    assert np.array_equal(OffByOne(0.0).sample(m, n, np.random.default_rng(seed)), m)
    assert (np.abs(OffByOne(1.0).sample(m, n, np.random.default_rng(seed)) - m) == 1).all()


def test_counts_are_moved_at_the_noise_rate_up_and_down_alike() -> None:
    m, n = np.full(20_000, 2), np.full(20_000, 4)
    moved = OffByOne(0.15).sample(m, n, np.random.default_rng(8)) - m
    up, down = np.count_nonzero(moved == 1), np.count_nonzero(moved == -1)
    assert up + down == np.count_nonzero(moved)
    assert stats.binomtest(up + down, 20_000, 0.15).pvalue > 1e-3
    assert stats.binomtest(up, up + down, 0.5).pvalue > 1e-3


def test_counts_at_the_ends_move_at_the_same_rate_inwards() -> None:
    n = np.full(20_000, 3)
    for m, step in ((np.zeros(20_000, dtype=int), 1), (n, -1)):
        moved = OffByOne(0.15).sample(m, n, np.random.default_rng(9)) - m
        assert set(moved.tolist()) == {0, step}
        assert stats.binomtest(np.count_nonzero(moved), 20_000, 0.15).pvalue > 1e-3


@pytest.mark.parametrize("law", ["gaussian:1", "laplace:0.2"])
@pytest.mark.parametrize("low", [2.0, 12.0, 20.0])
def test_ranges_are_as_probable_above_the_count_as_below_it(law: str, low: float) -> None:
    """In the far tail too, where 1 − ε has no digits left: no range that can be recorded has probability 0."""
    noise, zero, n = parse_law(law), np.zeros(1, dtype=np.int64), 40
    above = noise.between(np.array([low]), np.array([low + 3]), zero, n)
    assert above > 0
    assert above == pytest.approx(noise.between(np.array([-low - 3]), np.array([-low]), zero, n), rel=1e-12)
    around = noise.between(np.array([-low]), np.array([low + 3]), zero, n)
    tails = noise.between(np.array([low + 3]), np.array([np.inf]), zero, n) + noise.between(
        np.array([-np.inf]), np.array([-low]), zero, n
    )
    assert around == pytest.approx(1 - tails)


@pytest.mark.parametrize("text", ["round:1e300", "suppress:1e300", "round:1e19", "round:2.5", "suppress:0"])
def test_a_step_that_is_no_size_of_a_tuple_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="it must be a whole number from 1 to 2147483648"):
        parse_law(text)


def test_a_scale_may_be_as_large_as_a_float() -> None:
    assert law_text(parse_law("laplace:1e300")) == "laplace:1e+300"


@pytest.mark.parametrize("law", ["detect:0.9,0.8", "detect:0.9,1", "detect:1,0.7"])
def test_counted_members_of_all_counts_are_as_of_one(law: str) -> None:
    """The table of one length, and what needs one term only, by the definition: a sum over the positives counted."""
    n, detect = 30, parse_law(law)
    k = np.arange(n + 1)
    expected = np.array([[_counted(r, j, n, *astuple(detect)) for j in k] for r in k])
    assert detect.matrix(n) == pytest.approx(expected, rel=1e-9, abs=1e-300)
    assert detect.likelihood(k[:, None], k, n) == pytest.approx(expected, rel=1e-9, abs=1e-300)


def _counted(r: int, k: int, n: int, sensitivity: float, specificity: float) -> float:
    """P(r are counted | k of n are positive)."""
    return sum(
        comb(k, j)
        * sensitivity**j
        * (1 - sensitivity) ** (k - j)
        * comb(n - k, r - j)
        * (1 - specificity) ** (r - j)
        * specificity ** (n - k - r + j)
        for j in range(max(0, r - (n - k)), min(r, k) + 1)
    )


def test_positives_that_are_missed_in_a_large_tuple_take_seconds_not_hours() -> None:
    n, started = 50_000, perf_counter()
    k = np.arange(n + 1)
    likelihood = parse_law("detect:0.9,1").likelihood(np.array(18_000), k, n)
    assert perf_counter() - started < 5
    assert k[np.argmax(likelihood)] == pytest.approx(20_000, abs=2)
