"""The usable tuples of a source with ranges or noisy counts, for methods that need rates or exact counts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.recorded import are_records, exact_rows
from ntmp_cli.counting.strata import strata_of, stratum_counts
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.tuple_source import Counts, CountsNeeded, HeldoutData, InstanceFormat, Integers, Task, TupleSource


def source_for(method: str, needed: CountsNeeded, source: TupleSource) -> TupleSource:
    """The source itself where all of its tuples can be used; else those that can, if there are any."""
    if needed == "any" or source.task.knowledge is None:
        return source
    usable = RatedSource(source, exact=needed == "exact")
    if not usable.tuples:
        what = "tuples whose count is known" if needed == "exact" else "tuples whose rate is known"
        raise NotIdentifiableError(
            f"method {method} needs {what}, and none of these has one: ranges and rounded counts have no rate",
            hint="Use the method count, which takes every kind of count.",
        )
    return usable


class RatedSource:
    """Those tuples of a source whose rate is known, with the count of their stratum in place of what was recorded."""

    def __init__(self, source: TupleSource, *, exact: bool) -> None:
        self.source, self._exact = source, exact
        self._means = source.task.rated_counts
        self._kept: dict[str, Integers] = {}
        all_exact = True
        self._offsets: dict[str, Integers] = {}
        for shard, rows in source.tuple_shards():
            _, sizes, counts = source.read_tuples(shard, 0, rows)
            self._kept[shard] = np.flatnonzero(np.isfinite(self._usable(sizes, counts)))
            self._offsets[shard] = np.concatenate([[0], np.cumsum(sizes[self._kept[shard]])])
            all_exact &= bool(exact_rows(counts)[self._kept[shard]].all())
        self._expects = not all_exact

    def _usable(self, sizes: Integers, counts: Counts) -> NDArray[np.float64]:
        """The count of every tuple's stratum; NaN where it cannot be used."""
        means = stratum_counts(sizes, counts, self._means)
        return np.where(exact_rows(counts), means, np.nan) if self._exact else means

    @property
    def tuples(self) -> int:
        return sum(map(len, self._kept.values()))

    @property
    def name(self) -> str:
        return self.source.name

    @cached_property
    def task(self) -> Task:
        parts = [self.read_tuples(shard, 0, len(kept))[1:] for shard, kept in self._kept.items() if len(kept)]
        sizes, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        pairs, numbers = np.unique(np.stack([sizes.astype(np.float64), counts]), axis=1, return_counts=True)
        strata = [(int(n), _plain(m), int(k)) for n, m, k in zip(*pairs, numbers, strict=True)]
        return Task(strata, self.source.task.unlabeled, expects=self._expects)

    @property
    def instance(self) -> InstanceFormat:
        return self.source.instance

    def tuple_shards(self) -> Sequence[tuple[str, int]]:
        return [(shard, len(kept)) for shard, kept in self._kept.items() if len(kept)]

    def unlabeled_shards(self) -> Sequence[tuple[str, int]]:
        return self.source.unlabeled_shards()

    def read_tuples(self, shard: str, start: int, stop: int) -> tuple[NDArray[np.generic], Integers, Counts]:
        rows = self._kept[shard][start:stop]
        first, last = int(rows[0]), int(rows[-1]) + 1
        x, sizes, counts = self.source.read_tuples(shard, first, last)
        return self._chosen(x, sizes, counts, np.isin(np.arange(first, last), rows))

    def _chosen(
        self, x: NDArray[np.generic], sizes: Integers, counts: Counts, chosen: NDArray[np.bool_]
    ) -> tuple[NDArray[np.generic], Integers, Counts]:
        means = self._usable(sizes, counts)[chosen]
        whole = means.astype(np.int64)
        return x[np.repeat(chosen, sizes)], sizes[chosen], whole if (whole == means).all() else means

    def read_unlabeled(self, shard: str, start: int, stop: int) -> NDArray[np.generic]:
        return self.source.read_unlabeled(shard, start, stop)

    def tuple_offsets(self, shard: str) -> Integers:
        return self._offsets[shard]

    def heldout(self) -> HeldoutData | None:
        """Held-out tuples in the same strata, each with the mean of its own: training has not seen it."""
        held = self.source.heldout()
        if held is None:
            return None
        usable = np.isfinite(self._heldout_counts(held))
        if not usable.any():
            return None
        counts = self._heldout_counts(held)[usable]
        whole = counts.astype(np.int64)
        chosen = held.tuples[np.repeat(usable, held.sizes)]
        return HeldoutData(chosen, held.sizes[usable], whole if (whole == counts).all() else counts, held.unlabeled)

    def _heldout_counts(self, held: HeldoutData) -> NDArray[np.float64]:
        if not are_records(held.counts):
            return np.asarray(held.counts, dtype=np.float64)
        strata = strata_of(held.sizes, held.counts)
        means = stratum_counts(held.sizes, held.counts, {(row.n, row.counts): row.m for row in strata if row.known})
        return np.where(exact_rows(held.counts), means, np.nan) if self._exact else means

    def test_instances(self) -> NDArray[np.generic]:
        return self.source.test_instances()

    @property
    def shares_instances(self) -> bool:
        return self.source.shares_instances

    def blocks(self) -> Integers | None:
        blocks = self.source.blocks()
        return None if blocks is None else blocks[self._positions()]

    def weights(self) -> NDArray[np.float64] | None:
        weights = self.source.weights()
        return None if weights is None else weights[self._positions()]

    def _positions(self) -> Integers:
        """Positions of the kept tuples among all tuples, training tuples first."""
        starts = np.cumsum([0, *(rows for _, rows in self.source.tuple_shards())])
        kept = [at + rows for at, rows in zip(starts.tolist(), self._kept.values(), strict=False)]
        held = self.source.heldout()
        if held is not None:
            kept.append(int(starts[-1]) + np.flatnonzero(np.isfinite(self._heldout_counts(held))))
        return np.concatenate(kept)


def _plain(m: float) -> int | float:
    return int(m) if m == int(m) else float(m)
