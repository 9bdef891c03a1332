"""Which rows form which tuple: pure functions of id codes and counts, for rows in any order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.user.problems import Problems

RowNumbers = NDArray[np.int64]
# No tuple, or no count.
NONE = -1


@dataclass(frozen=True)
class Grouped:
    """Rows tuple by tuple: tuple t owns rows[offsets[t]:offsets[t+1]], in file order, counts[t] of them positive."""

    rows: RowNumbers
    offsets: RowNumbers
    counts: RowNumbers
    names: Sequence[str] = ()
    """Ids of the tuples, where the caller has them."""
    blocks: Sequence[str] = ()
    """The block of every tuple, where there are blocks."""

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


def counts_of_tuples(
    codes: NDArray[np.int32],
    counts: NDArray[np.int32],
    names: list[str],
    place: Callable[[int], str],
    problems: Problems,
    reported: Collection[int] = (),
) -> Grouped:
    """Tuples with their counts. A count stands in any or all rows of its tuple; rows that differ are problems.

    `reported` are tuples whose counts are problems already; they may lack one.
    """
    rows, offsets = group_rows(codes, len(names))
    row_counts = counts[rows].astype(np.int64)
    first = rows[offsets[:-1]] if len(rows) else rows
    highest = np.maximum.reduceat(row_counts, offsets[:-1]) if len(rows) else row_counts
    for at in np.flatnonzero((row_counts != NONE) & (row_counts != np.repeat(highest, np.diff(offsets)))):
        tuple_number = int(np.searchsorted(offsets, at, side="right")) - 1
        what = (
            f"tuple '{names[tuple_number]}' has count {row_counts[at]} here and {highest[tuple_number]} in another row"
        )
        problems.add(place(int(rows[at])), what)
    for t in sorted(set(np.flatnonzero(highest == NONE).tolist()) - set(reported)):
        problems.add(place(int(first[t])), f"tuple '{names[t]}' has no count in any of its rows")
    sizes = np.diff(offsets)
    for t in np.flatnonzero(highest > sizes).tolist():
        what = f"tuple '{names[t]}' has count {highest[t]} but only {sizes[t]} row{'s'[: int(sizes[t]) != 1]}"
        problems.add(place(int(first[t])), what)
    return Grouped(rows, offsets, highest, names)


def runs_of_tuples(offsets: RowNumbers, rows: int) -> Iterator[tuple[int, int]]:
    """(first, last + 1) of successive tuples that have about so many rows; no tuple is cut."""
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
    """The block of every tuple, from a code per row. Any or all of its rows say it; rows that differ are problems."""
    row_codes = codes[tuples.rows]
    highest = np.maximum.reduceat(row_codes, tuples.offsets[:-1]) if len(tuples) else row_codes
    for at in np.flatnonzero((row_codes != NONE) & (row_codes != np.repeat(highest, np.diff(tuples.offsets)))):
        t = int(np.searchsorted(tuples.offsets, at, side="right")) - 1
        here, there = blocks[row_codes[at]], blocks[highest[t]]
        what = f"tuple '{tuples.names[t]}' is of block '{here}' here and of '{there}' in another row"
        problems.add(place(int(tuples.rows[at])), what)
    for t in np.flatnonzero(highest == NONE).tolist():
        first = int(tuples.rows[tuples.offsets[t]])
        problems.add(place(first), f"tuple '{tuples.names[t]}' has no block in any of its rows")
    return [blocks[code] if code != NONE else "" for code in highest.tolist()]


def hold_out_blocks(blocks: Sequence[str], share: float, rng: np.random.Generator) -> tuple[RowNumbers, RowNumbers]:
    """(kept, held out): random whole blocks are held out, about a share of the tuples; at least one block is kept."""
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
