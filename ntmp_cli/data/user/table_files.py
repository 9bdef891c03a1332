"""Users' tables, CSV or Parquet, read block by block through pyarrow."""

from __future__ import annotations

import io
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ntmp_cli.data.formats import first_line, no_such_file
from ntmp_cli.data.user.arrow_columns import null_of, number_scalar, text_column
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.streams import (
    BLOCK_BYTES,
    HEAD_BYTES,
    CountedInput,
    ReplayedInput,
    bytes_of_block,
    file_size,
    first_bytes,
    opened_stream,
)
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.storage import Location

# What the values of a column are: numbers, true and false, text, or any type of the file (ids, labels).
Kind = Literal["number", "flag", "text", "as is"]

STDIN = Path("-")
CSV_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")
PARQUET_ENDINGS = (".parquet", ".pq")

# Texts that stand for a missing value, in columns of numbers and of text alike.
MISSING = (
    *("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NAN", "NULL", "Null", "null"),
    *("#N/A", "#N/A N/A", "#NA", "-NaN", "-nan", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN"),
)
# Also after a space: values are compared with these before they are trimmed.
_MISSING_IN_CSV = [space + text for space in ("", " ") for text in MISSING]

_CSV_TYPES = {"number": pa.float64(), "flag": pa.bool_(), "text": pa.string(), "as is": pa.string()}


class LateTextError(Exception):
    """Columns that were inferred to be numeric have text in later rows: they are categorical."""

    def __init__(self, names: Collection[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


@dataclass
class ValueSurvey:
    """How many values of a column parse as `kind`, how many do not, and some distinct values."""

    kind: Kind
    fitting: int = 0
    others: int = 0
    distinct: set[str] = field(default_factory=set)

    def add(self, column: Any, most_distinct: int) -> None:
        """Count the values of a column of text."""
        column = column.drop_null()
        if len(self.distinct) > most_distinct and not cleaned(column, self.kind)[1]:
            self.fitting += len(column)
            return
        for entry in pc.value_counts(column).to_pylist():
            text, times = entry["values"], entry["counts"]
            if reads_as(text, self.kind):
                self.fitting += times
            else:
                self.others += times
            if len(self.distinct) <= most_distinct:
                self.distinct.add(text)

    def has_mistakes(self, most_distinct: int) -> bool:
        """Whether these look like numbers with errors among them: mostly numbers, too many to be categories."""
        return 0 < self.others <= self.fitting and len(self.distinct) > most_distinct


class TableFile(ABC):
    """A file of named columns. `types` are declared by the file, or inferred from its first rows."""

    where: str
    path: Location
    types: dict[str, Any]
    stores_types: ClassVar[bool] = False
    """Whether the file declares the types of its columns."""
    expected_rows: int | None  # exact or approximate; None if unknown

    @abstractmethod
    def batches(self, wanted: Mapping[str, Kind], problems: Problems, guess: Guess | None = None) -> Iterator[Any]:
        """Blocks of rows with the wanted columns, in their order; numbers and flags as float64.

        Raises LateTextError if a column of `guess` holds text in any row.
        """

    def kind_of(self, name: str) -> Kind | None:
        """What a column can be read as; None for dates, lists and other types that cannot be features."""
        dtype = self.types[name]
        if pa.types.is_dictionary(dtype):
            dtype = dtype.value_type
        if pa.types.is_boolean(dtype):
            return "flag"
        is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
        if any(is_kind(dtype) for is_kind in is_number):
            return "number"
        return "text" if pa.types.is_string(dtype) or pa.types.is_large_string(dtype) else None

    def is_category(self, name: str) -> bool:
        """Whether the file declares a column categorical."""
        return bool(pa.types.is_dictionary(self.types[name]))

    def place(self, row: int) -> str:
        """How to name a row, counted from 0, in a message."""
        return f"{self.where} row {row + 1}"

    def parts(self) -> Sequence[TableFile]:
        """The files of a set of tables; for a single file, itself."""
        return (self,)

    @abstractmethod
    def samples(self, names: Sequence[str]) -> Iterator[Any]:
        """The first values of these columns, as columns of text."""

    @abstractmethod
    def _text_batches(self, names: Collection[str]) -> Iterator[Any]:
        """Blocks of all rows with these columns, as text; ragged rows are left out."""

    def surveys(self, names: Sequence[str], most_distinct: int) -> dict[str, ValueSurvey]:
        """Surveys of the first values of text columns: whether they are numbers."""
        surveys = {name: ValueSurvey("number") for name in names}
        for name, values in zip(names, self.samples(names), strict=True):
            surveys[name].add(values, most_distinct)
        return surveys

    def _raise_late_texts(self, wanted: Mapping[str, Kind], guess: Guess | None) -> None:
        """Search all rows of the guessed columns for text."""
        if guess is None or not guess.names:
            return
        surveys = {name: ValueSurvey(wanted[name]) for name in guess.names}
        for batch in self._text_batches(surveys):
            for name, values in surveys.items():
                values.add(batch.column(name), guess.most_distinct)
        late = [name for name, values in surveys.items() if values.others]
        guess.mistaken.update(name for name in late if surveys[name].has_mistakes(guess.most_distinct))
        if categories := [name for name in late if name not in guess.mistaken]:
            raise LateTextError(categories)


@dataclass(frozen=True)
class Guess:
    """Columns that are numeric in their first rows."""

    names: Collection[str]
    most_distinct: int
    """More distinct values than this are too many for categories."""
    mistaken: set[str] = field(default_factory=set)
    """The columns in which errors were found among numbers."""


def open_table(path: Location, block_bytes: int = BLOCK_BYTES) -> TableFile:
    """A table by the ending of its name; `-` is CSV on standard input."""
    if path == STDIN or path.name.lower().endswith(CSV_ENDINGS):
        return CsvTable(path, block_bytes)
    if path.name.lower().endswith(PARQUET_ENDINGS):
        from ntmp_cli.data.user.parquet_tables import ParquetTable

        return ParquetTable(path, block_bytes)
    raise UsageError(
        f"{path}: not the name of a table", hint=f"Tables end in {', '.join((*CSV_ENDINGS, *PARQUET_ENDINGS))}."
    )


def is_table(path: Location) -> bool:
    return path == STDIN or path.name.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS))


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
        is_plain = path.suffix in (".csv", ".tsv") and row_bytes
        self.expected_rows = round(file_size(path) / row_bytes) if is_plain else None
        self._delimiter = max(",;\t", key=lambda sign: header.count(sign.encode()))
        try:
            conversion = pacsv.ConvertOptions(strings_can_be_null=True, null_values=_MISSING_IN_CSV)
            schema = self._from_head(conversion).schema
            names = schema.names  # decoded only here
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise DataError(f"{self.where}: column '{twice[0]}' occurs twice", hint="Give every column its own name.")
        self.types = dict(zip(names, schema.types, strict=True))

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
                reader = pacsv.open_csv(
                    stream,
                    read_options=pacsv.ReadOptions(block_size=self._block),
                    parse_options=self._parsing(None),
                    convert_options=_conversion({name: _CSV_TYPES[kind] for name, kind in wanted.items()}),
                )
                for batch in reader:
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


def cleaned(column: Any, kind: Kind) -> tuple[Any, list[tuple[int, str]]]:
    """A text column converted to its kind, missing where that fails; and the failed rows with the reason."""
    if kind not in ("number", "flag"):
        return column, []
    try:
        read = pc.cast(pc.utf8_trim_whitespace(column), _CSV_TYPES[kind])
        return pc.cast(read, pa.float64()), []
    except pa.ArrowInvalid:
        pass
    truths = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}
    expected = "a number" if kind == "number" else "true or false"
    values: list[float | None] = []
    wrong = []
    for at, text in enumerate(column.to_pylist()):
        fits = text is not None and reads_as(text, kind)
        values.append((float(text) if kind == "number" else truths[text.strip().lower()]) if fits else None)
        if text is not None and not fits:
            wrong.append((at, f"'{text[:40]}' is not {expected}"))
    return pa.array(values, pa.float64()), wrong


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


