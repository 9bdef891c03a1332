"""Which rows of X form which tuple, and what is known of every tuple: ids, counts, weights and blocks in memory."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ntmp_cli.counting.laws import count_noise, parse_law
from ntmp_cli.counting.recorded import Counts, are_records, records, with_law
from ntmp_cli.data.user.count_cells import LIKE_SHARES, CellError, CountColumn, look_like_shares
from ntmp_cli.data.user.grouping import Grouped, Labelled, group_rows, with_labelled_rows
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.errors import ONE_COUNT, DataError, UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# What to do about proportions and percentages: here a plain number is a count.
PASS_AS_TEXT = "then pass texts such as '25%'"
PASS_LAW = "then set count_law='gaussian:SD', or the law that it is"
# One id per row, None or NaN where a row belongs to no tuple.
TupleIds = Sequence[Hashable] | NDArray[Any]
# A value per tuple, by its id, or in the order in which tuples appear, or one per row that is equal within a tuple.
ByTuple = Mapping[Hashable, Any] | ArrayLike


def count_labels(tuples: TupleIds, counts: ByTuple, blocks: ByTuple | None = None) -> Floats:
    """Ids and counts as one array y, for tools that call fit(X, y): one row per row of X, in its order.

    Its columns are the number of the tuple, its count and, where there are blocks, the number of the block; rows
    without tuple have NaN.

        >>> count_labels(["a", "a", "b", None], {"a": 1, "b": 0})
        array([[ 0.,  1.],
               [ 0.,  1.],
               [ 1.,  0.],
               [nan, nan]])
    """
    ids = _plain_list(tuples)
    groups = TupleRows.of(ids, len(ids))
    known = groups.counts(counts)
    if are_records(known):
        raise UsageError(
            "count_labels holds exact counts alone: its rows have one number each",
            hint="Use fit(X, tuples, counts) for ranges and other records.",
        )
    columns = [np.arange(len(groups)), known]
    if blocks is not None:
        columns.append(groups.blocks(blocks))
    labels = np.full((len(ids), len(columns)), np.nan)
    labels[groups.rows] = np.repeat(np.stack(columns, axis=1), groups.sizes, axis=0)
    return labels


def is_count_labels(y: Any) -> bool:
    """Whether y has the shape that `count_labels` gives."""
    return isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] in (2, 3)


@dataclass(frozen=True)
class TupleRows:
    """Rows tuple by tuple, in the order in which the tuples appear; the other rows are the pool."""

    names: Sequence[Hashable]
    rows: Ints
    sizes: Ints
    pool: Ints

    @classmethod
    def of(cls, ids: Sequence[Hashable], rows: int) -> TupleRows:
        if len(ids) != rows:
            raise DataError(f"tuples has {len(ids)} ids, but X has {rows} rows", hint="One id per row of X.")
        numbers: dict[Hashable, int] = {}
        codes = np.array([-1 if _is_missing(i) else numbers.setdefault(i, len(numbers)) for i in ids], np.int32)
        if not numbers:
            raise DataError("no row has a tuple id", hint="Rows without an id are unlabeled; the others form tuples.")
        order, offsets = group_rows(codes, len(numbers))
        return cls(list(numbers), order, np.diff(offsets), np.flatnonzero(codes < 0))

    def __len__(self) -> int:
        return len(self.sizes)

    def counts(self, counts: ByTuple, law: str = "exact") -> Counts:
        """(T,) what is known of the number of positives, or the first reason why that is impossible."""
        column = CountColumn(law=parse_law(law), advice=PASS_AS_TEXT, noise_advice=PASS_LAW)
        texts = [self._count_text(t, value) for t, value in enumerate(self._values("counts", counts))]
        codes = [column.code(text) for text in texts]  # all before any: what a 0 means may depend on the others
        recorded = [
            self._record(t, text, code, column) for t, (text, code) in enumerate(zip(texts, codes, strict=True))
        ]
        low, high, laws = zip(*recorded, strict=True)
        known = records(low, high, np.array(laws, dtype="S64"))
        if look_like_shares(self.sizes, known):
            warnings.warn(f"{LIKE_SHARES}{PASS_AS_TEXT}", UserWarning, stacklevel=4)
        return known

    def _count_text(self, t: int, value: Any) -> str:
        """A number, a pair of ends, or a text such as `1-3`, as the text of a cell."""
        try:
            if isinstance(value, str):
                return value.strip()
            if isinstance(value, Sequence | np.ndarray):
                if len(value) != 2:
                    raise DataError(f"counts: tuple {self.names[t]} has {len(value)} of them", hint=ONE_COUNT)
                low, high = (float(end) for end in value)
                return f"{low:.17g}" if low == high else f"{low:.17g}..{high:.17g}"
            return f"{float(value):.17g}"
        except (TypeError, ValueError):
            raise DataError("counts: expected numbers, pairs of numbers, or texts such as '1-3'") from None

    def _record(self, t: int, text: str, code: int | str, column: CountColumn) -> tuple[float, float, str]:
        n = int(self.sizes[t])
        try:
            if isinstance(code, str):
                what = code.removeprefix(f"the count {text} ")
                raise DataError(f"tuple {self.names[t]} has {n} rows but count {text}, which {what}")
            return column.record(code, n)
        except CellError as error:
            said = str(error)
            if f"count {text} but" in said:  # as the message here, apart from a hint after it
                said = said.partition("; ")[2]
            why = f": {said}" if said else ""
            raise DataError(f"tuple {self.names[t]} has {n} rows but count {text}{why}") from None

    def weights(self, weights: ByTuple) -> Floats:
        """(T,) weights; none is negative, and not all are zero."""
        known = self._by_tuple("sample_weight", weights)
        if not (np.isfinite(known).all() and (known >= 0).all() and known.any()):
            raise DataError("sample_weight: expected finite numbers from 0 on, not all of them 0")
        return known

    def blocks(self, blocks: ByTuple) -> Ints:
        """(T,) number of every tuple's block."""
        values = self._values("blocks", blocks)
        numbers: dict[Hashable, int] = {}
        return np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int64)

    def _by_tuple(self, what: str, values: ByTuple) -> Floats:
        try:
            return np.array([float(value) for value in self._values(what, values)])
        except (TypeError, ValueError):
            raise DataError(f"{what}: expected numbers") from None

    def _values(self, what: str, values: ByTuple) -> list[Any]:
        """One value per tuple."""
        if isinstance(values, Mapping):
            if missing := [str(name) for name in self.names if name not in values]:
                raise DataError(f"{what} has no entry for tuple {', '.join(missing[:5])}")
            return [values[name] for name in self.names]
        by_row, number = _plain_list(values), len(self.rows) + len(self.pool)
        if len(by_row) == len(self) != number:
            return self._by_index(what, getattr(values, "index", None), by_row)
        if len(by_row) != number:
            raise DataError(
                f"{what} has {len(by_row)} values, but X has {number} rows", hint="Or pass a mapping by id."
            )
        starts = np.cumsum(self.sizes) - self.sizes
        members = [by_row[row] for row in self.rows.tolist()]
        first = [members[start] for start in starts.tolist()]
        owner = np.repeat(np.arange(len(self)), self.sizes).tolist()
        if any(
            value != first[t] and not (_is_missing(value) and _is_missing(first[t]))
            for t, value in zip(owner, members, strict=True)
        ):
            raise DataError(f"{what} of rows of one tuple differ")
        return first

    def _by_index(self, what: str, index: Any, values: list[Any]) -> list[Any]:
        """One value per tuple: by the index of a Series where it holds the ids, else in order of appearance."""
        if index is None or callable(index) or not hasattr(index, "tolist"):  # a list has a method of this name
            return values
        labels = index.tolist()
        by_id = dict(zip(labels, values, strict=True))
        if all(name in by_id for name in self.names):
            return [by_id[name] for name in self.names]
        if labels == list(range(len(labels))):
            return values
        raise DataError(
            f"{what} is a Series of one value per tuple, but its index does not hold the ids of the tuples",
            hint="Index it by tuple id, or pass a mapping by id.",
        )


