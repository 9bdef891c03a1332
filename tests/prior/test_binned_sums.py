from __future__ import annotations

import numpy as np
import pytest

from ntmp_cli.prior.binned_sums import BinnedSums, highest_members, times_sampled
from ntmp_cli.prior.estimator import ScoredTuples, priors


def test_bins_change_no_estimate(simulate) -> None:
    data = simulate(5, 2, 0.3)
    fine, coarse = BinnedSums(data, bins=10**6).sample(), BinnedSums(data).sample()
    for name in priors.names():
        assert priors.get(name)(coarse)[0] == pytest.approx(priors.get(name)(fine)[0], abs=5e-3), name


def test_resamples_scatter_as_literal_resampling_does(simulate) -> None:
    data = simulate(3, 1, 0.4, tuples=200, pool=400)
    rng = np.random.default_rng(7)
    tuples = data.scores.reshape(-1, 3)
    literal = {name: [] for name in ("em-affine", "moments", "best-bin", "em", "tail-ratio")}
    for _ in range(80):
        t, u = rng.integers(200, size=200), rng.integers(400, size=400)
        resampled = ScoredTuples(tuples[t].reshape(-1), data.sizes, data.counts, data.unlabeled[u])
        sample = BinnedSums(resampled).sample()
        for name, estimates in literal.items():
            estimates.append(priors.get(name)(sample)[0])
    blocks = list(BinnedSums(data).resamples(600, rng))
    for name, values in literal.items():
        quick = np.concatenate([priors.get(name)(block) for block in blocks])
        assert quick.std() == pytest.approx(np.std(values), rel=0.35), name
        assert quick.mean() == pytest.approx(np.mean(values), abs=0.6 * np.std(values)), name


def test_one_newton_step_finds_the_line_of_a_resample(simulate) -> None:
    data = simulate(3, 1, 0.4, tuples=1500)
    rng = np.random.default_rng(0)
    indices = rng.integers(1500, size=1500)
    weights = np.bincount(indices, minlength=1500).astype(float)
    sums = BinnedSums(data)
    (line,) = sums._lines(weights[None] @ sums._derivatives)
    resampled = ScoredTuples(data.scores.reshape(-1, 3)[indices].reshape(-1), data.sizes, data.counts, data.unlabeled)
    moved = np.abs(line - np.array(data.line[:2]))
    off = np.abs(line - np.array(resampled.line[:2]))
    assert (off < 0.15 * moved + 6e-3).all()


def test_constant_scores_leave_every_estimator_standing() -> None:
    data = ScoredTuples(np.zeros(90), np.full(30, 3), np.full(30, 1), np.zeros(50))
    sample = BinnedSums(data).sample()
    assert sample.unlabeled.shape == (1, 1)
    for name in priors.names():
        assert priors.get(name)(sample).shape == (1,)


def test_a_resample_that_does_not_determine_a_line_leaves_it_unchanged(simulate) -> None:
    sums = BinnedSums(simulate(3, 1, 0.4, tuples=50))
    derivatives = np.zeros((1, 5))
    derivatives[:, 0] = 1.0
    assert sums._lines(derivatives)[0] == pytest.approx(sums.data.line[:2], abs=0)


def test_the_proxy_of_every_tuple_is_its_highest_members() -> None:
    rng = np.random.default_rng(3)
    sizes, counts = np.array([3, 1, 5, 2]), np.array([1.0, 0.0, 3.0, 2.0])
    scores = rng.standard_normal(11)
    chosen = np.split(highest_members(scores, sizes, counts), np.cumsum(sizes)[:-1])
    for members, z, count in zip(chosen, np.split(scores, np.cumsum(sizes)[:-1]), counts, strict=True):
        assert members.sum() == count
        assert set(z[members == 1]) == set(sorted(z)[len(z) - int(count) :])


def test_there_are_as_many_resamples_as_asked_for_whatever_the_size_of_blocks(simulate, monkeypatch) -> None:
    monkeypatch.setattr("ntmp_cli.prior.binned_sums.BLOCK_BYTES", 8 * 50 * 4)
    sums = BinnedSums(simulate(3, 1, 0.4, tuples=50))
    assert [len(sample.lines) for sample in sums.resamples(10, np.random.default_rng(0))] == [4, 4, 2]


@pytest.fixture
def sums(simulate) -> BinnedSums:
    return BinnedSums(simulate(3, 1, 0.4, tuples=50))


def derivatives(gradient: list[float], hessian: np.ndarray) -> np.ndarray:
    return np.array([[*gradient, hessian[0, 0], hessian[0, 1], hessian[1, 1]]])


def test_the_step_to_the_line_of_a_resample_is_that_of_newton(sums: BinnedSums) -> None:
    hessian = np.array([[-40.0, 11.0], [11.0, -25.0]])
    gradient = [0.7, -1.3]
    expected = np.array(sums.data.line[:2]) - np.linalg.solve(hessian, gradient)
    assert sums._lines(derivatives(gradient, hessian))[0] == pytest.approx(expected, rel=1e-12)


def test_a_step_changes_the_slope_by_at_most_its_half_and_the_intercept_by_at_most_two(sums: BinnedSums) -> None:
    slope, intercept, _ = sums.data.line
    for sign in (1, -1):
        far = sums._lines(derivatives([1e6 * sign, 1e6 * sign], -np.eye(2)))[0]
        assert far == pytest.approx([slope + sign * 0.5 * slope, intercept + sign * 2.0], rel=1e-12)


def test_blocks_are_sampled_whole_and_as_often_as_there_are_blocks() -> None:
    blocks, rng = np.array([7, 7, 3, 9, 3, 9, 9]), np.random.default_rng(0)
    for _ in range(20):
        times = times_sampled(7, blocks, rng)
        assert times[[0, 2, 3]].sum() == 3
        assert (times == times[[0, 0, 2, 3, 2, 3, 3]]).all()
