"""One pass over all files of an import: cells go to a sink, ids and counts are kept, problems are collected.

What is kept per row is small: a tuple's code and count (8 bytes), and the row's own id where there are ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ntmp_cli.data.user.grouping import NONE, Grouped, blocks_of_tuples, counts_of_tuples
from ntmp_cli.data.user.positives import known_positives
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Role, Rows, RowSource, tuple_codes, whole_numbers
from ntmp_cli.data.user.table_files import Kind, TableFile, as_text
from ntmp_cli.errors import DataError, UsageError, did_you_mean
from ntmp_cli.progress import long_step

# Takes the raw cells of a block of rows.
CellSink = Callable[[NDArray[Any]], None]


@dataclass
class Survey:
    """Missing values and texts of categories in the raw features of tuples and of U."""

    max_categories: int
    rows: int = 0
    missing: NDArray[np.int64] | None = None
    texts: dict[str, dict[float, str] | None] = field(default_factory=dict)

    def add(self, rows: Rows) -> None:
        self.rows += len(rows.cells)
        if rows.cells.ndim == 2:
            missing = np.isnan(rows.cells).sum(axis=0)
            self.missing = missing if self.missing is None else self.missing + missing
        for name, texts in rows.texts.items():
            known = self.texts.setdefault(name, {})
            if known is not None:
                known.update(texts)
                if len(known) > self.max_categories:
                    self.texts[name] = None  # too many to have a feature each


@dataclass(frozen=True)
class ImportedRows:
    """Tuples, unlabeled and test rows of an import. Rows are numbered across files, in reading order."""

    tuples: Grouped
    unlabeled: NDArray[np.int64]
    test: NDArray[np.int64]
    labels: NDArray[np.bool_] | None
    survey: Survey


@dataclass(frozen=True)
class ImportSources:
    """The sources of an import, with their headers read; counts where a separate file gives them."""

    main: RowSource
    unlabeled: RowSource | None
    test: RowSource | None
    counts: dict[str, int] | None
    blocks: dict[str, str | None] | None = None


@dataclass
class _FileColumns:
    """The columns of one file that hold a role."""

    source: RowSource
    first: int
    rows: int = 0
    columns: dict[Role, list[Any]] = field(default_factory=dict)

    def keep(self, rows: Rows) -> None:
        self.rows += len(rows.cells)
        for role, column in rows.roles.items():
            kept = column
            if role in ("tuple", "label", "block"):
                kept = as_text(column).dictionary_encode()
            elif role == "id":
                kept = as_text(column)
            self.columns.setdefault(role, []).append(kept)


def read_rows(
    sources: ImportSources, positive: Sequence[str], survey: Survey, sink: CellSink, problems: Problems
) -> ImportedRows:
    """Read all rows once: their cells go to `sink`, and the raw features are surveyed."""
    files: dict[str, _FileColumns] = {}
    total = 0
    for name, source in (("main", sources.main), ("unlabeled", sources.unlabeled), ("test", sources.test)):
        if source is None:
            continue
        file = files[name] = _FileColumns(source, total)
        with long_step(f"reading {source.where}", source.expected_rows, "rows") as advance:
            for rows in source.rows(problems):
                file.keep(rows)
                if name != "test":
                    survey.add(rows)
                if not problems.total:  # nothing will be written, so nothing need be kept
                    sink(rows.cells)
                advance(len(rows.cells))
        total += file.rows
        if file.rows == 0 and not problems.total:
            raise DataError(f"{source.where}: has no rows", hint="Every row is one item.")
    _refuse_repeated_ids(list(files.values()), problems)
    tuples, unlabeled = _tuples(files["main"], sources.counts, problems)
    if len(tuples):
        tuples = replace(tuples, blocks=_blocks(files["main"], tuples, sources.blocks, problems))
    if extra := files.get("unlabeled"):
        unlabeled = np.concatenate([unlabeled, np.arange(extra.first, extra.first + extra.rows)])
    test = np.arange(files["test"].first, total) if "test" in files else np.empty(0, np.int64)
    labels = _labels(files["test"], positive, problems) if "test" in files else None
    problems.raise_if_any()
    if len(tuples) == 0:
        raise DataError(f"{sources.main.where}: no row has a tuple id", hint="Rows without a tuple id are unlabeled.")
    return ImportedRows(tuples, unlabeled, test, labels, survey)


def _tuples(
    file: _FileColumns, counts: Mapping[str, int] | None, problems: Problems
) -> tuple[Grouped, NDArray[np.int64]]:
    """The tuples of the main file, and its rows that belong to none."""
    codes, names = tuple_codes(file.columns.get("tuple", []))
    row_counts = np.full(len(codes), NONE, np.int32)
    reported: set[int] = set()
    if "count" in file.columns:
        start = 0
        for column in file.columns["count"]:
            values, wrong = whole_numbers(column)
            row_counts[start : start + len(values)] = values
            for at in wrong.tolist():
                problems.add(file.source.place(start + at), f"the count {column[at].as_py():g} is not 0, 1, 2 …")
                reported.add(int(codes[start + at]))
            start += len(values)
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
    tuples = counts_of_tuples(codes, row_counts, names, file.source.place, problems, reported)
    return tuples, np.flatnonzero(codes == NONE)


def _blocks(
    file: _FileColumns, tuples: Grouped, by_tuple: Mapping[str, str | None] | None, problems: Problems
) -> Sequence[str]:
    """The block of every tuple, from the rows of the main file or from the file of counts; none if nobody says it."""
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


def _refuse_repeated_ids(files: Sequence[_FileColumns], problems: Problems) -> None:
    """An item that occurs twice, in one file or in two, is counted twice, or trained and tested on."""
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
            problems.add(place, f"id '{text}' is there already, at {first[text]}")
        else:
            first[text] = place


def _labels(file: _FileColumns, positive: Sequence[str], problems: Problems) -> NDArray[np.bool_] | None:
    """Test labels as booleans; None if the file has none."""
    if "label" not in file.columns:
        return None
    codes, names = tuple_codes(file.columns["label"])
    for row in np.flatnonzero(codes == NONE).tolist():
        problems.add(file.source.place(row), "has no label")
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
                hint="Name them with --positive LABEL, once per label.",
            )
        chosen = known
    is_positive = np.array([*(name in chosen for name in names), False])
    return is_positive[codes]


def read_counts(table: TableFile, tuple_column: str, count_column: str, problems: Problems) -> dict[str, int]:
    """Counts by tuple id, from a separate file; an id that occurs twice is a problem."""
    wanted: dict[str, Kind] = {tuple_column: "text", count_column: "number"}
    counts: dict[str, int] = {}
    row = 0
    for batch in table.batches(wanted, problems):
        values, wrong = whole_numbers(batch.column(count_column))
        bad = set(wrong.tolist())
        for at, (name, count) in enumerate(zip(batch.column(tuple_column).to_pylist(), values.tolist(), strict=True)):
            row += 1
            place = f"{table.where} row {row}"
            if name is None:
                problems.add(place, "has no tuple id")
            elif name in counts:
                problems.add(place, f"tuple '{name}' is there already")
            elif at in bad or count == NONE:
                problems.add(place, f"tuple '{name}' has no count, or one that is not 0, 1, 2 …")
            else:
                counts[name] = count
    return counts


def read_blocks(table: TableFile, tuple_column: str, block_column: str) -> dict[str, str | None]:
    """Blocks by tuple id, from the file of counts, whose problems `read_counts` has listed."""
    blocks: dict[str, str | None] = {}
    for batch in table.batches({tuple_column: "text", block_column: "text"}, Problems()):
        blocks.update(zip(*(batch.column(name).to_pylist() for name in (tuple_column, block_column)), strict=True))
    return blocks
