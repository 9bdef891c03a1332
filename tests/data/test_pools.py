from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ntmp_cli.data.pools import PoolRequest, choose_unlabeled, split_pool
from ntmp_cli.errors import UsageError


def labelled_candidates(positives: int, negatives: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Some instances of a larger source, in random order, with so many of each class."""
    rng = np.random.default_rng(1)
    positive = rng.permutation(np.arange(4 * max(positives, negatives, 1)) % 2 == 0)
    by_class = [np.flatnonzero(positive)[:positives], np.flatnonzero(~positive)[:negatives]]
    return rng.permutation(np.concatenate(by_class)), positive


@settings(deadline=None)
@given(st.integers(1, 400), st.floats(0.01, 0.99), st.floats(0, 0.99), st.integers(0, 2**32))
def test_the_pools_are_disjoint_and_cover_the_training_split(
    size: int, share: float, heldout: float, seed: int
) -> None:
    split = split_pool(size, share, heldout, np.random.default_rng(seed))
    everything = [split.tuples, split.tuples_heldout, split.unlabeled, split.unlabeled_heldout]
    assert sorted(np.concatenate(everything).tolist()) == list(range(size))
    tuples = len(split.tuples) + len(split.tuples_heldout)
    assert abs(tuples - size * share) <= 0.5
    assert abs(len(split.tuples_heldout) - tuples * heldout) <= 0.5
    assert abs(len(split.unlabeled_heldout) - (size - tuples) * heldout) <= 0.5


def test_every_index_is_equally_likely_to_be_in_every_pool() -> None:
    where = np.zeros((10, 4), dtype=int)
    for seed in range(1000):
        split = split_pool(10, 0.6, 0.5, np.random.default_rng(seed))
        for column, indices in enumerate(
            (split.tuples, split.tuples_heldout, split.unlabeled, split.unlabeled_heldout)
        ):
            where[indices, column] += 1
    assert where.sum(axis=0).tolist() == [3000, 3000, 2000, 2000]
    assert stats.chi2_contingency(where).pvalue > 1e-3


def test_no_heldout_share_sets_nothing_aside() -> None:
    split = split_pool(100, 0.5, 0.0, np.random.default_rng(0))
    assert len(split.tuples_heldout) == len(split.unlabeled_heldout) == 0


@settings(deadline=None, max_examples=300)
@given(
    st.integers(0, 80), st.integers(0, 80), st.floats(0.01, 0.99), st.none() | st.integers(1, 160), st.integers(0, 9)
)
def test_the_pool_has_the_requested_prior_and_no_repetition_or_the_request_is_refused(
    positives: int, negatives: int, prior: float, size: int | None, seed: int
) -> None:
    candidates, positive = labelled_candidates(positives, negatives)
    try:
        chosen = choose_unlabeled(candidates, positive, PoolRequest(prior, size), np.random.default_rng(seed))
    except UsageError:
        if size is not None:
            feasible = [k for k in range(1, size) if k <= positives and size - k <= negatives]
            assert not any(abs(k / size - prior) < 1 / (2 * size) for k in feasible)
        return
    assert size is None or len(chosen) == size
    assert len(set(chosen.tolist())) == len(chosen)
    assert set(chosen.tolist()) <= set(candidates.tolist())
    assert abs(positive[chosen].mean() - prior) <= 1 / (2 * len(chosen)) + 1e-12


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 200), st.integers(1, 200), st.integers(2, 98))
def test_without_a_size_the_pool_is_the_largest_with_that_prior(positives: int, negatives: int, percent: int) -> None:
    candidates, positive = labelled_candidates(positives, negatives)
    # The largest N with πN ≤ positives and (1−π)N ≤ negatives, in whole numbers.
    largest = min(100 * positives // percent, 100 * negatives // (100 - percent))
    assume(1 <= round(percent * largest / 100) < largest)
    chosen = choose_unlabeled(candidates, positive, PoolRequest(percent / 100, None), np.random.default_rng(0))
    assert len(chosen) == largest


@pytest.mark.parametrize(
    ("positives", "negatives", "prior", "size", "message", "most"),
    [
        (
            30,
            70,
            0.8,
            50,
            "prior 0.8 cannot be reached: 50 unlabeled instances need 40 positives and 10 negatives, "
            "but only 30 and 70 are available",
            37,
        ),
        (
            70,
            30,
            0.25,
            80,
            "prior 0.25 cannot be reached: 80 unlabeled instances need 20 positives and 60 negatives, "
            "but only 70 and 30 are available",
            40,
        ),
        (
            0,
            30,
            0.5,
            None,
            "prior 0.5 cannot be reached: 0 unlabeled instances need 0 positives and 0 negatives, "
            "but only 0 and 30 are available",
            0,
        ),
        (
            30,
            30,
            0.01,
            10,
            "prior 0.01 cannot be reached: 10 unlabeled instances need 0 positives and 10 negatives, "
            "but only 30 and 30 are available",
            30,
        ),
    ],
)
def test_an_unreachable_prior_is_refused_with_the_numbers(
    positives: int, negatives: int, prior: float, size: int | None, message: str, most: int
) -> None:
    candidates, positive = labelled_candidates(positives, negatives)
    with pytest.raises(UsageError) as error:
        choose_unlabeled(candidates, positive, PoolRequest(prior, size), np.random.default_rng(0))
    assert error.value.message == message
    assert error.value.hint == (
        f"At this prior the pool can hold at most {most}; lower --unlabeled-size, move --prior "
        "towards the middle, or lower --tuple-share."
    )


def test_without_a_prior_the_pool_holds_all_candidates() -> None:
    candidates, positive = labelled_candidates(20, 50)
    chosen = choose_unlabeled(candidates, positive, PoolRequest(None, None), np.random.default_rng(0))
    assert sorted(chosen.tolist()) == sorted(candidates.tolist())


def test_without_a_prior_a_size_takes_a_random_sample_of_the_candidates() -> None:
    candidates, positive = labelled_candidates(20, 60)
    shares, used = [], np.zeros(len(positive), dtype=int)
    for seed in range(800):
        chosen = choose_unlabeled(candidates, positive, PoolRequest(None, 10), np.random.default_rng(seed))
        assert len(set(chosen.tolist())) == 10
        used[chosen] += 1
        shares.append(positive[chosen].mean())
    assert stats.chisquare(used[candidates]).pvalue > 1e-3
    assert abs(np.mean(shares) - 0.25) < 4 * np.std(shares) / np.sqrt(800)


def test_a_pool_larger_than_its_candidates_is_refused() -> None:
    candidates, positive = labelled_candidates(3, 4)
    with pytest.raises(UsageError) as error:
        choose_unlabeled(candidates, positive, PoolRequest(None, 8), np.random.default_rng(0))
    assert error.value.message == "an unlabeled pool of 8 was requested, but only 7 instances are available for it"


@pytest.mark.parametrize("prior", [None, 0.5])
def test_no_candidates_are_refused(prior: float | None) -> None:
    candidates, positive = labelled_candidates(0, 0)
    with pytest.raises(UsageError, match=r"^no instances are left for the unlabeled pool$"):
        choose_unlabeled(candidates, positive, PoolRequest(prior, None), np.random.default_rng(0))


def test_the_order_of_the_pool_does_not_tell_the_classes_apart() -> None:
    candidates, positive = labelled_candidates(40, 40)
    first = [
        bool(positive[choose_unlabeled(candidates, positive, PoolRequest(0.5, None), np.random.default_rng(seed))[0]])
        for seed in range(400)
    ]
    assert stats.binomtest(sum(first), 400, 0.5).pvalue > 1e-3


# Pools whose labels are sampled at random -------------------------------------------------------------


@pytest.mark.parametrize(("prior", "size"), [(0.3, 60), (0.05, None), (0.8, None)])
def test_the_positives_of_an_iid_pool_are_binomial(prior: float, size: int | None) -> None:
    candidates, positive = labelled_candidates(200, 300)
    request = PoolRequest(prior, size, is_iid=True)
    pools = [choose_unlabeled(candidates, positive, request, np.random.default_rng(seed)) for seed in range(400)]
    (total,) = {len(pool) for pool in pools}
    assert size in (None, total)
    assert all(len(set(pool.tolist())) == total for pool in pools)
    counts = np.array([int(positive[pool].sum()) for pool in pools])
    assert stats.binomtest(int(counts.sum()), total * len(pools), prior).pvalue > 1e-3
    assert counts.var(ddof=1) == pytest.approx(total * prior * (1 - prior), rel=0.35)
    exact = choose_unlabeled(candidates, positive, PoolRequest(prior, total), np.random.default_rng(0))
    assert int(positive[exact].sum()) == round(prior * total)


def test_the_default_size_of_an_iid_pool_leaves_room_for_its_scatter() -> None:
    candidates, positive = labelled_candidates(100, 100)
    pool = choose_unlabeled(candidates, positive, PoolRequest(0.5, None, is_iid=True), np.random.default_rng(0))
    # 70 + 5 √35 = 99.6 of the 100 positives; one instance more would be 100.2.
    assert len(pool) == 140


def test_an_iid_pool_that_its_labels_do_not_fill_is_refused() -> None:
    candidates, positive = labelled_candidates(10, 100)
    with pytest.raises(UsageError, match=r"prior 0.5 cannot be reached: 60 unlabeled instances need \d+ positives"):
        choose_unlabeled(candidates, positive, PoolRequest(0.5, 60, is_iid=True), np.random.default_rng(0))
