"""Users' tables, CSV or Parquet, read block by block through pyarrow."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

import pyarrow as pa
import pyarrow.compute as pc

from ntmp_cli.data.user.arrow_columns import null_of, number_scalar, text_column
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.streams import (
    BLOCK_BYTES,
)
from ntmp_cli.errors import UsageError
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

READ_TYPES = {"number": pa.float64(), "flag": pa.bool_(), "text": pa.string(), "as is": pa.string()}


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
        from ntmp_cli.data.user.csv_tables import CsvTable

        return CsvTable(path, block_bytes)
    if path.name.lower().endswith(PARQUET_ENDINGS):
        from ntmp_cli.data.user.parquet_tables import ParquetTable

        return ParquetTable(path, block_bytes)
    raise UsageError(
        f"{path}: not the name of a table", hint=f"Tables end in {', '.join((*CSV_ENDINGS, *PARQUET_ENDINGS))}."
    )


def is_table(path: Location) -> bool:
    return path == STDIN or path.name.lower().endswith((*CSV_ENDINGS, *PARQUET_ENDINGS))


def cleaned(column: Any, kind: Kind) -> tuple[Any, list[tuple[int, str]]]:
    """A text column converted to its kind, missing where that fails; and the failed rows with the reason."""
    if kind not in ("number", "flag"):
        return column, []
    try:
        read = pc.cast(pc.utf8_trim_whitespace(column), READ_TYPES[kind])
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