def converted(batch: Any, wanted: Mapping[str, Kind]) -> Any:
    """Numbers and flags as float64, text as text; the batch has the wanted columns, in their order."""
    columns, is_changed = batch.columns, False
    for j, kind in enumerate(wanted.values()):
        if kind in ("number", "flag") and not pa.types.is_float64(columns[j].type):
            columns[j], is_changed = pc.cast(columns[j], pa.float64(), safe=False), True
        elif kind == "text":
            columns[j], is_changed = as_text(columns[j]), True
    return pa.RecordBatch.from_arrays(columns, names=list(wanted)) if is_changed else batch


def as_text(column: Any) -> Any:
    """A column as text: integers without a point, texts trimmed, markers of missing values as null."""
    if pa.types.is_floating(column.type):
        is_small = pc.less(pc.abs(column), number_scalar(2.0**63))
        is_whole = pc.all(pc.and_(pc.equal(column, pc.round(column)), is_small)).as_py()
        column = pc.if_else(pc.is_nan(column), null_of(column.type), column)
        column = pc.cast(column, pa.int64()) if is_whole is not False else column
    text = pc.utf8_trim_whitespace(pc.cast(column, pa.string()))
    return pc.if_else(pc.is_in(text, value_set=_MISSING_TEXTS), null_of(text.type), text)


_MISSING_TEXTS = text_column(MISSING)


def reads_as(text: str, kind: Kind) -> bool:
    if kind == "flag":
        return text.strip().lower() in ("true", "false", "0", "1")
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # Python accepts 1_000, other programs do not