def with_labels(known: KnownTuples, labels: Any, classes: tuple[Any, Any], noise: float = 0.0) -> KnownTuples:
    """The same with every labelled row as a tuple of one row; labels are None or NaN where they are not known.

    Counts may be off by one at the rate `noise`; labels are exact.
    """
    values = _plain_list(labels)
    groups = known.groups
    number = len(groups.rows) + len(groups.pool)
    if len(values) != number:
        raise DataError(f"labels has {len(values)} values, but X has {number} rows", hint="None where unknown.")
    rows = np.array([row for row, value in enumerate(values) if not _is_missing(value)], dtype=np.int64)
    if wrong := [values[row] for row in rows.tolist() if values[row] not in classes]:
        raise DataError(
            f"labels: {wrong[0]!r} is neither 0 nor 1",
            hint=f"{ONE_COUNT} Labels are 1 for that class, else 0; None or NaN where one is not known.",
        )
    positive = np.array([bool(values[row]) for row in rows.tolist()], dtype=np.bool_)
    offsets = np.concatenate([[0], np.cumsum(groups.sizes)])
    blocks = [str(block) for block in known.blocks.tolist()] if known.blocks is not None else ()
    problems = Problems()
    counts = with_law(known.counts, count_noise(noise)) if noise else known.counts
    grouped = Grouped(groups.rows, offsets, counts, [str(name) for name in groups.names], blocks)
    merged = with_labelled_rows(grouped, Labelled(rows, positive), problems, lambda row: f"row {row}")
    problems.raise_if_any()
    pool = groups.pool[~np.isin(groups.pool, rows)]
    names = TupleRows(merged.names, merged.rows, np.diff(merged.offsets), pool)
    codes = np.unique(np.array(merged.blocks), return_inverse=True)[1] if merged.blocks else None
    return KnownTuples(names, merged.counts, codes)


