"""Users' rows from any kind of file: cells for the mapping; tuples, counts, labels and ids by role."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.data.user.arrow_columns import filled, numbers_of
from ntmp_cli.data.user.mapping import LARGEST, ImageFeatures, Roles, text_code
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.table_files import Guess, Kind, LateTextError, TableFile
from ntmp_cli.data.user.table_sets import TableSet
from ntmp_cli.errors import DataError, did_you_mean

Role = Literal["tuple", "count", "law", "label", "id", "block"]


@dataclass(frozen=True)
class Rows:
    """A block of rows: one raw instance each, pyarrow columns by role, and texts behind the codes of categories."""

    cells: NDArray[Any]
    roles: dict[Role, Any] = field(default_factory=dict)
    texts: dict[str, dict[float, str]] = field(default_factory=dict)


class RowSource(Protocol):
    """Where rows come from."""

    where: str

    @property
    def role_names(self) -> dict[Role, str]:
        """Names of the columns that hold a role."""

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Names of the raw features; None for images."""

    @property
    def expected_rows(self) -> int | None:
        """The exact or approximate number of rows; None if unknown."""

    def image_features(self) -> ImageFeatures | None:
        """Shape and type of the images, once they have been read; None for features."""

    def rows(self, problems: Problems) -> Iterator[Rows]:
        """All rows, block by block. Problems are collected; blocks after the first problem may be left out."""

    def first_rows(self) -> list[dict[str, Any]]:
        """The first rows, for a preview."""

    def place(self, row: int) -> str:
        """How to name a row, counted from 0, in a message."""


@dataclass(frozen=True)
class FeatureColumns:
    """Which columns are features: exactly `names`, or all that have no other role and are not in `ignore`."""

    categorical: Collection[str] = ()
    numeric: Collection[str] = ()
    ignore: Collection[str] = ()
    names: Sequence[str] | None = None
    most_categories: int = 50
    """A text column with more distinct values, most of them numbers, is numeric with errors."""
    reserved: Collection[str] = ("tuple", "count", "law", "label", "id", "image", "block")
    """Roles whose columns are not features."""


class TableReading(NamedTuple):
    """How the columns of a table are read: their kinds, which are features, which are categories, which have a role."""

    kinds: Mapping[str, Kind]
    columns: Sequence[str]
    categorical: Sequence[str]
    roles: dict[Role, str]


