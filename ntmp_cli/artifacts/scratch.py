"""A nameless file for rows that are read in one order and needed in another; it is gone when we are."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class Scratch:
    """Rows of one shape and type: appended block by block, then gathered by number, without holding them in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._map: mmap.mmap | None = None
        self._shape: tuple[int, ...] = ()
        self._dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._map is not None:
            self._map.close()
        self._file.close()

    def append(self, rows: NDArray[Any]) -> None:
        if len(rows):
            self._shape, self._dtype = rows.shape[1:], rows.dtype
            self._file.write(np.ascontiguousarray(rows).data)
            self.rows += len(rows)

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the rows of these numbers, in this order."""
        if not len(numbers):
            return np.empty((0, *self._shape), self._dtype)
        if self._map is None:
            self._file.flush()
            self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        whole = np.frombuffer(self._map, self._dtype).reshape(-1, *self._shape)
        first, last = int(numbers[0]), int(numbers[-1])
        in_a_row = last - first == len(numbers) - 1 and bool((np.diff(numbers) == 1).all())
        found = whole[first : last + 1].copy() if in_a_row else whole[numbers]
        del whole
        if hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)  # pages that were looked at are not ours to keep in memory
        return found