@dataclass(frozen=True)
class KnownTuples:
    """The arguments of `fit` that describe the rows of X."""

    groups: TupleRows
    counts: Counts
    blocks: Ints | None = None


def read_tuples(
    rows: int, tuples: TupleIds, counts: ByTuple | None, blocks: ByTuple | None = None, law: str = "exact"
) -> KnownTuples:
    """Ids with their counts, or `count_labels` in the place of ids."""
    if counts is not None:
        groups = TupleRows.of(_plain_list(tuples), rows)
        return KnownTuples(groups, groups.counts(counts, law), None if blocks is None else groups.blocks(blocks))
    y = np.asarray(tuples)
    if not (is_count_labels(y) and y.dtype.kind == "f"):
        raise UsageError(
            "the counts are missing",
            hint="Use fit(X, tuples, counts), or fit(X, y) with y = count_labels(tuples, counts).",
        )
    groups = TupleRows.of(y[:, 0].tolist(), rows)
    inside = y[:, 2] if y.shape[1] == 3 and blocks is None else blocks
    return KnownTuples(groups, groups.counts(y[:, 1], law), None if inside is None else groups.blocks(inside))


class FitArguments(NamedTuple):
    """What `fit` is given of the rows of X, in any of its forms."""

    X: Any
    tuples: Any
    counts: ByTuple | None
    blocks: ByTuple | None
    sample_weight: ByTuple | None

    def without_absent(self) -> FitArguments:
        """The same without the rows of tuples of weight 0: nothing may depend on them, not even a mean of X."""
        if self.sample_weight is None:
            return self
        y = np.asarray(self.tuples) if self.counts is None else None
        if y is not None and not is_count_labels(y):
            return self
        ids = _plain_list(self.tuples if y is None else y[:, 0])
        groups = TupleRows.of(ids, len(ids))
        weights = groups.weights(self.sample_weight)
        X = self.X.to_native() if hasattr(self.X, "to_native") else self.X
        # `fit` refuses sparse rows, and other numbers of rows, with its own messages.
        if weights.all() or issparse(X) or _num_samples(X) != len(ids):
            return self
        kept = np.sort(np.concatenate([groups.rows[np.repeat(weights > 0, groups.sizes)], groups.pool]))
        counts, blocks = (
            None if values is None else dict(zip(groups.names, groups._values(what, values), strict=True))
            for what, values in (("counts", self.counts), ("blocks", self.blocks))
        )
        tuples = [ids[row] for row in kept.tolist()] if y is None else y[kept]
        return FitArguments(
            _safe_indexing(X, kept), tuples, counts, blocks, dict(zip(groups.names, weights, strict=True))
        )


def _plain_list(values: Any) -> list[Any]:
    """The values of a sequence, an array or a column of a DataFrame."""
    for convert in ("tolist", "to_list", "to_pylist"):
        if hasattr(values, convert):
            plain = getattr(values, convert)()
            return plain if isinstance(plain, list) else [plain]
    return list(values)


def _is_missing(value: Any) -> bool:
    """None, NaN, and what pandas puts in their place."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # pandas' NA is neither true nor false
        return type(value).__name__ == "NAType"
