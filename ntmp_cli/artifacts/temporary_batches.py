"""A nameless temporary file for blocks of columns that are read once more in the same order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa


class TemporaryBatches:
    """Blocks of named columns, appended and then read again, without holding them in memory."""

    def __init__(self, folder: Path | None) -> None:
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by __exit__
        self._writer: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    def append(self, columns: dict[str, Any]) -> None:
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        if self._writer is None:
            self._writer = pa.ipc.new_stream(self._file, batch.schema)
        self._writer.write_batch(batch)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The blocks in the order in which they were appended; only after the last one was."""
        if self._writer is None:
            return
        self._writer.close()
        self._file.seek(0)
        for batch in pa.ipc.open_stream(self._file):
            yield dict(zip(batch.schema.names, batch.columns, strict=True))
