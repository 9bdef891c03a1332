"""Which rows form which tuple: pure functions of id codes and counts, for rows in any order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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

    def __len__(self) -> int:
        return len(self.counts)

    def subset(self, tuples: RowNumbers) -> Grouped:
        """The tuples of these numbers."""
        sizes = np.diff(self.offsets)[tuples]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        names = [self.names[t] for t in tuples.tolist()] if self.names else ()
        rows = self.rows[np.repeat(self.offsets[tuples], sizes) + within]
        return Grouped(rows, offsets, self.counts[tuples], names)


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


def hold_out(size: int, share: float, rng: np.random.Generator) -> tuple[RowNumbers, RowNumbers]:
    """(kept, held out): a random share of range(size) is held out; both are sorted."""
    order = rng.permutation(size)
    keep = size - round(size * share)
    return np.sort(order[:keep]).astype(np.int64), np.sort(order[keep:]).astype(np.int64)
