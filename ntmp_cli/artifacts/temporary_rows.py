"""Rows that are read in one order and needed in another: a nameless temporary file, or files that processes share."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray

# Maximum number of scattered rows, and of their bytes, that are read before their pages are released.
SCATTERED_ROWS = 2048
SCATTERED_BYTES = 16 * 2**20
# Maximum number of files of shared rows that are open at a time.
OPEN_FILES = 64


class GatheredRows(Protocol):
    """Rows that are numbered from 0."""

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the rows of these numbers, in this order."""


class TemporaryRows:
    """Rows of one shape and type: appended block by block, then gathered by number, without holding them in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._mapped: _MappedFile | None = None
        self._shape: tuple[int, ...] = ()
        self._dtype: np.dtype[Any] = np.dtype(np.uint8)
        self.rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._mapped is not None:
            self._mapped.close()
        self._file.close()

    def append(self, rows: NDArray[Any]) -> None:
        if len(rows):
            self._shape, self._dtype = rows.shape[1:], rows.dtype
            self._file.write(np.ascontiguousarray(rows).data)
            self.rows += len(rows)

    def clear(self) -> None:
        """Remove all rows; only before any was gathered."""
        self._file.seek(0)
        self._file.truncate()
        self.rows = 0

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the rows of these numbers, in this order."""
        if not len(numbers):
            return np.empty((0, *self._shape), self._dtype)
        if self._mapped is None:
            self._file.flush()
            self._mapped = _MappedFile(self._file, self.rows, self._shape, self._dtype)
        return self._mapped.gather(numbers)


class RowFiles:
    """Rows of float64 in files, numbered across them in their order; what follows the rows in a file is not read."""

    def __init__(self, files: Sequence[tuple[Path, int]], columns: int) -> None:
        self._files, self._columns = files, columns
        self._starts = np.cumsum([0, *(rows for _, rows in files)])
        self._open: dict[int, _MappedFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """A copy of the rows of these numbers, in this order."""
        which = np.searchsorted(self._starts, numbers, side="right") - 1
        rows = np.empty((len(numbers), self._columns))
        for file in np.unique(which).tolist():
            places = np.flatnonzero(which == file)
            inside = self._mapped(file).gather(numbers[places] - self._starts[file])
            if len(places) == len(numbers):
                return inside
            rows[places] = inside
        return rows

    def _mapped(self, file: int) -> _MappedFile:
        if file not in self._open:
            if len(self._open) >= OPEN_FILES:
                self._open.pop(next(iter(self._open))).close()
            path, rows = self._files[file]
            with path.open("rb") as stream:
                self._open[file] = _MappedFile(stream, rows, (self._columns,), np.dtype(np.float64))
        return self._open[file]


class _MappedFile:
    """Rows at the beginning of a file, mapped into memory."""

    def __init__(self, file: IO[bytes], rows: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._rows, self._shape, self._dtype = rows, shape, dtype

    def close(self) -> None:
        # A pending exception, such as a MemoryError, may still refer to rows; then the map is freed with it.
        with suppress(BufferError):
            self._map.close()

    def gather(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        values = self._rows * int(np.prod(self._shape))
        stored = np.frombuffer(self._map, self._dtype, values).reshape(-1, *self._shape)
        first, last = int(numbers[0]), int(numbers[-1])
        in_a_row = last - first == len(numbers) - 1 and bool((np.diff(numbers) == 1).all())
        # Scattered rows are read one page each: with read-ahead a few thousand fill a hundred megabytes.
        self._advise("MADV_NORMAL" if in_a_row else "MADV_RANDOM")
        if in_a_row:
            rows = stored[first : last + 1].copy()
        else:
            rows = np.empty((len(numbers), *self._shape), self._dtype)
            step = max(1, min(SCATTERED_ROWS, SCATTERED_BYTES // max(1, stored[0].nbytes)))
            for start in range(0, len(numbers), step):
                block = slice(start, start + step)
                rows[block] = stored[numbers[block]]
                self._advise("MADV_DONTNEED")
        del stored
        self._advise("MADV_DONTNEED")  # pages that were read need not stay in memory
        return rows

    def _advise(self, what: str) -> None:
        """Advise the system about the pages, where it supports that."""
        if hasattr(mmap, what):
            self._map.madvise(getattr(mmap, what))
