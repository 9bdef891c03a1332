"""Sampling tuples with exact counts from class pools, in blocks of fixed size.

Blocks do not depend on how the result is cut into shards, so that the same seed gives the same tuples
whatever the shard size, in memory that does not grow with the number of tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.counting.recorded import Counts
from ntmp_cli.data.recording import Recording
from ntmp_cli.data.specs import TupleSpec, sample_sizes
from ntmp_cli.errors import UsageError
from ntmp_cli.randomness import stream

BLOCK = 4096


@dataclass(frozen=True)
class SampledBlock:
    """Tuples as indices into the source, with recorded and true counts."""

    indices: NDArray[np.int64]
    offsets: NDArray[np.int64]
    counts: Counts
    true_counts: NDArray[np.int64]


@dataclass
class ClassStream:
    """Endless sampling from one class pool: every instance once, in random order, before any is used again."""

    pool: NDArray[np.int64]
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self._order = self.pool[:0]
        self._at = 0
        self.taken = 0

    def take(self, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """The next sum(sizes) members; no instance occurs twice in a group of sizes[t]."""
        ends = np.cumsum(sizes)
        total = int(ends[-1])
        out = np.empty(total, dtype=np.int64)
        filled = 0
        while filled < total:
            if self._at == len(self._order):
                t = int(np.searchsorted(ends, filled, side="right"))
                self._new_pass(out[ends[t] - sizes[t] : filled], int(ends[t]) - filled)
            step = min(len(self._order) - self._at, total - filled)
            out[filled : filled + step] = self._order[self._at : self._at + step]
            self._at += step
            filled += step
        self.taken += total
        return out

    def _new_pass(self, taken: NDArray[np.int64], remaining: int) -> None:
        """Shuffle again; a tuple across two passes must not hold an instance twice."""
        order = self.rng.permutation(self.pool)
        if len(taken):
            free = np.flatnonzero(~np.isin(order, taken))[:remaining]
            order = np.concatenate([order[free], np.delete(order, free)])
        self._order, self._at = order, 0


@dataclass
class TupleSampler:
    """Blocks of tuples and, once all are sampled, how often instances were used."""

    specs: Sequence[TupleSpec]
    size: int
    pool: NDArray[np.int64]
    positive: NDArray[np.bool_]
    count_noise: float
    seed: int
    split: str
    recording: Recording = field(default_factory=Recording)

    def __post_init__(self) -> None:
        in_class = self.positive[self.pool]
        # A separate stream, so that the tuples of a seed do not depend on how their counts are recorded.
        self._recording_rng = stream(self.seed, self.split, "records")
        self._pos = ClassStream(self.pool[in_class], stream(self.seed, self.split, "positives"))
        self._neg = ClassStream(self.pool[~in_class], stream(self.seed, self.split, "negatives"))
        for name, members, most in (
            ("positives", self._pos, max(s.most_positives for s in self.specs)),
            ("negatives", self._neg, max(s.most_negatives for s in self.specs)),
        ):
            available = len(members.pool)
            if most > available:
                raise UsageError(
                    f"a tuple may need {most} different {name}, but the {self.split} tuple share has {available}",
                    hint="Use smaller tuples, more data, or a larger --tuple-share.",
                )

    def blocks(self) -> Iterator[SampledBlock]:
        rng = stream(self.seed, self.split, "tuples")
        for start in range(0, self.size, BLOCK):
            yield self._block(min(BLOCK, self.size - start), rng)

    def _block(self, size: int, rng: np.random.Generator) -> SampledBlock:
        n, m = sample_sizes(self.specs, size, rng)
        offsets = np.concatenate([[0], np.cumsum(n)])
        owner = np.repeat(np.arange(size), n)
        is_positive = np.arange(offsets[-1]) - offsets[owner] < m[owner]
        indices = np.empty(offsets[-1], dtype=np.int64)
        indices[is_positive] = self._pos.take(m)
        indices[~is_positive] = self._neg.take(n - m)
        # Shuffle inside each tuple, so that positions carry no information.
        indices = indices[np.lexsort((rng.random(len(indices)), owner))]
        # The law uses the same random numbers at every rate, 0 included: the tuples of a seed do not depend on it.
        recorded: Counts = OffByOne(self.count_noise).sample(m, n, rng)
        if not self.recording.plain:
            recorded = self.recording.record(m, n, self._recording_rng)
        return SampledBlock(indices, offsets, recorded, m)

    def reuse(self) -> dict[str, float]:
        """Mean number of times that an instance of each class pool was sampled."""
        return {
            "positive": round(self._pos.taken / max(len(self._pos.pool), 1), 4),
            "negative": round(self._neg.taken / max(len(self._neg.pool), 1), 4),
        }
