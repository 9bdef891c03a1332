from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.data.user.grouping import counts_of_tuples, group_rows, set_aside
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
        own = np.flatnonzero(codes == code)
        counts[own[: random.randrange(len(own))]] = -1
    problems = Problems()
    found = counts_of_tuples(codes, counts, [str(t) for t in range(int(codes.max()) + 1)], str, problems)
    assert problems.total == 0
    for t in range(len(found)):
        members = found.rows[found.offsets[t] : found.offsets[t + 1]]
        (label,) = {shuffled[row] for row in members}
        assert len(members) == sizes[label]
        assert found.counts[t] == truth[label]
    chosen = np.arange(0, len(found), 2)
    some = found.some(chosen)
    for at, t in enumerate(chosen):
        own = some.rows[some.offsets[at] : some.offsets[at + 1]]
        assert own.tolist() == found.rows[found.offsets[t] : found.offsets[t + 1]].tolist()
        assert some.counts[at] == found.counts[t]


@given(st.integers(0, 200), st.floats(0, 0.99), st.integers(0, 5))
def test_what_is_set_aside_and_what_is_kept_are_everything(size, share, seed):
    kept, aside = set_aside(size, share, np.random.default_rng(seed))
    assert sorted([*kept.tolist(), *aside.tolist()]) == list(range(size))
    assert len(aside) == round(size * share)
    assert (np.diff(kept) > 0).all()


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
