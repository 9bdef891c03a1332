"""One pass over all files of an import: cells go to a sink, ids and counts are kept, problems are collected.

What is kept per row is small: a tuple's code and count (8 bytes), and the row's own id where there are ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ntmp_cli.data.user.grouping import NONE, Grouped, counts_of_tuples
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Role, Rows, RowSource, tuple_codes, whole_numbers
from ntmp_cli.data.user.table_files import Kind, TableFile, as_text
from ntmp_cli.errors import DataError, UsageError, did_you_mean

Sink = Callable[[NDArray[Any]], None]

# Labels that need no explanation: the positive one of two.
_KNOWN_LABELS = (("0", "1"), ("-1", "1"), ("false", "true"), ("negative", "positive"))


@dataclass
class Survey:
    """What is found in the raw features of tuples and of U: missing values, and the texts of categories."""

    categorical: frozenset[str]
    max_categories: int
    rows: int = 0
    missing: NDArray[np.int64] | None = None
    texts: dict[str, dict[float, str] | None] = field(default_factory=dict)

    def add(self, rows: Rows) -> None:
        self.rows += len(rows.cells)
        if rows.cells.ndim == 2:
            here = np.isnan(rows.cells).sum(axis=0)
            self.missing = here if self.missing is None else self.missing + here
        for name, found in rows.texts.items():
            known = self.texts.setdefault(name, {})
            if known is not None:
                known.update(found)
                if len(known) > self.max_categories:
                    self.texts[name] = None  # too many to have a feature each


@dataclass(frozen=True)
class ImportedRows:
    """What an import knows once all rows have been read. Rows are numbered across files, in reading order."""

    tuples: Grouped
    unlabeled: NDArray[np.int64]
    test: NDArray[np.int64]
    labels: NDArray[np.bool_] | None
    survey: Survey


@dataclass
class _Part:
    """What one file says about its rows."""

    source: RowSource
    first: int
    rows: int = 0
    columns: dict[Role, list[Any]] = field(default_factory=dict)

    def keep(self, rows: Rows) -> None:
        self.rows += len(rows.cells)
        for role, column in rows.roles.items():
            kept = column
            if role in ("tuple", "label"):
                kept = as_text(column).dictionary_encode()
            elif role == "id":
                kept = as_text(column)
            self.columns.setdefault(role, []).append(kept)


def read_rows(
    main: RowSource,
    unlabeled: RowSource | None,
    test: RowSource | None,
    *,
    counts: Mapping[str, int] | None,
    positive: Sequence[str],
    survey: Survey,
    sink: Sink,
    problems: Problems,
) -> ImportedRows:
    """Read all rows once. `counts` gives the counts of tuples by id, where rows do not."""
    parts: dict[str, _Part] = {}
    total = 0
    for name, source in (("main", main), ("unlabeled", unlabeled), ("test", test)):
        if source is None:
            continue
        part = parts[name] = _Part(source, total)
        for rows in source.rows(problems):
            part.keep(rows)
            if name != "test":
                survey.add(rows)
            if not problems.total:  # nothing will be written, so nothing need be kept
                sink(rows.cells)
        total += part.rows
        if part.rows == 0 and not problems.total:
            raise DataError(f"{source.where}: has no rows", hint="Every row is one item.")
    _refuse_repeated_ids(list(parts.values()), problems)
    tuples, outside = _tuples(parts["main"], counts, problems)
    if "unlabeled" in parts:
        extra = parts["unlabeled"]
        outside = np.concatenate([outside, np.arange(extra.first, extra.first + extra.rows)])
    tested = np.arange(parts["test"].first, total) if "test" in parts else np.empty(0, np.int64)
    labels = _labels(parts["test"], positive, problems) if "test" in parts else None
    problems.raise_if_any()
    if len(tuples) == 0:
        raise DataError(f"{main.where}: no row has a tuple id", hint="Rows without a tuple id are unlabeled.")
    if len(outside) == 0:
        raise DataError(
            f"{main.where}: there are no unlabeled rows",
            hint="Pass them with --unlabeled, or as rows without a tuple id.",
        )
    return ImportedRows(tuples, outside, tested, labels, survey)


def _tuples(part: _Part, counts: Mapping[str, int] | None, problems: Problems) -> tuple[Grouped, NDArray[np.int64]]:
    """The tuples of the main file, and its rows that belong to none."""
    where = part.source.where
    codes, names = tuple_codes(part.columns.get("tuple", []))
    own = np.full(len(codes), NONE, np.int32)
    excused: set[int] = set()
    if "count" in part.columns:
        start = 0
        for column in part.columns["count"]:
            values, wrong = whole_numbers(column)
            own[start : start + len(values)] = values
            for at in wrong.tolist():
                problems.add(part.source.place(start + at), f"the count {column[at].as_py():g} is not 0, 1, 2 …")
                excused.add(int(codes[start + at]))
            start += len(values)
        for row in np.flatnonzero((codes == NONE) & (own != NONE)).tolist():
            problems.add(part.source.place(row), "has a count but no tuple id")
    if counts is not None:
        known = set(names)
        for name in counts:
            if name not in known:
                problems.add(where, f"tuple '{name}' is empty: it has a count but no rows")
        by_code = np.array([*(counts.get(name, NONE) for name in names), NONE], np.int32)
        own = by_code[codes]
    if problems.rows_lost:
        return Grouped(*(np.empty(0, np.int64),) * 3), np.empty(0, np.int64)
    tuples = counts_of_tuples(codes, own, names, part.source.place, problems, excused)
    return tuples, np.flatnonzero(codes == NONE)


def _refuse_repeated_ids(parts: Sequence[_Part], problems: Problems) -> None:
    """An item that is there twice, in one file or in two, is counted twice or learned and tested on."""
    named = [part for part in parts if "id" in part.columns]
    if not named:
        return
    ids = pa.chunked_array([column for part in named for column in part.columns["id"]], type=pa.string())
    counted = pc.value_counts(ids)
    repeated = counted.field(0).filter(pc.greater(counted.field(1), 1)).drop_null()
    if not len(repeated):
        return
    rows = np.flatnonzero(pc.is_in(ids, value_set=repeated).to_numpy())
    starts = np.cumsum([0, *(part.rows for part in named)])
    first: dict[str, str] = {}
    for row in rows.tolist():
        which = int(np.searchsorted(starts, row, side="right")) - 1
        place, text = named[which].source.place(row - int(starts[which])), ids[row].as_py()
        if text in first:
            problems.add(place, f"id '{text}' is there already, at {first[text]}")
        else:
            first[text] = place


def _labels(part: _Part, positive: Sequence[str], problems: Problems) -> NDArray[np.bool_] | None:
    """Test labels as booleans; None if the file has none."""
    if "label" not in part.columns:
        return None
    codes, names = tuple_codes(part.columns["label"])
    for row in np.flatnonzero(codes == NONE).tolist():
        problems.add(part.source.place(row), "has no label")
    if positive:
        for name in positive:
            if name not in names:
                raise UsageError(
                    f"--positive {name}: no such label in {part.source.where}; {did_you_mean(name, names)}"
                )
        chosen = set(positive)
    else:
        plain = {name: name.lower().removesuffix(".0").removeprefix("+") for name in names}
        known = next((pair for pair in _KNOWN_LABELS if set(plain.values()) <= set(pair)), None)
        if known is None:
            raise UsageError(
                f"{part.source.where}: which labels are positive? There are {', '.join(names[:20])}",
                hint="Name them with --positive LABEL, once per label.",
            )
        chosen = {name for name in names if plain[name] == known[1]}
    is_positive = np.array([*(name in chosen for name in names), False])
    return is_positive[codes]


def read_counts(table: TableFile, tuple_column: str, count_column: str, problems: Problems) -> dict[str, int]:
    """Counts by tuple id, from a file of their own; an id that is there twice is a problem."""
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
