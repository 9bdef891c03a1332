"""One pass over all files of an import: cells go to a sink, ids and counts are kept, problems are collected.

Little is kept per row: the code and count of its tuple (8 bytes), and its id if rows have ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ntmp_cli.data.user.count_cells import NONE, CountColumn
from ntmp_cli.data.user.grouping import (
    Grouped,
    Labelled,
    RowCounts,
    blocks_of_tuples,
    counts_of_tuples,
    with_labelled_rows,
)
from ntmp_cli.data.user.mapping import Roles
from ntmp_cli.data.user.positives import known_positives
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Role, Rows, RowSource, tuple_codes
from ntmp_cli.data.user.table_files import Kind, TableFile, as_text
from ntmp_cli.errors import ONE_COUNT, DataError, UsageError, did_you_mean
from ntmp_cli.progress import long_step

DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+")

# Takes the raw cells of a block of rows.
CellSink = Callable[[NDArray[Any]], None]


@dataclass
class Survey:
    """Missing values and texts of categories in the raw features of tuples and of U."""

    max_categories: int
    rows: int = 0
    missing: NDArray[np.int64] | None = None
    texts: dict[str, dict[float, str] | None] = field(default_factory=dict)
    comma: dict[str, str | None] = field(default_factory=dict)
    """An example from every text column that holds only numbers with a decimal comma; None for other text columns."""

    def add(self, rows: Rows) -> None:
        self.rows += len(rows.cells)
        if rows.cells.ndim == 2:
            missing = np.isnan(rows.cells).sum(axis=0)
            self.missing = missing if self.missing is None else self.missing + missing
        for name, texts in rows.texts.items():
            self._look_for_commas(name, texts.values())
            known = self.texts.setdefault(name, {})
            if known is not None:
                known.update(texts)
                if len(known) > self.max_categories:
                    self.texts[name] = None  # too many to have a feature each

    def _look_for_commas(self, name: str, texts: Iterable[str]) -> None:
        for text in texts:
            if self.comma.get(name, "") is None:
                return
            self.comma[name] = text if DECIMAL_COMMA.fullmatch(text.strip()) else None

    def join(self, other: Survey) -> None:
        """Add the survey of the rows that come after these."""
        self.rows += other.rows
        if other.missing is not None:
            self.missing = other.missing if self.missing is None else self.missing + other.missing
        for name, texts in other.texts.items():
            known = self.texts.get(name, {})
            both = None if known is None or texts is None else {**known, **texts}
            self.texts[name] = None if both is None or len(both) > self.max_categories else both
        for name, example in other.comma.items():
            self.comma[name] = None if self.comma.get(name, "") is None else example

    def refuse_decimal_commas(self, where: str, problems: Problems) -> None:
        for name, example in self.comma.items():
            if example is not None:
                problems.add(where, f"column '{name}' has decimal commas ('{example}'): write decimal points")


@dataclass(frozen=True)
class ImportedRows:
    """Tuples, unlabeled and test rows of an import. Rows are numbered across files, in reading order."""

    tuples: Grouped
    unlabeled: NDArray[np.int64]
    test: NDArray[np.int64]
    labels: NDArray[np.bool_] | None
    survey: Survey
    labelled: int = 0
    """Rows of the main file whose label is known."""


@dataclass(frozen=True)
class ImportSources:
    """The sources of an import, with their headers read; counts if they are in a separate file."""

    main: RowSource
    unlabeled: RowSource | None
    test: RowSource | None
    counts: dict[str, int] | None
    blocks: dict[str, str | None] | None = None
    column: CountColumn = field(default_factory=CountColumn)
    """What the cells of the column of counts mean."""


@dataclass
class FileColumns:
    """The columns of one file that hold a role."""

    source: RowSource
    first: int
    rows: int = 0
    columns: dict[Role, list[Any]] = field(default_factory=dict)
    has_fractions: bool = False
    """Whether counts are floating-point numbers, whose original number of decimals is unknown."""

    def keep(self, rows: int, roles: Mapping[Role, Any]) -> None:
        self.rows += rows
        for role, column in roles.items():
            kept = column
            if role in ("tuple", "label", "block"):
                kept = as_text(column).dictionary_encode()
            elif role in ("count", "law"):
                self.has_fractions = self.has_fractions or (role == "count" and pa.types.is_floating(column.type))
                kept = as_text(column)
            elif role == "id":
                kept = as_text(column)
            self.columns.setdefault(role, []).append(kept)


def read_rows(
    sources: ImportSources, positive: Sequence[str], survey: Survey, sink: CellSink, problems: Problems
) -> ImportedRows:
    """Read all rows once: their cells go to `sink`, and the raw features are surveyed."""
    files: dict[str, FileColumns] = {}
    total = 0
    for name, source in (("main", sources.main), ("unlabeled", sources.unlabeled), ("test", sources.test)):
        if source is None:
            continue
        file = files[name] = FileColumns(source, total)
        with long_step(f"reading {source.where}", source.expected_rows, "rows") as advance:
            for rows in source.rows(problems):
                file.keep(len(rows.cells), rows.roles)
                if name != "test":
                    survey.add(rows)
                if not problems.total:  # nothing will be written, so nothing need be kept
                    sink(rows.cells)
                advance(len(rows.cells))
        total += file.rows
        if file.rows == 0 and not problems.total:
            break
    return understood_rows(files, sources, positive, survey, problems)


def understood_rows(
    files: Mapping[str, FileColumns],
    sources: ImportSources,
    positive: Sequence[str],
    survey: Survey,
    problems: Problems,
) -> ImportedRows:
    """Tuples, unlabeled rows and test rows, from the columns of all files."""
    for file in files.values():
        if file.rows == 0 and not problems.total:
            raise DataError(f"{file.source.where}: has no rows", hint="Store one row per item.")
    _refuse_repeated_ids(list(files.values()), problems)
    survey.refuse_decimal_commas(sources.main.where, problems)
    tuples, unlabeled = _tuples(files["main"], sources, problems)
    if len(tuples):
        tuples = replace(tuples, blocks=_blocks(files["main"], tuples, sources.blocks, problems))
    labelled = _labelled(files["main"], positive, problems)
    if labelled is not None and not problems.total:
        tuples = with_labelled_rows(tuples, labelled, problems, sources.main.place)
        unlabeled = unlabeled[~np.isin(unlabeled, labelled.rows)]
    if extra := files.get("unlabeled"):
        unlabeled = np.concatenate([unlabeled, np.arange(extra.first, extra.first + extra.rows)])
    test, labels = np.empty(0, np.int64), None
    if last := files.get("test"):
        test, labels = np.arange(last.first, last.first + last.rows), _labels(last, positive, problems)
    problems.raise_if_any()
    if len(tuples) == 0:
        what = "no tuple has a count" if len(tuples.uncounted) else "no row has a tuple id"
        raise DataError(f"{sources.main.where}: {what}", hint="Rows without a tuple id or a count are unlabeled.")
    return ImportedRows(tuples, unlabeled, test, labels, survey, 0 if labelled is None else len(labelled.rows))


def _tuples(file: FileColumns, sources: ImportSources, problems: Problems) -> tuple[Grouped, NDArray[np.int64]]:
    """The tuples of the main file, and its rows that belong to none."""
    codes, names = tuple_codes(file.columns.get("tuple", []))
    row_counts, counts = np.full(len(codes), NONE, np.int32), sources.counts
    if "count" in file.columns:
        start = 0
        laws = file.columns.get("law") or [None] * len(file.columns["count"])
        for column, law in zip(file.columns["count"], laws, strict=True):
            values, wrong = sources.column.codes(column, law)
            row_counts[start : start + len(values)] = values
            for at, what in wrong.items():
                problems.add(file.source.place(start + at), what)
            start += len(values)
        if file.has_fractions:
            sources.column.read_as_fractions()
        for row in np.flatnonzero((codes == NONE) & (row_counts != NONE)).tolist():
            problems.add(file.source.place(row), "has a count but no tuple id")
    if counts is not None:
        known = set(names)
        for name in counts:
            if name not in known:
                problems.add(file.source.where, f"tuple '{name}' is empty: it has a count but no rows")
        by_code = np.array([*(counts.get(name, NONE) for name in names), NONE], np.int32)
        row_counts = by_code[codes]
    if problems.rows_lost:
        return Grouped(*(np.empty(0, np.int64),) * 3), np.empty(0, np.int64)
    tuples = counts_of_tuples(codes, RowCounts(row_counts, sources.column), names, file.source.place, problems)
    return tuples, np.sort(np.concatenate([np.flatnonzero(codes == NONE), tuples.uncounted]))


def _blocks(
    file: FileColumns, tuples: Grouped, by_tuple: Mapping[str, str | None] | None, problems: Problems
) -> Sequence[str]:
    """The block of every tuple, from the rows of the main file or from the file of counts; None without blocks."""
    if "block" in file.columns:
        codes, names = tuple_codes(file.columns["block"])
        return blocks_of_tuples(tuples, codes, names, file.source.place, problems)
    if by_tuple is None:
        return ()
    blocks = [by_tuple.get(name) for name in tuples.names]
    for name, block in zip(tuples.names, blocks, strict=True):
        if block is None:
            problems.add(file.source.where, f"tuple '{name}' has no block in the file of counts")
    return [block or "" for block in blocks]


def _refuse_repeated_ids(files: Sequence[FileColumns], problems: Problems) -> None:
    """Refuse repeated ids: such an item would be counted twice, or used for both training and test."""
    named = [file for file in files if "id" in file.columns]
    if not named:
        return
    ids = pa.chunked_array([column for file in named for column in file.columns["id"]], type=pa.string())
    counted = pc.value_counts(ids)
    repeated = counted.field(0).filter(pc.greater(counted.field(1), 1)).drop_null()
    if not len(repeated):
        return
    rows = np.flatnonzero(pc.is_in(ids, value_set=repeated).to_numpy())
    starts = np.cumsum([0, *(file.rows for file in named)])
    first: dict[str, str] = {}
    for row in rows.tolist():
        which = int(np.searchsorted(starts, row, side="right")) - 1
        place, text = named[which].source.place(row - int(starts[which])), ids[row].as_py()
        if text in first:
            problems.add(place, f"id '{text}' occurs already, at {first[text]}")
        else:
            first[text] = place


def _labelled(file: FileColumns, positive: Sequence[str], problems: Problems) -> Labelled | None:
    """The rows of the main file whose label is known; None if there are none."""
    if "label" not in file.columns or problems.rows_lost:
        return None
    codes, _ = tuple_codes(file.columns["label"])
    rows = np.flatnonzero(codes != NONE)
    return Labelled(rows, _is_positive(file, positive)[rows]) if len(rows) else None


def _labels(file: FileColumns, positive: Sequence[str], problems: Problems) -> NDArray[np.bool_] | None:
    """Test labels as booleans; None if the file has none."""
    if "label" not in file.columns:
        return None
    codes, _ = tuple_codes(file.columns["label"])
    for row in np.flatnonzero(codes == NONE).tolist():
        problems.add(file.source.place(row), "has no label")
    return _is_positive(file, positive)


def _is_positive(file: FileColumns, positive: Sequence[str]) -> NDArray[np.bool_]:
    """Which rows have a positive label."""
    codes, names = tuple_codes(file.columns["label"])
    if positive:
        for name in positive:
            if name not in names:
                raise UsageError(
                    f"--positive {name}: no such label in {file.source.where}; {did_you_mean(name, names)}"
                )
        chosen = set(positive)
    else:
        known = known_positives(names)
        if known is None:
            raise UsageError(
                f"{file.source.where}: which labels are positive? There are {', '.join(names[:20])}",
                hint="Name them with --positive LABEL, once per label." + (f" {ONE_COUNT}" if len(names) > 2 else ""),
            )
        chosen = known
    is_positive = np.array([*(name in chosen for name in names), False])
    return is_positive[codes]


def read_counts(table: TableFile, roles: Roles, column: CountColumn, problems: Problems) -> dict[str, int]:
    """Numbers of cells of `column` by tuple id, from a separate file; an id that occurs twice is a problem."""
    wanted: dict[str, Kind] = {roles.tuple_column: "text", roles.count_column: "as is"}
    if roles.law_column in table.types:
        wanted[roles.law_column] = "text"
    counts: dict[str, int] = {}
    row, has_fractions = 0, False
    for batch in table.batches(wanted, problems):
        cells = batch.column(roles.count_column)
        has_fractions = has_fractions or pa.types.is_floating(cells.type)
        law = batch.column(roles.law_column) if roles.law_column in wanted else None
        values, wrong = column.codes(as_text(cells), law)
        names = batch.column(roles.tuple_column).to_pylist()
        for at, (name, count) in enumerate(zip(names, values.tolist(), strict=True)):
            row += 1
            place = f"{table.where} row {row}"
            if name is None:
                problems.add(place, "has no tuple id")
            elif name in counts:
                problems.add(place, f"tuple '{name}' occurs already")
            elif at in wrong:
                problems.add(place, f"tuple '{name}': {wrong[at]}")
            else:
                counts[name] = count
    if has_fractions:
        column.read_as_fractions()
    return counts


def read_blocks(table: TableFile, tuple_column: str, block_column: str) -> dict[str, str | None]:
    """Blocks by tuple id, from the file of counts, whose problems `read_counts` has listed."""
    blocks: dict[str, str | None] = {}
    for batch in table.batches({tuple_column: "text", block_column: "text"}, Problems()):
        blocks.update(zip(*(batch.column(name).to_pylist() for name in (tuple_column, block_column)), strict=True))
    return blocks
