"""Which rows form which tuple: pure functions of id codes and counts, for rows in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.recorded import EXACT, Counts, as_records, as_text, records, with_labels
from ntmp_cli.data.user.count_cells import NONE, CellError, CountColumn
from ntmp_cli.data.user.problems import Problems

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class Grouped:
    """Rows tuple by tuple: tuple t owns rows[offsets[t]:offsets[t+1]], in file order, counts[t] of them positive."""

    rows: RowNumbers
    offsets: RowNumbers
    counts: Counts
    names: Sequence[str] = ()
    """Ids of the tuples, if known."""
    blocks: Sequence[str] = ()
    """The block of every tuple, if there are blocks."""
    uncounted: RowNumbers = field(default_factory=lambda: np.empty(0, np.int64))
    """Rows of groups without a count."""

    def __len__(self) -> int:
        return len(self.counts)

    def subset(self, tuples: RowNumbers) -> Grouped:
        """The tuples of these numbers."""
        sizes = np.diff(self.offsets)[tuples]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        names = [self.names[t] for t in tuples.tolist()] if self.names else ()
        blocks = [self.blocks[t] for t in tuples.tolist()] if self.blocks else ()
        rows = self.rows[np.repeat(self.offsets[tuples], sizes) + within]
        return Grouped(rows, offsets, self.counts[tuples], names, blocks)


def group_rows(codes: NDArray[np.int32], tuples: int) -> tuple[RowNumbers, RowNumbers]:
    """(rows, offsets): the rows of tuple 0, then of tuple 1, …, each in file order; rows of no tuple are left out."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes[codes >= 0], minlength=tuples)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return order[len(codes) - int(offsets[-1]) :].astype(np.int64), offsets


@dataclass(frozen=True)
class RowCounts:
    """The cell of every row in a column of counts, by number."""

    codes: NDArray[np.int32]
    column: CountColumn


def counts_of_tuples(
    codes: NDArray[np.int32],
    counts: RowCounts,
    names: list[str],
    place: Callable[[int], str],
    problems: Problems,
) -> Grouped:
    """Tuples with their counts. A count is given in one or more rows of its tuple; contradictions are problems.

    Groups without a count in any row are not tuples.
    """
    rows, offsets = group_rows(codes, len(names))
    row_counts, column = counts.codes[rows].astype(np.int64), counts.column
    first = rows[offsets[:-1]] if len(rows) else rows
    highest = np.maximum.reduceat(row_counts, offsets[:-1]) if len(rows) else row_counts
    for at in np.flatnonzero((row_counts != NONE) & (row_counts != np.repeat(highest, np.diff(offsets)))):
        tuple_number = int(np.searchsorted(offsets, at, side="right")) - 1
        here, there = column.described(row_counts[at], highest[tuple_number])
        what = f"tuple '{names[tuple_number]}' has count {here} here and {there} in another row"
        problems.add(place(int(rows[at])), what)
    recorded = np.full((len(names), 2), 0.0)
    laws = np.full(len(names), b"exact", dtype="S64")
    resolved: dict[tuple[int, int], tuple[float, float, str] | str] = {}
    for t, (code, n) in enumerate(zip(highest.tolist(), np.diff(offsets).tolist(), strict=True)):
        if code == NONE:
            continue
        if (code, n) not in resolved:
            resolved[code, n] = _record(column, code, n)
        found = resolved[code, n]
        if isinstance(found, str):
            problems.add(place(int(first[t])), f"tuple '{names[t]}' {found}")
        else:
            recorded[t], laws[t] = found[:2], found[2]
    everything = Grouped(rows, offsets, records(recorded[:, 0], recorded[:, 1], laws), names)
    if (highest != NONE).all():
        return everything
    counted = everything.subset(np.flatnonzero(highest != NONE))
    return replace(counted, uncounted=np.sort(rows[np.repeat(highest == NONE, np.diff(offsets))]))


def _record(column: CountColumn, code: int, n: int) -> tuple[float, float, str] | str:
    try:
        return column.record(code, n)
    except CellError as error:
        return str(error)