class TableRows:
    """Rows of a table whose features are columns.

    If the features are not given (`features.names` is None), the first rows determine which columns are categorical:
    those of text. A text in a later row makes its column categorical for every reader that shares `categorical`; the
    table must then be read again: `rows` raises LateTextError.
    """

    def __init__(
        self, table: TableFile, columns: Sequence[str], features: FeatureColumns, roles: dict[Role, str]
    ) -> None:
        self.where, self.expected_rows = table.where, table.expected_rows
        self._table, self._roles, self._features = table, roles, features
        self._columns = tuple(columns)
        self._preview: list[dict[str, Any]] = []
        self.categorical = features.categorical if isinstance(features.categorical, set) else {*features.categorical}
        others = {*self._columns, *roles.values(), *features.ignore}
        self.unused = tuple(name for name in table.types if name not in others)
        """Columns that are neither features nor have a role, and are not ignored by name."""
        self._suspects: list[str] = []
        self._kinds: Mapping[str, Kind] | None = None
        if features.names is None:
            self._decide()

    @classmethod
    def read_as(cls, table: TableFile, reading: TableReading) -> TableRows:
        """The rows of one of several tables that share a reading."""
        features = FeatureColumns({*reading.categorical}, names=reading.columns)
        rows = cls(table, reading.columns, features, reading.roles)
        rows._kinds = reading.kinds
        return rows

    def reading(self, problems: Problems) -> TableReading | None:
        """How the table is read; None if a column cannot be a feature, which is a problem."""
        kinds = self._wanted(problems)
        return None if kinds is None else TableReading(kinds, self._columns, sorted(self.categorical), self._roles)

    def tables(self) -> Sequence[TableFile]:
        """The files that the rows come from, in their order."""
        return self._table.parts()

    def set_lengths(self, rows: Sequence[int]) -> None:
        """Set the number of rows of each file, if other processes read them; messages name rows by it."""
        if isinstance(self._table, TableSet):
            self._table.set_lengths(rows)

    def _decide(self) -> None:
        """Which columns of text hold categories."""
        most = self._features.most_categories
        known = {*self._features.numeric, *self.categorical}
        texts = [name for name in self._columns if name not in known and self._table.kind_of(name) == "text"]
        for name, values in self._table.surveys(texts, most).items():
            if values.has_mistakes(most):
                self._suspects.append(name)
            elif values.others or self._table.is_category(name):
                self.categorical.add(name)

    @property
    def role_names(self) -> dict[Role, str]:
        return self._roles

    @property
    def role_types(self) -> dict[Role, Any]:
        """The declared types of the columns that hold a role."""
        return {role: self._table.types[name] for role, name in self._roles.items()}

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self._columns

    def image_features(self) -> ImageFeatures | None:
        return None

    def rows(self, problems: Problems) -> Iterator[Rows]:
        wanted = self._wanted(problems)
        if wanted is None:
            return
        start = 0
        place_of = {name: at for at, name in enumerate(wanted)}
        places = [place_of[name] for name in self._columns]
        guess = self._guess()
        before = problems.total
        for batch in self._reading(wanted, problems, guess):
            if not self._preview:
                self._preview = batch.slice(0, 5).to_pylist()
            cells, texts = self._cells(batch, places)
            refuse_infinite(cells, start, self.place, self._columns, problems)
            yield Rows(cells, {role: batch.column(name) for role, name in self._roles.items()}, texts)
            start += batch.num_rows
        if problems.total > before and guess is not None and guess.mistaken:
            names = ", ".join(sorted(guess.mistaken))
            problems.advice = f"If the texts in {names} are not mistakes, pass --categorical COLUMN."

    def _guess(self) -> Guess | None:
        """The columns whose kind later rows may change; None if the kinds are given."""
        if self._features.names is not None:
            return None
        known = {*self.categorical, *self._features.numeric, *self._suspects}
        return Guess(set(self._columns) - known, self._features.most_categories, {*self._suspects})

    def _reading(self, wanted: Mapping[str, Kind], problems: Problems, guess: Guess | None) -> Iterator[Any]:
        try:
            yield from self._table.batches(wanted, problems, guess)
        except LateTextError as late:
            self.categorical.update(late.names)
            raise

    def first_rows(self) -> list[dict[str, Any]]:
        return self._preview

    def place(self, row: int) -> str:
        return self._table.place(row)

    def _wanted(self, problems: Problems) -> Mapping[str, Kind] | None:
        """How to read every column; None if a column cannot be a feature."""
        if self._kinds is not None:
            return self._kinds
        # Roles come first, as in the preview.
        wanted: dict[str, Kind] = dict.fromkeys(self._roles.values(), "as is")
        before = problems.total
        for name in self._columns:
            kind = self._table.kind_of(name)
            if name in self.categorical:
                kind = "text"
            elif kind == "text":
                kind = "number"
            elif kind is None:
                what = f"holds {self._table.types[name]}, which cannot be a feature: leave it out with --ignore"
                problems.add(f"{self.where} row 1, column '{name}'", what)
            wanted[name] = kind or "text"
        if problems.total > before:
            problems.rows_lost = True
            return None
        return wanted

    def _cells(self, batch: Any, places: list[int]) -> tuple[NDArray[np.float64], dict[str, dict[float, str]]]:
        # Convert all numeric columns in one call: a call per column and block would be slow for wide tables.
        coded = [j for j, name in enumerate(self._columns) if name in self.categorical]
        if not coded:
            return _numbers(batch.select(places)), {}
        numeric = [j for j, name in enumerate(self._columns) if name not in self.categorical]
        cells = np.empty((batch.num_rows, len(self._columns)))
        if numeric:
            cells[:, numeric] = _numbers(batch.select([places[j] for j in numeric]))
        texts = {}
        for j in coded:
            cells[:, j], texts[self._columns[j]] = category_codes(batch.column(places[j]))
        return cells, texts


