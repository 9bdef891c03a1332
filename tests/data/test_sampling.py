from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from ntmp_cli.data import sampling
from ntmp_cli.data.sampling import TupleSampler
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.errors import UsageError

SPECS = ["1:0", "1:1", "2:1", "3:1", "3:3", "4:2", "5:1-3", "2-4:1", "3:~0.5", "1-3:~0.3@2", "5:0@0.5"]


@dataclass(frozen=True)
class SampledTuples:
    """All tuples of a sampler as lists of indices, with both counts."""

    members: list[NDArray[np.int64]]
    counts: NDArray[np.int64]
    true_counts: NDArray[np.int64]


def collect(sampler: TupleSampler) -> SampledTuples:
    blocks = list(sampler.blocks())
    members = [t for b in blocks for t in np.split(b.indices, b.offsets[1:-1])]
    counts, true = (np.concatenate([getattr(b, key) for b in blocks]) for key in ("counts", "true_counts"))
    return SampledTuples(members, counts, true)


def two_pools(positives: int, negatives: int, universe: int = 60) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A pool scattered over a larger source, so that a position is never mistaken for an index."""
    rng = np.random.default_rng(0)
    positive = rng.random(universe) < 0.5
    chosen = [rng.permutation(np.flatnonzero(positive))[:positives], rng.permutation(np.flatnonzero(~positive))]
    return rng.permutation(np.concatenate([chosen[0], chosen[1][:negatives]])), positive


@st.composite
def samplers(draw: st.DrawFn) -> TupleSampler:
    """Any mixture over class pools hardly larger than a tuple, so that passes wrap all the time."""
    specs = [parse_spec(t) for t in draw(st.lists(st.sampled_from(SPECS), min_size=1, max_size=3))]
    pool, positive = two_pools(
        max(s.most_positives for s in specs) + draw(st.integers(0, 4)),
        max(s.most_negatives for s in specs) + draw(st.integers(0, 4)),
    )
    return TupleSampler(specs, draw(st.integers(1, 60)), pool, positive, 0.0, draw(st.integers(0, 2**40)), "train")


def check_promises(sampler: TupleSampler) -> None:
    """Exact counts, no repetition in a tuple, reuse only of a used-up class pool."""
    sampled = collect(sampler)
    assert len(sampled.members) == sampler.size
    used = np.zeros(len(sampler.positive), dtype=int)
    classes = [sampler.pool[sampler.positive[sampler.pool]], sampler.pool[~sampler.positive[sampler.pool]]]
    for members, true in zip(sampled.members, sampled.true_counts, strict=True):
        assert np.isin(members, sampler.pool).all()
        assert len(set(members.tolist())) == len(members)
        assert sampler.positive[members].sum() == true
        np.add.at(used, members, 1)
        for pool in classes:
            # Nothing is ahead of the rest by more than one use: what comes again had waited for all others.
            assert len(pool) == 0 or np.ptp(used[pool]) <= 1
    totals = [int(used[pool].sum()) for pool in classes]
    reuse = sampler.reuse()
    assert reuse["positive"] == pytest.approx(totals[0] / max(len(classes[0]), 1), abs=5e-5)
    assert reuse["negative"] == pytest.approx(totals[1] / max(len(classes[1]), 1), abs=5e-5)
    assert reuse == {name: round(value, 4) for name, value in reuse.items()}


@settings(deadline=None, max_examples=150)
@given(samplers())
def test_tuples_are_exact_free_of_repetition_and_reuse_only_used_up_pools(sampler: TupleSampler) -> None:
    check_promises(sampler)


@settings(deadline=None, max_examples=60)
@given(samplers(), st.integers(1, 9))
def test_the_promises_hold_across_block_boundaries(sampler: TupleSampler, block: int) -> None:
    before = sampling.BLOCK
    sampling.BLOCK = block
    try:
        check_promises(sampler)
    finally:
        sampling.BLOCK = before


def test_the_promises_hold_over_several_blocks_of_full_size() -> None:
    pool, positive = two_pools(7, 9)
    sampler = TupleSampler([parse_spec("4:~0.5")], 2 * sampling.BLOCK + 5, pool, positive, 0.0, 3, "train")
    assert [len(b.counts) for b in sampler.blocks()] == [sampling.BLOCK, sampling.BLOCK, 5]
    check_promises(TupleSampler(sampler.specs, sampler.size, pool, positive, 0.0, 3, "train"))


def test_a_pool_as_large_as_one_pass_is_used_exactly_once() -> None:
    pool, positive = two_pools(8, 16)
    sampler = TupleSampler([parse_spec("3:1")], 8, pool, positive, 0.0, 0, "train")
    sampled = collect(sampler)
    assert sorted(np.concatenate(sampled.members).tolist()) == sorted(pool.tolist())
    assert sampler.reuse() == {"positive": 1.0, "negative": 1.0}


def test_recorded_counts_are_the_true_counts_without_noise() -> None:
    pool, positive = two_pools(6, 6)
    sampled = collect(TupleSampler([parse_spec("2-6:~0.4")], 500, pool, positive, 0.0, 1, "train"))
    assert np.array_equal(sampled.counts, sampled.true_counts)


def test_every_pattern_of_positions_is_equally_frequent() -> None:
    pool, positive = two_pools(9, 11)
    sampled = collect(TupleSampler([parse_spec("5:2")], 6000, pool, positive, 0.0, 2, "train"))
    patterns = [tuple(np.flatnonzero(positive[members]).tolist()) for members in sampled.members]
    observed = [patterns.count(pattern) for pattern in combinations(range(5), 2)]
    assert sum(observed) == 6000
    assert stats.chisquare(observed).pvalue > 1e-3


def test_every_instance_is_equally_frequent_at_every_position() -> None:
    pool, positive = two_pools(5, 5)
    sampled = collect(TupleSampler([parse_spec("4:2")], 5000, pool, positive, 0.0, 4, "train"))
    columns = np.stack(sampled.members)
    table = np.array([[np.count_nonzero(columns[:, j] == i) for j in range(4)] for i in pool])
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_every_instance_is_equally_likely_to_come_first_in_a_pass() -> None:
    pool, positive = two_pools(6, 6)
    firsts = [
        collect(TupleSampler([parse_spec("1:1")], 1, pool, positive, 0.0, seed, "train")).members[0][0]
        for seed in range(1200)
    ]
    members = pool[positive[pool]]
    assert stats.chisquare([firsts.count(i) for i in members]).pvalue > 1e-3


def test_a_tuple_that_crosses_two_passes_takes_any_other_member_alike() -> None:
    """Pool of 4, tuples of 3: the second tuple is the one left over and any two of the three others."""
    pool, positive = two_pools(4, 0)
    left_out = []
    for seed in range(1200):
        first, second = collect(TupleSampler([parse_spec("3:3")], 2, pool, positive, 0.0, seed, "train")).members
        (left_over,) = set(pool.tolist()) - set(first.tolist())
        assert left_over in second
        (out,) = set(pool.tolist()) - set(second.tolist())
        left_out.append(first.tolist().index(out))
    assert stats.chisquare(np.bincount(left_out, minlength=3)).pvalue > 1e-3


@pytest.mark.parametrize(
    ("specs", "positives", "negatives", "message"),
    [
        ("4:3", 2, 9, "a tuple may need 3 different positives, but the heldout tuple share has 2"),
        ("4:1", 9, 2, "a tuple may need 3 different negatives, but the heldout tuple share has 2"),
        ("3-6:1", 9, 4, "a tuple may need 5 different negatives, but the heldout tuple share has 4"),
        ("5:~0.1", 4, 9, "a tuple may need 5 different positives, but the heldout tuple share has 4"),
        ("1:1", 0, 9, "a tuple may need 1 different positives, but the heldout tuple share has 0"),
        # Of several specs the one that needs most decides, wherever it stands.
        ("6:5 2:1", 4, 9, "a tuple may need 5 different positives, but the heldout tuple share has 4"),
        ("2:1 6:5", 4, 9, "a tuple may need 5 different positives, but the heldout tuple share has 4"),
        ("6:1 2:1", 9, 4, "a tuple may need 5 different negatives, but the heldout tuple share has 4"),
        ("2:1 6:1", 9, 4, "a tuple may need 5 different negatives, but the heldout tuple share has 4"),
    ],
)
def test_a_pool_smaller_than_a_tuple_needs_is_refused_before_sampling(
    specs: str, positives: int, negatives: int, message: str
) -> None:
    pool, positive = two_pools(positives, negatives)
    with pytest.raises(UsageError) as error:
        TupleSampler([parse_spec(spec) for spec in specs.split()], 1, pool, positive, 0.0, 0, "heldout")
    assert error.value.message == message


def test_a_class_that_no_tuple_needs_may_be_absent() -> None:
    pool, positive = two_pools(0, 5)
    sampler = TupleSampler([parse_spec("2:0")], 7, pool, positive, 0.0, 0, "train")
    assert all(not positive[members].any() for members in collect(sampler).members)
    assert sampler.reuse() == {"positive": 0.0, "negative": 2.8}


def test_the_seed_and_the_split_decide_the_tuples() -> None:
    pool, positive = two_pools(9, 9)

    def indices(seed: int, split: str) -> list[int]:
        sampled = collect(TupleSampler([parse_spec("3-5:~0.5")], 40, pool, positive, 0.0, seed, split))
        return np.concatenate(sampled.members).tolist()

    assert indices(1, "train") == indices(1, "train")
    assert indices(1, "train") != indices(2, "train")
    assert indices(1, "train") != indices(1, "heldout")


def test_noise_changes_recorded_counts_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "BLOCK", 64)
    pool, positive = two_pools(9, 9)
    clean, noisy = (
        collect(TupleSampler([parse_spec("3-5:~0.5")], 300, pool, positive, noise, 5, "train")) for noise in (0.0, 0.3)
    )
    assert all(np.array_equal(a, b) for a, b in zip(clean.members, noisy.members, strict=True))
    assert np.array_equal(clean.true_counts, noisy.true_counts)
    assert 0 < np.count_nonzero(noisy.counts != noisy.true_counts) < 150