def runs_of_tuples(offsets: RowNumbers, rows: int) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of successive tuples that have about `rows` rows together."""
    start, tuples = 0, len(offsets) - 1
    while start < tuples:
        stop = int(np.searchsorted(offsets, offsets[start] + rows, side="right")) - 1
        stop = min(max(stop, start + 1), tuples)
        yield start, stop
        start = stop


def blocks_of_tuples(
    tuples: Grouped,
    codes: NDArray[np.int32],
    blocks: Sequence[str],
    place: Callable[[int], str],
    problems: Problems,
) -> list[str]:
    """The block of every tuple, given in one or more of its rows; contradictions are problems."""
    row_codes = codes[tuples.rows]
    highest = np.maximum.reduceat(row_codes, tuples.offsets[:-1]) if len(tuples) else row_codes
    for at in np.flatnonzero((row_codes != NONE) & (row_codes != np.repeat(highest, np.diff(tuples.offsets)))):
        t = int(np.searchsorted(tuples.offsets, at, side="right")) - 1
        here, there = blocks[row_codes[at]], blocks[highest[t]]
        what = f"tuple '{tuples.names[t]}' is in block '{here}' here and in '{there}' in another row"
        problems.add(place(int(tuples.rows[at])), what)
    for t in np.flatnonzero(highest == NONE).tolist():
        first = int(tuples.rows[tuples.offsets[t]])
        problems.add(place(first), f"tuple '{tuples.names[t]}' has no block in any of its rows")
    return [blocks[code] if code != NONE else "" for code in highest.tolist()]


def hold_out_blocks(blocks: Sequence[str], share: float, rng: np.random.Generator) -> tuple[RowNumbers, RowNumbers]:
    """(kept, held out): random blocks with about a share of the tuples are held out; at least one block is kept."""
    _, codes, sizes = np.unique(np.array(blocks), return_inverse=True, return_counts=True)
    order = rng.permutation(len(sizes))
    held_by_number = np.concatenate([[0], np.cumsum(sizes[order])])[:-1]
    number = int(np.abs(held_by_number - share * len(codes)).argmin())
    is_held = np.isin(codes, order[:number])
    return np.flatnonzero(~is_held).astype(np.int64), np.flatnonzero(is_held).astype(np.int64)


def hold_out(size: int, share: float, rng: np.random.Generator) -> tuple[RowNumbers, RowNumbers]:
    """(kept, held out): a random share of range(size) is held out; both are sorted."""
    order = rng.permutation(size)
    keep = size - round(size * share)
    return np.sort(order[:keep]).astype(np.int64), np.sort(order[keep:]).astype(np.int64)


class Labelled(NamedTuple):
    """Rows whose label is known, and whether it is the positive one."""

    rows: RowNumbers
    positive: NDArray[np.bool_]


def with_labelled_rows(tuples: Grouped, labelled: Labelled, problems: Problems, place: Callable[[int], str]) -> Grouped:
    """Make every labelled row a tuple of one member, and remove it from the tuple that it was in.

    The remaining tuple has the rest of its count. If the recorded count does not allow that (for example if it is
    rounded), the row stays in its tuple as well.
    """
    owner = np.repeat(np.arange(len(tuples)), np.diff(tuples.offsets))
    is_labelled = np.isin(tuples.rows, labelled.rows)
    by_row = dict(zip(labelled.rows.tolist(), labelled.positive.tolist(), strict=True))
    rest = as_records(tuples.counts).copy()
    movable = np.array([_is_movable(law.decode()) for law in rest["law"].tolist()], dtype=np.bool_)
    taken = is_labelled & movable[owner]
    positive = np.array([by_row.get(row, False) for row in tuples.rows.tolist()], dtype=np.bool_)
    positives = np.bincount(owner[taken & positive], minlength=len(tuples))
    sizes = np.diff(tuples.offsets) - np.bincount(owner[taken], minlength=len(tuples))
    rest["low"], rest["high"] = rest["low"] - positives, rest["high"] - positives
    is_exact = rest["law"] == EXACT
    contradicted = is_exact & ((rest["high"] < 0) | (rest["low"] > sizes))
    for t in np.flatnonzero(contradicted).tolist():
        where = place(int(tuples.rows[tuples.offsets[t]]))
        problems.add(
            where, f"tuple '{tuples.names[t]}' has count {as_text(tuples.counts[t])}, which its labels contradict"
        )
    rest["low"] = np.where(is_exact, np.maximum(rest["low"], 0), rest["low"])
    rest["high"] = np.where(is_exact, np.minimum(rest["high"], sizes), rest["high"])
    kept = np.flatnonzero((sizes > 0) & ~contradicted)
    rows = [tuples.rows[~taken & np.isin(owner, kept)], labelled.rows]
    singly = [f"row {row + 1}" for row in labelled.rows.tolist()]
    blocks: Sequence[str] = ()
    if tuples.blocks:
        # A labelled row stays in the block of its tuple.
        block_of = {row: tuples.blocks[t] for row, t in zip(tuples.rows.tolist(), owner.tolist(), strict=True)}
        own = [block_of.get(row, name) for row, name in zip(labelled.rows.tolist(), singly, strict=True)]
        blocks = [*(tuples.blocks[t] for t in kept.tolist()), *own]
    return Grouped(
        np.concatenate(rows),
        np.concatenate([[0], np.cumsum([*sizes[kept], *np.ones(len(labelled.rows), np.int64)])]).astype(np.int64),
        with_labels(rest[kept], labelled.positive),
        [*(tuples.names[t] for t in kept.tolist()), *singly],
        blocks,
        tuples.uncounted[~np.isin(tuples.uncounted, labelled.rows)],
    )


def _is_movable(law: str) -> bool:
    """Whether a recorded count minus a known positive follows the same law."""
    return law.partition(":")[0] in ("exact", "gaussian", "laplace", "geometric")