def _numbers(batch: Any) -> NDArray[np.float64]:
    """Columns of float64 as one array, NaN where a value is missing."""
    if not batch.num_rows:
        return np.empty((0, batch.num_columns))
    numbers: NDArray[np.float64] = batch.to_tensor(null_to_nan=True, row_major=True).to_numpy()
    return numbers


def refuse_infinite(
    cells: NDArray[Any], start: int, place: Callable[[int], str], columns: Sequence[str] | None, problems: Problems
) -> None:
    """Report infinite values, and in images (`columns` None) missing values; elsewhere, missing values are imputed."""
    with np.errstate(invalid="ignore"):
        wrong = np.abs(cells) > LARGEST if columns is not None else ~(np.abs(cells) <= LARGEST)
        if not wrong.any():
            return
    rows, which = np.nonzero(wrong)
    if columns is None:
        rows, first = np.unique(rows, return_index=True)
        which = which[first]
    for row, j in zip(rows.tolist(), which.tolist(), strict=True):
        column = f", column '{columns[j]}'" if columns is not None else ""
        problems.add(place(start + row) + column, f"{cells[row, j]:g} is too large or not a number")


def category_codes(column: Any) -> tuple[NDArray[np.float64], dict[float, str]]:
    """One number per text, NaN where it is missing; and the text of each number."""
    coded = column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    codes = np.array([*(text_code(text) for text in texts), np.nan])
    indices = numbers_of(filled(coded.indices, len(texts)))
    return codes[indices], dict(zip(codes[:-1].tolist(), texts, strict=True))


def open_table_rows(
    table: TableFile,
    roles: Roles,
    features: FeatureColumns,
    *,
    required: Sequence[Role] = (),
    optional: Sequence[Role] = (),
) -> TableRows:
    """The rows of a table. The columns of `required` roles must exist, those of `optional` ones are read if they do."""
    every = ("tuple", "count", "law", "label", "id", "image", "block")
    names = {role: getattr(roles, f"{role}_column") for role in every}
    present = table.types
    for role in required:
        option = f" (--{role}-column)" if features.names is None else ""
        require_column(table, names[role], f"the {MEANING[role]}{option}")
    columns = features.names
    # A feature column has a role only if that role is required.
    roles_read = (*required, *(role for role in optional if names[role] not in (columns or ())))
    chosen: dict[Role, str] = {role: names[role] for role in roles_read if names[role] in present}
    if columns is None:
        options = {"--categorical": features.categorical, "--numeric": features.numeric, "--ignore": features.ignore}
        for option, named in options.items():
            for name in named:
                require_column(table, name, f"which {option} names")
        roles_taken = {names[role] for role in features.reserved}
        taken = {*roles_taken, *features.ignore} - {*features.categorical, *features.numeric}
        columns = [name for name in present if name not in taken]
        if not columns:
            raise DataError(
                f"{table.where}: has no feature column besides {', '.join(present)}",
                hint="Every column that is not named as an id, a count or a label is a feature.",
            )
    else:
        for name in columns:
            require_column(table, name, "which is a feature")
    return TableRows(table, columns, features, chosen)


def require_column(table: TableFile, name: str, what: str) -> None:
    if name not in table.types:
        close = did_you_mean(name, table.types)
        raise DataError(
            f"{table.where}: has no column '{name}', {what}" + (f"; {close}" if close.startswith("did") else ""),
            hint=f"The columns are {', '.join(list(table.types)[:30])}{', …' if len(table.types) > 30 else ''}.",
        )


MEANING = {"tuple": "tuple of every row", "count": "count of positives", "label": "label", "id": "id of every row"}


def tuple_codes(chunks: Sequence[Any]) -> tuple[NDArray[np.int32], list[str]]:
    """A number per row, in order of first appearance, −1 where there is no id; and the ids."""
    ids = pa.chunked_array(chunks, type=pa.dictionary(pa.int32(), pa.string())).unify_dictionaries()
    codes = [numbers_of(filled(chunk.indices, -1)) for chunk in ids.chunks]
    names = ids.chunk(0).dictionary.to_pylist() if ids.num_chunks else []
    return np.concatenate(codes).astype(np.int32) if codes else np.empty(0, np.int32), names
