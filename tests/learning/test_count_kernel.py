"""The count law in torch against enumeration, the binomial law, numerical gradients and the one without torch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binom
from torch import Tensor

from ntmp_cli.counting import observations
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient
from ntmp_cli.learning import count_kernel as module
from ntmp_cli.learning.count_kernel import CountKernel


def kernel(sizes: Tensor, counts: Tensor, noise: float = 0.0) -> CountKernel:
    return CountKernel(CountObservations(sizes.numpy(), counts.numpy(), count_noise(noise)))


def count_log_prob(z: Tensor, sizes: Tensor, counts: Tensor, noise: float = 0.0) -> Tensor:
    return kernel(sizes, counts, noise).log_prob(z)


def count_posterior(z: Tensor, sizes: Tensor, counts: Tensor, noise: float = 0.0) -> Tensor:
    return kernel(sizes, counts, noise).posterior(z)


def enumerate_counts(z: Tensor, m: int, flip: float = 0.0) -> tuple[float, Tensor]:
    """log P(recorded m) and P(y_i=1 | recorded m) by adding up all 2^n label assignments."""
    n, p = len(z), z.double().sigmoid()
    labels = torch.tensor(list(product((0.0, 1.0), repeat=n)), dtype=torch.double)
    true = labels.sum(dim=1)
    moved = flip / (1 + ((true > 0) & (true < n)).double())  # at an end there is one way to be off by one
    recorded = (true == m).double() * (1 - flip) + ((true - m).abs() == 1) * moved
    probability = torch.where(labels > 0, p, 1 - p).prod(dim=1) * recorded
    return float(probability.sum().log()), probability @ labels / probability.sum()


@pytest.mark.parametrize("safe_nats", [600.0, -1.0], ids=["products", "logarithms"])
@pytest.mark.parametrize("flip", [0.0, 0.2])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 12])
def test_equals_enumeration_for_every_count(
    n: int, flip: float, safe_nats: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SAFE_NATS", safe_nats)
    z = torch.from_numpy(np.random.default_rng(n).normal(0, 3, n))
    for m in range(n + 1):
        expected, posterior = enumerate_counts(z, m, flip)
        sizes, recorded = torch.tensor([n]), torch.tensor([m])
        assert float(count_log_prob(z, sizes, recorded, flip)[0]) == pytest.approx(expected, abs=1e-10)
        torch.testing.assert_close(count_posterior(z, sizes, recorded, flip), posterior, atol=1e-10, rtol=0)


@given(st.integers(1, 200), st.floats(-50, 50), st.data())
@settings(max_examples=60, deadline=None)
def test_equal_scores_give_the_binomial_law(n: int, z: float, data: st.DataObject) -> None:
    m = data.draw(st.integers(0, n))
    log_prob = count_log_prob(torch.full((n,), z, dtype=torch.double), torch.tensor([n]), torch.tensor([m]))
    # Of p and 1−p the smaller one keeps its digits.
    rare = np.exp(-abs(z)) / (1 + np.exp(-abs(z)))
    expected = binom.logpmf(m if z < 0 else n - m, n, rare)
    assert float(log_prob[0]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=6), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_ragged_tuples_equal_each_tuple_alone(shapes: list[tuple[int, int]], seed: int) -> None:
    sizes = torch.tensor([n for n, _ in shapes])
    recorded = torch.tensor([min(m, n) for n, m in shapes])
    z = torch.from_numpy(np.random.default_rng(seed).normal(0, 4, int(sizes.sum())))
    log_prob = count_log_prob(z, sizes, recorded)
    posterior = count_posterior(z, sizes, recorded)
    start = 0
    for t, n in enumerate(sizes.tolist()):
        expected, members = enumerate_counts(z[start : start + n], int(recorded[t]))
        assert float(log_prob[t]) == pytest.approx(expected, abs=1e-10)
        torch.testing.assert_close(posterior[start : start + n], members, atol=1e-10, rtol=0)
        start += n
    # Given the count, the expected number of positives is the count.
    owner = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
    expected = torch.zeros(len(sizes), dtype=torch.double).index_add(0, owner, posterior)
    torch.testing.assert_close(expected, recorded.double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("flip", [0.0, 0.3])
def test_gradient_is_that_of_the_function(flip: float) -> None:
    sizes, recorded = torch.tensor([3, 1, 5, 3]), torch.tensor([1, 1, 4, 3])
    z = torch.randn(12, dtype=torch.double, generator=torch.Generator().manual_seed(0)).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: count_log_prob(z, sizes, recorded, flip), z)


def test_long_tuples_of_extreme_scores_stay_finite_in_single_precision() -> None:
    rng = np.random.default_rng(0)
    recorded = torch.tensor([0, 1, 10, 250, 500, 750, 999, 1000])
    z = torch.from_numpy(rng.choice([-50.0, 50.0], 8000) * rng.random(8000)).float().requires_grad_()
    log_prob = count_log_prob(z, torch.full((8,), 1000), recorded)
    log_prob.sum().backward()
    assert log_prob.dtype == torch.float32
    assert bool(log_prob.isfinite().all())
    assert z.grad is not None
    assert bool((z.grad.abs() <= 1).all())


def test_probabilities_of_all_counts_add_up_to_one() -> None:
    z = torch.linspace(-6, 9, 40, dtype=torch.double)
    for flip in (0.0, 0.25):
        every = torch.arange(41)
        log_prob = count_log_prob(z.repeat(41), torch.full((41,), 40), every, flip)
        assert float(log_prob.exp().sum()) == pytest.approx(1, abs=1e-12)


def test_blocks_of_tuples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(50 * 6, generator=torch.Generator().manual_seed(1))
    sizes, recorded = torch.full((50,), 6), torch.arange(50) % 7
    whole = count_log_prob(z, sizes, recorded)
    monkeypatch.setattr(observations, "TABLE_BYTES", 1)
    assert torch.equal(count_log_prob(z, sizes, recorded), whole)


@pytest.mark.parametrize("flip", [0.0, 0.2])
@pytest.mark.parametrize("shapes", [[(3, 1)], [(7, 5), (7, 0), (7, 3)], [(3, 1), (5, 4), (1, 1)]])
def test_what_is_made_ready_once_serves_any_scores(shapes: list[tuple[int, int]], flip: float) -> None:
    sizes, counts = (np.array(column) for column in zip(*shapes, strict=True))
    recorded = CountKernel(CountObservations(sizes, counts, count_noise(flip)))
    rng = np.random.default_rng(0)
    for _ in range(3):
        z = torch.from_numpy(rng.normal(0, 3, sizes.sum()))
        new = torch.from_numpy(sizes), torch.from_numpy(counts), flip
        assert torch.equal(recorded.log_prob(z), count_log_prob(z, *new))
        assert torch.equal(recorded.posterior(z), count_posterior(z, *new))


@pytest.mark.parametrize("spread", [1.0, 8.0, 50.0])
@pytest.mark.parametrize("noise", [0.0, 0.2])
@pytest.mark.parametrize("lengths", [(3, 4), (12, 13), (1, 60), (150, 200)], ids=str)
def test_equals_the_law_without_torch(lengths: tuple[int, int], noise: float, spread: float) -> None:
    rng = np.random.default_rng(3)
    sizes = rng.integers(*lengths, 50)
    observed = CountObservations(sizes, rng.integers(0, sizes + 1), count_noise(noise))
    z = rng.normal(0, spread, observed.instances)
    expected, gradient = count_gradient(z, observed)
    scores = torch.from_numpy(z).requires_grad_()
    log_prob = CountKernel(observed).log_prob(scores)
    log_prob.sum().backward()
    np.testing.assert_allclose(log_prob.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    assert scores.grad is not None
    np.testing.assert_allclose(scores.grad.numpy(), gradient, rtol=0, atol=1e-12)
    posterior = CountKernel(observed).posterior(torch.from_numpy(z))
    np.testing.assert_allclose(posterior.numpy(), gradient + expit(z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("safe_nats", [600.0, -1.0], ids=["products", "logarithms"])
def test_a_missing_member_changes_no_digit(safe_nats: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuples of one length need no padding; the same ones beside longer ones do."""
    monkeypatch.setattr(module, "_SAFE_NATS", safe_nats)
    rng = np.random.default_rng(4)
    counts = torch.from_numpy(rng.integers(0, 4, 30))
    z = torch.from_numpy(rng.normal(0, 3, 98))
    alone, posterior = kernel(torch.full((30,), 3), counts).sweep(z[:90])
    beside = kernel(torch.tensor([3] * 30 + [8]), torch.cat([counts, torch.tensor([3])])).sweep(z)
    torch.testing.assert_close(beside[0][:30], alone, rtol=0, atol=1e-14)
    torch.testing.assert_close(beside[1][:90], posterior, rtol=0, atol=1e-14)
