"""Users' tables in Parquet, read block by block through pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ntmp_cli.data.formats import first_line, no_such_file
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.streams import bytes_of_block, file_size
from ntmp_cli.data.user.table_files import Guess, Kind, TableFile, as_text, cleaned, converted
from ntmp_cli.errors import DataError
from ntmp_cli.storage import Location, StorageUrl
from ntmp_cli.unpacking import require_unpackable

# Total size of the read buffers of all columns.
BUFFERS_BYTES = 16 * 2**20
# About what pyarrow holds for every column that it reads in batches, whatever the number of rows. Row groups that take
# no more are read whole, some columns at a time: a fifth of the time and half of the memory with 20,000 columns.
READER_BYTES = 64 * 2**10
COLUMNS_AT_A_TIME = 2_000


class ParquetTable(TableFile):
    """A Parquet file."""

    stores_types = True

    def __init__(self, path: Location, block_bytes: int) -> None:
        self.path, self.where, self._block = path, str(path), block_bytes
        with self._file() as file:
            self.types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
            self.expected_rows = file.metadata.num_rows
            # In memory, every value takes at least a byte, even if the file stores repeated values once.
            values = file.metadata.num_rows * file.metadata.num_columns
            require_unpackable(self.where, file_size(path), values)

    def batches(self, wanted: Mapping[str, Kind], problems: Problems, guess: Guess | None = None) -> Iterator[Any]:
        self._refuse_nested(wanted)
        texts = [name for name, kind in wanted.items() if kind in ("number", "flag") and self.kind_of(name) == "text"]
        start = 0
        for batch in self._raw_batches(wanted):
            columns = {name: batch.column(name) for name in wanted} if texts else {}
            for name in texts:
                columns[name], wrong = cleaned(as_text(columns[name]), wanted[name])
                if wrong:
                    self._raise_late_texts(wanted, guess)
                    guess = None  # all rows have been checked
                for at, what in wrong:
                    problems.add(f"{self.where} row {start + at + 1}, column '{name}'", what)
            start += batch.num_rows
            if texts:
                batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
            yield converted(batch, wanted)

    def _refuse_nested(self, wanted: Mapping[str, Kind]) -> None:
        """Refuse ids, counts and labels that are lists, bytes and the like; dates can be ids."""
        for name, kind in wanted.items():
            is_date = kind == "as is" and pa.types.is_temporal(self.types[name])
            if self.kind_of(name) is None and not is_date:
                raise DataError(
                    f"{self.where}: column '{name}' holds {self.types[name]}, which cannot be an id, count or label",
                    hint="Store numbers or text.",
                )

    def samples(self, names: Sequence[str]) -> Iterator[Any]:
        with self._file() as file:  # once: that costs some microseconds per column
            for name in names:
                first = next(self._batches_of(file, [name]), None)
                yield pa.array([], pa.string()) if first is None else as_text(first.column(name))

    def _text_batches(self, names: Collection[str]) -> Iterator[Any]:
        for batch in self._raw_batches(names):
            yield converted(batch, dict.fromkeys(names, "text"))

    def _raw_batches(self, names: Collection[str]) -> Iterator[Any]:
        with self._file() as file:
            yield from self._batches_of(file, list(names))

    def _batches_of(self, file: Any, names: list[str]) -> Iterator[Any]:
        row_bytes = 8 * max(1, len(names))
        rows = max(1, bytes_of_block(self._block, row_bytes) // row_bytes)
        try:
            read = _whole_groups if _has_small_groups(file, names, rows) else _batch_by_batch
            for batch in read(file, names, rows):
                batch.validate(full=True)  # texts are UTF-8, lengths fit
                yield batch
        except _PARQUET_ERRORS as error:
            raise DataError(f"{self.where}: damaged ({first_line(error)})", hint="Write it again.") from None

    def _opened(self) -> Any:
        if isinstance(self.path, StorageUrl):
            return pq.ParquetFile(self.path.open_file(), pre_buffer=True)  # few large requests
        # Without a buffer per column, whole row groups would be read into memory, up to a million rows each.
        metadata = pq.read_metadata(self.path)
        buffer = max(2**12, min(2**16, BUFFERS_BYTES // max(1, metadata.num_columns)))
        return pq.ParquetFile(self.path, metadata=metadata, buffer_size=buffer, pre_buffer=False)

    @contextmanager
    def _file(self) -> Iterator[Any]:
        try:
            file_size(self.path)
            file = self._opened()
            file.schema_arrow.names  # noqa: B018 - decoded only here
        except FileNotFoundError:
            raise no_such_file(self.path) from None
        except _PARQUET_ERRORS as error:
            raise DataError(
                f"{self.path}: not a readable Parquet file ({first_line(error)})", hint="Write it again."
            ) from None
        with file:
            yield file


def _has_small_groups(file: Any, names: list[str], rows: int) -> bool:
    """Whether each row group has at least a batch of rows, and no more bytes than the readers of its columns."""
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    most = READER_BYTES * file.metadata.num_columns
    fits = all(max(group.total_byte_size, 8 * group.num_rows * group.num_columns) <= most for group in groups)
    return fits and len(names) > 1 and all(group.num_rows >= rows for group in groups[:-1])


def _whole_groups(file: Any, names: list[str], rows: int) -> Iterator[Any]:
    pieces = [names[at : at + COLUMNS_AT_A_TIME] for at in range(0, len(names), COLUMNS_AT_A_TIME)]
    for group in range(file.metadata.num_row_groups):
        columns: list[Any] = []
        for piece in pieces:
            part = file.read_row_group(group, columns=piece)
            columns += map(part.column, piece)
        yield from pa.table(columns, names=names).to_batches(rows)


def _batch_by_batch(file: Any, names: list[str], rows: int) -> Iterator[Any]:
    for batch in file.iter_batches(batch_size=rows, columns=names):
        yield batch.select(names)


# What pyarrow raises on damaged files; a page may say that it needs more memory than there is.
_PARQUET_ERRORS = (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError)
