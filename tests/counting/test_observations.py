"""What was observed: impossible counts are refused, and groups hold every tuple once, with bounded padding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntmp_cli.counting import observations
from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recorded import records
from ntmp_cli.errors import DataError


@pytest.mark.parametrize(
    ("sizes", "counts", "message"),
    [
        ([3, 2], [1, 3], "tuple 2 cannot have 2 members and a count of 3"),
        ([3], [-1], "tuple 1 cannot have 3 members and a count of -1"),
        ([3, 3], [1.5, 1.0], "tuple 1 cannot have 3 members and a count of 1.5"),
        ([3], [float("nan")], "tuple 1 cannot have 3 members and a count of nan"),
        ([3], [float("inf")], "count of inf"),
        ([3, 0], [1, 0], "tuple 2 cannot have 0 members and a count of 0"),
        ([-2], [0], "tuple 1 cannot have -2 members"),
        ([2.5], [1], "tuple 1 cannot have 2.5 members"),
        ([3], ["one"], "tuple 1 cannot have 3 members and a count of one"),
        ([3, 3, 3], [4, 1, 5], "count of 4, and 1 more tuples cannot be either"),
        ([3, 3], [1], "2 sizes and 1 counts of tuples"),
    ],
)
def test_what_cannot_be_a_count_is_refused(sizes: list[Any], counts: list[Any], message: str) -> None:
    with pytest.raises(DataError) as error:
        CountObservations(sizes, counts)
    assert message in str(error.value)
    assert error.value.exit_code == 3


def test_whole_numbers_of_any_type_are_counts() -> None:
    observed = CountObservations(np.array([3.0, 2.0]), np.array([1, 2], dtype=np.uint8))
    assert (observed.sizes.dtype, observed.counts.dtype) == (np.int64, np.int64)
    assert (observed.sizes.tolist(), observed.counts.tolist()) == ([3, 2], [1, 2])


def test_no_tuples_are_no_groups() -> None:
    observed = CountObservations([], [])
    assert (len(observed), observed.instances, observed.groups) == (0, 0, ())


def test_the_likelihood_is_zero_beyond_the_length_of_a_tuple() -> None:
    observed = CountObservations([1, 3], [1, 3], OffByOne(0.25))
    k = np.arange(-1, 5)[:, None]
    assert observed.likelihood(k, np.array([0, 1])).T.tolist() == [
        [0, 0.25, 0.75, 0, 0, 0],
        [0, 0, 0, 0.125, 0.75, 0],
    ]


SHAPES = st.lists(st.tuples(st.integers(1, 40), st.floats(0, 1)), min_size=1, max_size=30)


@settings(deadline=None, max_examples=60)
@given(SHAPES, st.sampled_from([0.0, 0.2]), st.sampled_from([2**20, 600]), st.sampled_from([0, 4096]))
def test_groups_hold_every_tuple_once_and_its_members_in_order(
    shapes: list[tuple[int, float]], rate: float, table_bytes: int, spare: int
) -> None:
    sizes = np.array([n for n, _ in shapes])
    counts = np.array([round(share * n) for n, share in shapes])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observations, "TABLE_BYTES", table_bytes)
        patch.setattr(observations, "SPARE_MEMBERS", spare)
        observed = CountObservations(sizes, counts, OffByOne(rate))
        groups = observed.groups
    assert sorted(np.concatenate([group.which for group in groups]).tolist()) == list(range(len(sizes)))
    for group in groups:
        n, tuples = group.members.shape
        assert tuples == 1 or group.target.size * n <= table_bytes // 8
        assert group.members.size <= 2 * sizes[group.which].sum() + spare
        longer = np.array([int((sizes[group.which] > i).sum()) for i in range(n)])
        assert (longer <= group.present).all()
        assert (np.array(group.present) < longer + tuples / 8 + 1).all()
        assert (np.diff(group.present) <= 0).all()
        for column, t in enumerate(group.which):
            start = sizes[:t].sum()
            members = group.members[:, column]
            assert members[: sizes[t]].tolist() == list(range(start, start + sizes[t]))
            assert (members[sizes[t] :] == observed.instances).all()
            # Every true count that the recorded one allows is in the table, counted by the rarer class.
            likelihood = OffByOne(rate).likelihood(counts[t], np.arange(sizes[t] + 1), sizes[t])
            counted = likelihood[::-1] if observed.mirrored[t] else likelihood
            table = np.zeros(max(len(counted), len(group.target)))
            table[: len(group.target)] = group.target[:, column]
            assert table[: len(counted)] == pytest.approx(counted)
            assert (table[len(counted) :] == 0).all()


def test_many_lengths_share_one_group_and_a_table_is_no_wider_than_half_its_tuple() -> None:
    sizes = np.arange(20, 201)
    observed = CountObservations(sizes, sizes - sizes // 3)
    (group,) = observed.groups
    assert len(group.target) == 200 // 3 + 1
    assert observed.mirrored.all()


def test_one_long_tuple_does_not_pad_many_short_ones() -> None:
    sizes = np.array([3] * 9000 + [290])
    observed = CountObservations(sizes, np.ones_like(sizes))
    assert sum(group.members.size for group in observed.groups) < 50_000
    assert len(observed.groups) == 2


def test_a_law_may_be_written_in_any_way():
    written, canonical = (
        CountObservations([3, 3], records([1, 2], [1, 2], law)) for law in ("gaussian:1.50", "gaussian:1.5")
    )
    k = np.arange(4)[:, None] * np.ones(2, np.int64)
    np.testing.assert_array_equal(written.likelihood(k, np.arange(2)), canonical.likelihood(k, np.arange(2)))


def test_likelihoods_of_large_tuples_are_computed_once_for_all_subsets() -> None:
    """Folds of cross-fitting are subsets; some laws take seconds per large tuple."""
    observed = CountObservations([400, 400, 500], records([90, 90, 120], [90, 90, 120], "detect:0.9,0.98"))
    first = observed.likelihood_of_large(0)
    assert observed.likelihood_of_large(1) is first
    assert observed.subset(np.array([1, 2])).likelihood_of_large(0) is first
    k = np.arange(501)[:, None]
    assert observed.likelihood_of_large(2) == pytest.approx(observed.likelihood(k, np.array([2]))[:, 0])
