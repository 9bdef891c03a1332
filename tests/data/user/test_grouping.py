from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.data.user.count_cells import CountColumn
from ntmp_cli.data.user.grouping import RowCounts, counts_of_tuples, group_rows, hold_out, hold_out_blocks
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.errors import DataError

CODES = st.lists(st.integers(-1, 6), min_size=1, max_size=60)


def first_appearance(labels: list[int]) -> np.ndarray:
    """Codes as a file gives them: numbered in order of first appearance, −1 for none."""
    seen: dict[int, int] = {}
    return np.array([-1 if label < 0 else seen.setdefault(label, len(seen)) for label in labels], np.int32)


@given(CODES)
def test_rows_of_a_tuple_are_found_wherever_they_lie(labels):
    codes = first_appearance(labels)
    tuples = int(codes.max()) + 1
    rows, offsets = group_rows(codes, tuples)
    for t in range(tuples):
        assert rows[offsets[t] : offsets[t + 1]].tolist() == [row for row, code in enumerate(codes) if code == t]
    assert sorted(rows.tolist()) == [row for row, code in enumerate(codes) if code >= 0]


@given(CODES, st.randoms(use_true_random=False), st.data())
def test_tuples_and_counts_do_not_depend_on_the_order_of_rows(labels, random, data):
    sizes = {label: labels.count(label) for label in labels if label >= 0}
    truth = {label: data.draw(st.integers(0, size)) for label, size in sizes.items()}
    order = list(range(len(labels)))
    random.shuffle(order)
    shuffled = [labels[i] for i in order]
    codes = first_appearance(shuffled)
    # A count need not stand in every row of its tuple, only in one.
    counts = np.array([truth.get(label, -1) for label in shuffled], np.int32)
    for code in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == code)
        counts[rows[: random.randrange(len(rows))]] = -1
    problems = Problems()
    column = CountColumn()
    cells = np.array([-1 if count < 0 else column.code(str(count)) for count in counts.tolist()], np.int32)
    names = [str(t) for t in range(int(codes.max()) + 1)]
    grouped = counts_of_tuples(codes, RowCounts(cells, column), names, str, problems)
    assert problems.total == 0
    for t in range(len(grouped)):
        members = grouped.rows[grouped.offsets[t] : grouped.offsets[t + 1]]
        (label,) = {shuffled[row] for row in members}
        assert len(members) == sizes[label]
        assert grouped.counts[t] == truth[label]
    chosen = np.arange(0, len(grouped), 2)
    subset = grouped.subset(chosen)
    for at, t in enumerate(chosen):
        members = subset.rows[subset.offsets[at] : subset.offsets[at + 1]]
        assert members.tolist() == grouped.rows[grouped.offsets[t] : grouped.offsets[t + 1]].tolist()
        assert subset.counts[at] == grouped.counts[t]


@given(st.integers(0, 200), st.floats(0, 0.99), st.integers(0, 5))
def test_held_out_and_kept_rows_are_all_rows(size, share, seed):
    kept, held_out = hold_out(size, share, np.random.default_rng(seed))
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(size))
    assert len(held_out) == round(size * share)
    assert (np.diff(kept) > 0).all()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.floats(0, 0.99), st.integers(0, 5))
def test_blocks_are_held_out_whole_and_one_is_kept(owners, share, seed):
    blocks = np.array([f"b{owner}" for owner in owners])
    kept, held_out = hold_out_blocks(blocks.tolist(), share, np.random.default_rng(seed))
    assert sorted([*kept.tolist(), *held_out.tolist()]) == list(range(len(blocks)))
    assert len(kept)
    assert not set(blocks[kept]) & set(blocks[held_out])
    # No block more or less would come closer.
    off = abs(len(held_out) - share * len(blocks))
    assert off <= max(np.unique(blocks, return_counts=True)[1]) or len(set(blocks[kept])) == 1


def test_only_twenty_problems_are_shown_and_all_are_counted():
    problems = Problems()
    for row in range(25):
        problems.add(f"row {row}", "is wrong")
    try:
        problems.raise_if_any()
    except DataError as error:
        lines = error.message.splitlines()
    assert lines[0] == "25 problems in the data, nothing was written"
    assert lines[1] == "  row 0: is wrong"
    assert lines[20:] == ["  row 19: is wrong", "  and 5 more"]
