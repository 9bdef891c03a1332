from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.artifacts import temporary_rows
from ntmp_cli.artifacts.temporary_rows import RowFiles, TemporaryRows


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_rows_come_back_in_any_order(sizes, data):
    total = sum(sizes)
    rows = np.random.default_rng(0).integers(0, 255, (total, 2, 3)).astype(np.uint8)
    with TemporaryRows(None) as stored:
        start = 0
        for size in sizes:
            stored.append(rows[start : start + size])
            start += size
        assert stored.rows == total
        numbers = data.draw(st.lists(st.integers(0, max(total - 1, 0)), max_size=8)) if total else []
        if total:
            gathered = stored.gather(np.array(numbers, np.int64))
            assert np.array_equal(gathered, rows[numbers] if numbers else rows[:0])
            assert np.array_equal(stored.gather(np.arange(total)), rows)


def test_the_temporary_file_has_no_name(tmp_path):
    with TemporaryRows(tmp_path) as stored:
        stored.append(np.zeros((3, 2)))
        assert list(tmp_path.iterdir()) == []


def test_rows_that_lie_apart_come_in_the_requested_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In several pieces, the last of them short; a number beyond the last row is refused, not clipped."""
    monkeypatch.setattr(temporary_rows, "SCATTERED_ROWS", 7)
    rows = np.arange(3000).reshape(1000, 3)
    with TemporaryRows(tmp_path) as stored:
        stored.append(rows)
        numbers = np.random.default_rng(0).permutation(1000)[:100]
        assert np.array_equal(stored.gather(numbers), rows[numbers])
        assert np.array_equal(stored.gather(np.arange(5, 50)), rows[5:50])
        with pytest.raises(IndexError):
            stored.gather(np.array([3, 1000, 4]))


def test_rows_of_several_files_are_numbered_across_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is empty, each has something behind its rows, and fewer may be open than there are."""
    monkeypatch.setattr(temporary_rows, "OPEN_FILES", 2)
    rows = np.random.default_rng(0).normal(size=(60, 3))
    files = []
    for number, (start, stop) in enumerate([(0, 20), (20, 20), (20, 21), (21, 50), (50, 60)]):
        path = tmp_path / str(number)
        path.write_bytes(rows[start:stop].tobytes() + b"more")
        files.append((path, stop - start))
    with RowFiles(files, 3) as stored:
        for numbers in (
            np.random.default_rng(1).permutation(60),
            np.arange(21, 40),
            np.array([59, 0, 20]),
            np.arange(0),
        ):
            assert np.array_equal(stored.gather(numbers), rows[numbers])
        with pytest.raises(IndexError):
            stored.gather(np.array([3, 60]))
