"""Large tuples against the tables, closed forms, and the bounds that their error is known by."""

from __future__ import annotations

import tracemalloc
from unittest.mock import patch

import numpy as np
import pytest
import torch
from scipy import stats

from ntmp_cli.counting import observations
from ntmp_cli.counting.large import LARGE, large_tuple
from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_log_prob
from ntmp_cli.counting.recorded import Counts, records
from ntmp_cli.learning.count_kernel import CountKernel

N = LARGE + 200
KINDS = [
    (0, 0, "exact"),
    (3, 3, "exact"),
    (N // 2, N // 2, "exact"),
    (N - 1, N - 1, "exact"),
    (N, N, "exact"),
    (1, N, "exact"),
    (0, 5, "exact"),
    (N - 40, N, "exact"),
    (200, 210, "exact"),
    (12.3, 12.3, "gaussian:17"),
    (900.0, 900.0, "laplace:20"),
    (-5, -5, "geometric:0.5"),
    (150, 150, "off-by-one:0.1"),
    (200, 200, "detect:0.9,0.98"),
    (250, 250, "round:10"),
    (0, 0, "suppress:6"),
    (1, 1, "pooled-test:0.9,0.95"),
    (0, 0, "pooled-test:0.9,0.95"),
]


def by_tables(z: Floats, sizes: list[int], counts: Counts) -> tuple[Floats, Floats]:
    with patch.object(observations, "LARGE", 10**9):
        return count_gradient(z, CountObservations(sizes, counts))


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.5, 20.0])
@pytest.mark.parametrize(("low", "high", "law"), KINDS)
def test_a_large_tuple_is_that_of_the_tables(low: float, high: float, law: str, scale: float) -> None:
    z = np.random.default_rng(7).normal(0.3, scale, N)
    counts = records([low], [high], law)
    log_prob, gradient = count_gradient(z, CountObservations([N], counts))
    expected, slope = by_tables(z, [N], counts)
    assert log_prob == pytest.approx(expected, abs=1e-8, rel=1e-11)
    assert gradient == pytest.approx(slope, abs=1e-8)
    assert count_log_prob(z, CountObservations([N], counts)) == pytest.approx(log_prob, abs=1e-12)


def test_equal_members_are_binomial_at_any_size() -> None:
    for n, m in ((5_000, 2_500), (100_000, 40), (100_000, 61_000)):
        value = count_log_prob(np.full(n, 0.4), CountObservations([n], [m]))[0]
        assert value == pytest.approx(stats.binom.logpmf(m, n, 1 / (1 + np.exp(-0.4))), rel=1e-9)


def test_members_that_are_certain_leave_the_others_to_the_count() -> None:
    """Two uncertain members among many certain ones: the law is theirs."""
    z = np.concatenate([np.full(400, 60.0), np.full(300, -60.0), [0.5, -1.0]])
    log_prob, gradient = count_gradient(z, CountObservations([702], [401]))
    p, q = 1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(1.0))
    assert log_prob[0] == pytest.approx(np.log(p * (1 - q) + q * (1 - p)), abs=1e-9)
    assert gradient[-2] == pytest.approx(p * (1 - q) / (p * (1 - q) + q * (1 - p)) - p, abs=1e-9)


def test_large_and_small_tuples_stand_beside_each_other_in_both_kernels() -> None:
    sizes, rng = [4, 450, 2, 320, 330], np.random.default_rng(9)
    counts = records([1, 300, 2, 1, 20], [3, 300, 2, 320, 20], ["exact", "exact", "exact", "exact", "gaussian:5"])
    z = rng.normal(0, 2, sum(sizes))
    log_prob, gradient = count_gradient(z, CountObservations(sizes, counts))
    expected, slope = by_tables(z, sizes, counts)
    assert log_prob == pytest.approx(expected, abs=1e-8)
    assert gradient == pytest.approx(slope, abs=1e-8)
    scores = torch.from_numpy(z).requires_grad_()
    value = CountKernel(CountObservations(sizes, counts)).log_prob(scores)
    value.sum().backward()
    assert value.detach().numpy() == pytest.approx(log_prob, abs=1e-10)
    assert scores.grad is not None
    assert scores.grad.numpy() == pytest.approx(gradient, abs=1e-10)


def test_memory_is_linear_in_the_members() -> None:
    def peak(n: int) -> int:
        z, likelihood = np.random.default_rng(0).normal(size=n), np.zeros(n + 1)
        likelihood[n // 2] = 1
        tracemalloc.start()
        large_tuple(z, likelihood)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(40_000) < 200 * 40_000
    assert peak(80_000) < 2.5 * peak(40_000)
