"""Users' tables in CSV, read block by block through pyarrow."""

from __future__ import annotations

import io
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pacsv

from ntmp_cli.data.formats import first_line, no_such_file
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.streams import (
    HEAD_BYTES,
    CountedInput,
    ReplayedInput,
    bytes_of_block,
    file_size,
    first_bytes,
    opened_stream,
)
from ntmp_cli.data.user.table_files import MISSING, READ_TYPES, STDIN, Guess, Kind, TableFile, cleaned, converted
from ntmp_cli.data.user.wide_csv import COLUMNS_OF_HEAD, WIDE_COLUMNS, WideLayout, WideReading, header_names
from ntmp_cli.errors import DataError
from ntmp_cli.storage import Location

# Also after a space: values are compared with these before they are trimmed.
_MISSING_IN_CSV = [space + text for space in ("", " ") for text in MISSING]


class CsvTable(TableFile):
    """CSV in UTF-8 with a header; comma, semicolon or tab; gzipped or not. No line breaks inside quotes."""

    def __init__(self, path: Location, block_bytes: int) -> None:
        self.path = path
        self.where = "standard input" if path == STDIN else str(path)
        self._head = b""
        with self._stream() as stream:
            head, is_whole = first_bytes(stream)
            if path == STDIN:
                self._head = head
        if not head.strip():
            raise DataError(f"{self.where}: empty", hint="Expected a header and rows of data.")
        self._first_lines = head if is_whole else head[: head.rfind(b"\n") + 1]
        try:
            self._first_lines.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._unreadable(error) from None
        header, _, first_rows = self._first_lines.partition(b"\n")
        row_bytes = len(first_rows) / max(1, first_rows.count(b"\n"))
        self._block = bytes_of_block(block_bytes, row_bytes)
        # The first line as it is, if it is the header for pyarrow too: it skips empty lines, and \r ends a line.
        self._header = header + b"\n" if header.strip() and b"\r" not in header.removesuffix(b"\r") else b""
        is_plain = path.suffix in (".csv", ".tsv") and row_bytes
        self.expected_rows = round(file_size(path) / row_bytes) if is_plain else None
        self._delimiter = max(",;\t", key=lambda sign: header.count(sign.encode()))
        try:
            conversion = pacsv.ConvertOptions(strings_can_be_null=True, null_values=_MISSING_IN_CSV)
            names, types = self._columns(conversion)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise DataError(f"{self.where}: column '{twice[0]}' occurs twice", hint="Give every column its own name.")
        self.types = dict(zip(names, types, strict=True))

    def _columns(self, conversion: Any) -> tuple[list[str], list[Any]]:
        """Names and types of the columns, from the first lines."""
        most = self._header.count(self._delimiter.encode()) + 1
        if most < WIDE_COLUMNS:
            schema = self._from_head(conversion).schema
            return schema.names, schema.types  # decoded only here
        # Some columns at a time: pyarrow needs tens of kilobytes for each.
        names = header_names(self._header, most, self._parsing(None))
        types: list[Any] = []
        for start in range(0, len(names), COLUMNS_OF_HEAD):
            conversion.include_columns = names[start : start + COLUMNS_OF_HEAD]
            types += self._from_head(conversion).schema.types
        return names, types

    def _from_head(self, conversion: Any) -> Any:
        """A reader of the first lines, without ragged ones."""
        return pacsv.open_csv(
            io.BytesIO(self._first_lines),
            read_options=pacsv.ReadOptions(block_size=len(self._first_lines) + HEAD_BYTES),
            parse_options=self._parsing(lambda row: "skip"),
            convert_options=conversion,
        )

    def batches(self, wanted: Mapping[str, Kind], problems: Problems, guess: Guess | None = None) -> Iterator[Any]:
        yielded = 0
        try:
            with self._stream() as stream:
                for batch in self._raw_batches(stream, wanted):
                    yield converted(batch, wanted)
                    yielded += batch.num_rows
        except pa.ArrowInvalid as error:
            # The first pass is fast because it stops at the first bad row. The second one lists all of them.
            self._raise_late_texts(wanted, guess)
            before = problems.total
            if self.path != STDIN:
                yield from self._with_problems(wanted, problems, yielded)
            if problems.total == before:
                raise self._unreadable(error) from None

    def _raw_batches(self, stream: Any, wanted: Mapping[str, Kind]) -> Iterator[Any]:
        types = {name: READ_TYPES[kind] for name, kind in wanted.items()}

        def by_pyarrow(source: Any) -> Iterator[Any]:
            yield from pacsv.open_csv(
                source,
                read_options=pacsv.ReadOptions(block_size=self._block),
                parse_options=self._parsing(None),
                convert_options=_conversion(types),
            )

        layout = WideLayout.of(list(self.types), [wanted.get(name) == "number" for name in self.types], self._delimiter)
        if layout is None or not self._header:
            yield from by_pyarrow(stream)
            return
        others = [name for name in layout.others if name in types]
        reading = WideReading(
            layout,
            others,
            lambda names: _conversion({name: types[name] for name in names}),
            lambda lines, rest: by_pyarrow(ReplayedInput(self._header + lines, rest)),
        )
        yield from reading.batches(stream, list(wanted), self._block)

    def samples(self, names: Sequence[str]) -> Iterator[Any]:
        if not names:
            return
        try:
            head = self._from_head(_conversion(dict.fromkeys(names, pa.string()))).read_all()
        except pa.ArrowInvalid as error:
            raise self._unreadable(error) from None
        yield from (head.column(name) for name in names)

    def _text_batches(self, names: Collection[str]) -> Iterator[Any]:
        with self._stream() as stream, _silent_about_bytes():
            try:
                yield from pacsv.open_csv(
                    stream,
                    read_options=pacsv.ReadOptions(block_size=self._block),
                    parse_options=self._parsing(lambda row: "skip"),
                    convert_options=_conversion(dict.fromkeys(names, pa.string())),
                )
            except pa.ArrowInvalid as error:
                raise self._unreadable(error) from None

    def _with_problems(self, wanted: Mapping[str, Kind], problems: Problems, yielded: int) -> Iterator[Any]:
        """Read all rows as text and list every problem; a value that cannot be converted becomes missing.

        Rows from number `yielded` on are yielded, so that problems of tuples are found in the same pass; none are
        yielded after a row that had to be left out.
        """
        skipped: list[int] = []

        def ragged(row: Any) -> str:
            problems.rows_lost = True
            skipped.append(row.number - 1)  # pyarrow counts the header as row 1
            what = f"{row.actual_columns} values, but the header has {row.expected_columns} columns"
            problems.add(f"{self.where} row {row.number - 1}", what)
            return "skip"

        start = 0
        mistakes: list[tuple[int, str, str]] = []
        with self._stream() as stream, _silent_about_bytes():
            try:
                reader = pacsv.open_csv(
                    stream,
                    read_options=pacsv.ReadOptions(block_size=self._block, use_threads=False),
                    parse_options=self._parsing(ragged),
                    convert_options=_conversion(dict.fromkeys(wanted, pa.string())),
                )
                for batch in reader:
                    columns = []
                    for name, kind in wanted.items():
                        column, wrong = cleaned(batch.column(name), kind)
                        columns.append(column)
                        mistakes += [(_numbered(start + at, skipped), name, what) for at, what in wrong]
                    for row, name, what in sorted(mistakes):
                        problems.add(f"{self.where} row {row}, column '{name}'", what)
                    mistakes.clear()
                    ahead = max(0, yielded - start)
                    start += batch.num_rows
                    if ahead < batch.num_rows and not skipped:
                        yield pa.RecordBatch.from_arrays(columns, names=list(wanted)).slice(ahead)
            except pa.ArrowInvalid:
                problems.rows_lost = True  # not a wrong number: the caller reports it

    def _parsing(self, handler: Any) -> Any:
        return pacsv.ParseOptions(delimiter=self._delimiter, invalid_row_handler=handler)

    @contextmanager
    def _stream(self) -> Iterator[IO[bytes]]:
        if self.path == STDIN:
            yield ReplayedInput(self._head, sys.stdin.buffer)  # type: ignore[misc]
            return
        try:
            packed = file_size(self.path)
            stream = opened_stream(self.path)
            if self.path.name.lower().endswith(".gz"):
                stream = CountedInput(stream, str(self.path), packed)
        except FileNotFoundError:
            raise no_such_file(self.path) from None
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({first_line(error)})", hint="Check the path.") from None
        try:
            with stream:
                yield stream
        except OSError as error:
            raise DataError(f"{self.path}: damaged ({first_line(error)})", hint="Write it again.") from None

    def _unreadable(self, error: Exception) -> DataError:
        reason = first_line(error)
        if "UTF8" in reason or isinstance(error, UnicodeDecodeError):
            return DataError(f"{self.where}: not UTF-8 text", hint="Save the table as CSV in UTF-8.")
        return DataError(
            f"{self.where}: not a readable CSV file ({reason})",
            hint="Expected a header, and as many values in every row; a value must not contain a line break.",
        )


@contextmanager
def _silent_about_bytes() -> Iterator[None]:
    """Suppress the traceback that pyarrow prints for ragged rows that are not UTF-8; the error is raised as well."""
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not isinstance(unraisable.exc_value, UnicodeDecodeError):
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _numbered(at: int, skipped: list[int]) -> int:
    """The number of a row, counted from 1 and including skipped rows."""
    row = at + 1
    for gone in skipped:
        row += gone <= row
    return row


def _conversion(types: Mapping[str, Any]) -> Any:
    return pacsv.ConvertOptions(
        column_types=types, include_columns=list(types), strings_can_be_null=True, null_values=_MISSING_IN_CSV
    )
