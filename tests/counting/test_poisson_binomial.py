"""The law of the count against enumeration, the binomial law, numerical gradients, and each tuple alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from brute_force import Floats, enumerated
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom

from ntmp_cli.counting import observations, poisson_binomial
from ntmp_cli.counting.laws import NoiseLaw, count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_law, count_log_prob, count_posterior

TABLES = pytest.mark.parametrize("tiny", [1e-200, 2.0], ids=["products", "logarithms"])
NOISE = pytest.mark.parametrize("noise", [0.0, 0.2])


@TABLES
@NOISE
@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_equals_enumeration_for_every_count(n: int, noise: float, tiny: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poisson_binomial, "TINY", tiny)
    z = np.random.default_rng(n).normal(0, 3, n)
    for m in range(n + 1):
        expected, posterior = enumerated(z, m, noise)
        observed = CountObservations([n], [m], count_noise(noise))
        assert count_log_prob(z, observed) == pytest.approx([expected], abs=1e-10)
        assert count_posterior(z, observed) == pytest.approx(posterior, abs=1e-10)
        log_prob, gradient = count_gradient(z, observed)
        assert log_prob == pytest.approx([expected], abs=1e-10)
        assert gradient == pytest.approx(posterior - expit(z), abs=1e-10)


@given(st.integers(1, 200), st.floats(-50, 50), st.data())
@settings(max_examples=100, deadline=None)
def test_equal_scores_give_the_binomial_law(n: int, z: float, data: Any) -> None:
    m = data.draw(st.integers(0, n))
    observed, scores = CountObservations([n], [m]), np.full(n, z)
    # Of p and 1−p the smaller one keeps its digits.
    rare = np.exp(-abs(z)) / (1 + np.exp(-abs(z)))
    expected = binom.logpmf(m if z < 0 else n - m, n, rare)
    log_prob, gradient = count_gradient(scores, observed)
    assert log_prob == pytest.approx([expected], rel=1e-6, abs=1e-9)
    assert count_log_prob(scores, observed) == pytest.approx([expected], rel=1e-6, abs=1e-9)
    # Members that score alike are positive alike.
    assert gradient == pytest.approx(np.full(n, m / n - expit(z)), abs=1e-9)


@TABLES
@given(st.lists(st.tuples(st.integers(1, 30), st.floats(0, 1)), min_size=1, max_size=12), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_ragged_tuples_equal_each_tuple_alone(tiny: float, shapes: list[tuple[int, float]], seed: int) -> None:
    sizes = np.array([n for n, _ in shapes])
    counts = np.array([round(share * n) for n, share in shapes])
    z = np.random.default_rng(seed).normal(0, 4, int(sizes.sum()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(poisson_binomial, "TINY", tiny)
        for law in (count_noise(0.0), count_noise(0.3)):
            check_against_each_alone(z, sizes, counts, law)


def check_against_each_alone(z: Floats, sizes: Any, counts: Any, law: NoiseLaw) -> None:
    log_prob, gradient = count_gradient(z, CountObservations(sizes, counts, law))
    pieces = np.split(z, np.cumsum(sizes)[:-1])
    alone = [
        count_gradient(piece, CountObservations([n], [m], law))
        for piece, n, m in zip(pieces, sizes, counts, strict=True)
    ]
    # A missing member has odds 0, so that padding changes nothing but the order of sums.
    np.testing.assert_allclose(log_prob, np.concatenate([value for value, _ in alone]), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gradient, np.concatenate([slopes for _, slopes in alone]), rtol=0, atol=1e-13)


def test_given_the_count_the_expected_number_of_positives_is_the_count() -> None:
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 40, 60)
    counts = rng.integers(0, sizes + 1)
    observed = CountObservations(sizes, counts)
    posterior = count_posterior(rng.normal(0, 4, observed.instances), observed)
    assert observed.sum_by_tuple(posterior) == pytest.approx(counts, abs=1e-9)


@NOISE
def test_the_gradient_is_that_of_the_function(noise: float) -> None:
    observed = CountObservations([3, 1, 5, 3], [1, 1, 4, 3], count_noise(noise))
    z, step = np.random.default_rng(0).normal(size=12), 1e-5
    shifted = z + step * np.vstack([np.eye(12), -np.eye(12)])
    above, below = np.split(count_log_prob(shifted, observed).sum(axis=1), 2)
    assert count_gradient(z, observed)[1] == pytest.approx((above - below) / (2 * step), abs=1e-8)


@NOISE
def test_probabilities_of_all_counts_add_up_to_one(noise: float) -> None:
    z = np.linspace(-6, 9, 40)
    observed = CountObservations(np.full(41, 40), np.arange(41), count_noise(noise))
    assert np.exp(count_log_prob(np.tile(z, 41), observed)).sum() == pytest.approx(1, abs=1e-12)


def test_long_tuples_of_extreme_scores_stay_finite() -> None:
    rng = np.random.default_rng(0)
    recorded = [0, 1, 10, 250, 500, 750, 999, 1000]
    z = rng.choice([-50.0, 50.0], 8000) * rng.random(8000)
    log_prob, gradient = count_gradient(z.astype(np.float32), CountObservations([1000] * 8, recorded))
    assert np.isfinite(log_prob).all()
    assert (np.abs(gradient) <= 1 + 1e-12).all()
    assert log_prob.min() < -10_000  # far below what a product of doubles can hold


def test_tuples_that_underflow_do_not_disturb_their_neighbours() -> None:
    rng = np.random.default_rng(2)
    sizes, counts = np.full(20, 40), rng.integers(0, 41, 20)
    z = rng.normal(0, 1, 800)
    expected = count_gradient(z[:760], CountObservations(sizes[:19], counts[:19]))
    z[760:] = 45.0
    counts[19] = 3  # about e^-1665
    log_prob, gradient = count_gradient(z, CountObservations(sizes, counts))
    assert log_prob[19] == pytest.approx(binom.logpmf(37, 40, np.exp(-45.0)), rel=1e-6)
    assert np.array_equal(log_prob[:19], expected[0])
    assert np.array_equal(gradient[:760], expected[1])


def test_scores_without_end_are_certain_labels() -> None:
    inf = np.inf
    z = np.array([inf, -inf, 0.0, inf, inf, -inf, -inf, 2.0])
    observed = CountObservations([3, 3, 2], [1, 2, 1])
    assert count_log_prob(z, observed) == pytest.approx([np.log(0.5), 0.0, np.log(expit(2.0))])
    assert count_posterior(z, observed) == pytest.approx([1, 0, 0, 1, 1, 0, 0, 1])
    impossible = CountObservations([2], [0])
    assert count_log_prob(np.array([inf, 0.0]), impossible).tolist() == [-inf]


@pytest.mark.parametrize("table_bytes", [1, 2000, 2**20])
def test_blocks_of_tuples_change_nothing(table_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 20, 50)
    counts, z = rng.integers(0, sizes + 1), rng.normal(0, 2, int(sizes.sum()))
    whole = count_gradient(z, CountObservations(sizes, counts))
    monkeypatch.setattr(observations, "TABLE_BYTES", table_bytes)
    blocks = CountObservations(sizes, counts)
    assert table_bytes > 2000 or len(blocks.groups) > 3
    for values, expected in zip(count_gradient(z, blocks), whole, strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("cached", [1, 2**16])
def test_many_rows_of_scores_of_the_same_tuples_at_once(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poisson_binomial, "CACHED", cached)
    rng = np.random.default_rng(4)
    observed = CountObservations([3, 2, 3, 12], [1, 2, 0, 7], count_noise(0.1))
    z = rng.normal(size=(2, 5, 20))
    z[0, 0] = 200 * np.where(z[0, 0] > 0, 1, -1)  # one row that underflows
    log_prob = count_log_prob(z, observed)
    assert log_prob.shape == (2, 5, 4)
    for row, expected in zip(z.reshape(10, 20), log_prob.reshape(10, 4), strict=True):
        assert count_log_prob(row, observed) == pytest.approx(expected, rel=1e-12)
    assert -count_log_prob(z, observed).mean(axis=-1) == pytest.approx(-log_prob.mean(axis=-1))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 5)), min_size=1, max_size=5), st.data())
@settings(max_examples=60, deadline=None)
def test_the_mean_is_over_tuples_by_the_sum_over_all_labels(shapes: list[tuple[int, int]], data: Any) -> None:
    sizes, counts = np.array([n for n, _ in shapes]), np.array([min(n, m) for n, m in shapes])
    z = np.array(data.draw(st.lists(st.floats(-8, 8), min_size=int(sizes.sum()), max_size=int(sizes.sum()))))
    noise = data.draw(st.sampled_from([0.0, 0.1, 0.5]))
    pieces = np.split(z, np.cumsum(sizes)[:-1])
    probabilities = [enumerated(piece, int(m), noise)[0] for piece, m in zip(pieces, counts, strict=True)]
    observed = CountObservations(sizes, counts, count_noise(noise))
    assert float(-count_log_prob(z, observed).mean(axis=-1)) == pytest.approx(-np.mean(probabilities), rel=1e-9)


def test_the_full_law_is_that_of_every_count() -> None:
    z = np.random.default_rng(0).normal(0, 3, (2, 5, 4))
    law = count_law(z)
    assert law.shape == (2, 5, 5)
    for at in np.ndindex(2, 5):
        assert law[at] == pytest.approx([np.exp(enumerated(z[at], k)[0]) for k in range(5)])


def test_the_full_law_of_long_tuples_is_the_binomial() -> None:
    assert count_law(np.full((1, 200), -1.0))[0] == pytest.approx(binom.pmf(np.arange(201), 200, expit(-1.0)), rel=1e-9)


def test_scores_of_other_tuples_are_refused() -> None:
    with pytest.raises(ValueError, match="4 scores of tuples with 3 members"):
        count_posterior(np.zeros(4), CountObservations([3], [1]))


def test_no_tuples_give_empty_results() -> None:
    """A law that allows every count says nothing: probability 1, no gradient."""

    class Everything(NoiseLaw):
        def likelihood(self, recorded: Any, k: Any, n: Any) -> Floats:
            return np.ones(np.broadcast_shapes(np.shape(recorded), np.shape(k)))

        def sample(self, counts: Any, sizes: Any, rng: np.random.Generator) -> Any:
            return counts

    z = np.random.default_rng(0).normal(0, 3, 9)
    log_prob, gradient = count_gradient(z, CountObservations([4, 5], [1, 2], Everything()))
    assert log_prob == pytest.approx([0, 0], abs=1e-12)
    assert gradient == pytest.approx(np.zeros(9), abs=1e-12)


def test_any_likelihood_over_counts_is_summed_over_counts() -> None:
    """Ranges, percentages and other laws are other rows of L: log Σ_k L(k) P(k)."""
    table = np.random.default_rng(5).random((3, 8))

    class AnyLaw(NoiseLaw):
        def likelihood(self, recorded: Any, k: Any, n: Any) -> Floats:
            return table[recorded, k]

        def sample(self, counts: Any, sizes: Any, rng: np.random.Generator) -> Any:
            return counts

    z = np.random.default_rng(6).normal(0, 2, (3, 7))
    observed = CountObservations([7, 7, 7], [0, 1, 2], AnyLaw())
    expected = np.log((count_law(z) * table).sum(axis=1))
    assert count_log_prob(z.reshape(-1), observed) == pytest.approx(expected, abs=1e-12)
    log_prob, gradient = count_gradient(z.reshape(-1), observed)
    step = 1e-5
    shifted = z.reshape(-1) + step * np.vstack([np.eye(21), -np.eye(21)])
    above, below = np.split(count_log_prob(shifted, observed).sum(axis=1), 2)
    assert log_prob == pytest.approx(expected, abs=1e-12)
    assert gradient == pytest.approx((above - below) / (2 * step), abs=1e-8)
