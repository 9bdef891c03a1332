from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.artifacts import scratch as scratch_module
from ntmp_cli.artifacts.scratch import Scratch


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_rows_come_back_in_any_order(sizes, data):
    total = sum(sizes)
    rows = np.random.default_rng(0).integers(0, 255, (total, 2, 3)).astype(np.uint8)
    with Scratch(None) as scratch:
        start = 0
        for size in sizes:
            scratch.append(rows[start : start + size])
            start += size
        assert scratch.rows == total
        numbers = data.draw(st.lists(st.integers(0, max(total - 1, 0)), max_size=8)) if total else []
        if total:
            found = scratch.gather(np.array(numbers, np.int64))
            assert np.array_equal(found, rows[numbers] if numbers else rows[:0])
            assert np.array_equal(scratch.gather(np.arange(total)), rows)


def test_a_scratch_file_has_no_name(tmp_path):
    with Scratch(tmp_path) as scratch:
        scratch.append(np.zeros((3, 2)))
        assert list(tmp_path.iterdir()) == []


def test_rows_that_lie_apart_come_in_the_order_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several pieces, the last of them short; a number that is not there is refused, not bent to one that is."""
    monkeypatch.setattr(scratch_module, "SCATTERED_ROWS", 7)
    rows = np.arange(3000).reshape(1000, 3)
    with Scratch(tmp_path) as scratch:
        scratch.append(rows)
        numbers = np.random.default_rng(0).permutation(1000)[:100]
        assert np.array_equal(scratch.gather(numbers), rows[numbers])
        assert np.array_equal(scratch.gather(np.arange(5, 50)), rows[5:50])
        with pytest.raises(IndexError):
            scratch.gather(np.array([3, 1000, 4]))
