"""Counted tuples and an unlabeled pool as training sees them, on disk or in memory: no labels, and no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ntmp_cli.counting.strata import CountKnowledge

# Texts, and NumPy only where it is used: methods and their settings are listed without it.
Integers: TypeAlias = "NDArray[np.int64]"
CountsNeeded = Literal["any", "rates", "exact"]
"""What a method takes: any observation, tuples whose rate is known, or exact counts."""
Counts: TypeAlias = "NDArray[Any]"
"""Exact counts as whole numbers, else records; see `counting.recorded`."""


@dataclass(frozen=True)
class Task:
    """What is known about the data before training: strata (n, m, tuples) and the size of U."""

    strata: Sequence[tuple[int, int | float, int]]
    unlabeled: int
    knowledge: CountKnowledge | None = None
    """Of counts that are not all exact; m is then a mean of the stratum, and perhaps only an expected one."""

    expects: bool = False
    """Whether m are means or expected counts, in which the noise is accounted for, and no recorded ones."""

    @property
    def instances(self) -> int:
        return sum(n * k for n, _, k in self.strata)

    @property
    def rate(self) -> float:
        """Share of positives among all tuple instances, Σm/Σn."""
        return sum(m * k for _, m, k in self.strata) / self.instances

    @property
    def symmetric(self) -> bool:
        """n = 2m in every stratum: the counts do not tell the classes apart."""
        if self.knowledge is not None:
            return self.knowledge.symmetric
        return all(n == 2 * m for n, m, _ in self.strata)

    @property
    def rated_strata(self) -> Sequence[tuple[int, int | float, int]]:
        """The strata whose rate is known: what the risk is made of."""
        if self.knowledge is None:
            return self.strata
        return [row for row, known in zip(self.strata, self.knowledge.known, strict=True) if known]

    @cached_property
    def rated_counts(self) -> dict[tuple[int, str], float]:
        """m of every stratum whose rate is known, by n and what was recorded."""
        if self.knowledge is None:
            return {(n, str(m)): float(m) for n, m, _ in self.strata}
        rows = zip(self.strata, self.knowledge.counts, self.knowledge.known, strict=True)
        return {(n, text): float(m) for (n, m, _), text, known in rows if known}


@dataclass(frozen=True)
class HeldoutData:
    """Raw held-out tuples and unlabeled instances, without labels."""

    tuples: NDArray[np.generic]
    sizes: Integers
    counts: Counts
    unlabeled: NDArray[np.generic]


class InstanceFormat(NamedTuple):
    """What an instance is: a network sees `raw / scale`, standardised unless it has been already."""

    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    scale: float = 1.0
    standardised: bool = False

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize


class TupleSource(Protocol):
    """Training tuples and U in named shards, of which any range of rows can be read."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def task(self) -> Task: ...

    @property
    def instance(self) -> InstanceFormat: ...

    def tuple_shards(self) -> Sequence[tuple[str, int]]:
        """Name and number of tuples of every shard."""

    def unlabeled_shards(self) -> Sequence[tuple[str, int]]:
        """Name and number of instances of every shard."""

    def read_tuples(self, shard: str, start: int, stop: int) -> tuple[NDArray[np.generic], Integers, Counts]:
        """Instances of the tuples start:stop in a row, their sizes and recorded counts."""

    def read_unlabeled(self, shard: str, start: int, stop: int) -> NDArray[np.generic]: ...

    def tuple_offsets(self, shard: str) -> Integers:
        """Where the tuples of a shard begin and end among its instances."""

    def heldout(self) -> HeldoutData | None:
        """What was set aside; None where nothing was."""

    def test_instances(self) -> NDArray[np.generic]:
        """Instances whose scores are kept; may be empty."""

    @property
    def shares_instances(self) -> bool:
        """Whether training tuples have instances in common: then no fold of them is new to the others."""

    def blocks(self) -> Integers | None:
        """Block of every tuple, training ones first; None if all tuples are independent."""

    def weights(self) -> NDArray[np.float64] | None:
        """Weight of every tuple, training ones first; None where all are 1."""


@dataclass(frozen=True)
class ArraySource:
    """Tuples and U in memory: instances of all tuples in a row, sizes, counts, unlabeled instances."""

    tuples: NDArray[np.floating[Any]]
    sizes: Integers
    counts: Counts
    unlabeled: NDArray[np.floating[Any]]
    heldout_data: HeldoutData | None = None
    name: str = "the arrays"
    shares_instances: bool = False
    tuple_blocks: Integers | None = None
    tuple_weights: NDArray[np.float64] | None = None
    standardised: bool = False

    @cached_property
    def task(self) -> Task:
        from ntmp_cli.counting.strata import knowledge_of, strata_of

        strata = strata_of(self.sizes, self.counts)
        knowledge = knowledge_of(strata, self.sizes, self.counts)
        return Task([row[:3] for row in strata], len(self.unlabeled), knowledge)

    @property
    def instance(self) -> InstanceFormat:
        return InstanceFormat(self.tuples.shape[1:], self.tuples.dtype, standardised=self.standardised)

    def tuple_shards(self) -> Sequence[tuple[str, int]]:
        return [("tuples", len(self.sizes))]

    def unlabeled_shards(self) -> Sequence[tuple[str, int]]:
        return [("unlabeled", len(self.unlabeled))]

    def read_tuples(self, shard: str, start: int, stop: int) -> tuple[NDArray[np.generic], Integers, Counts]:
        offsets = self.tuple_offsets(shard)
        return self.tuples[offsets[start] : offsets[stop]], self.sizes[start:stop], self.counts[start:stop]

    def read_unlabeled(self, shard: str, start: int, stop: int) -> NDArray[np.generic]:
        return self.unlabeled[start:stop]

    def tuple_offsets(self, shard: str) -> Integers:
        import numpy as np

        return np.concatenate([[0], np.cumsum(self.sizes)])

    def heldout(self) -> HeldoutData | None:
        return self.heldout_data

    def test_instances(self) -> NDArray[np.generic]:
        return self.tuples[:0]

    def blocks(self) -> Integers | None:
        return self.tuple_blocks

    def weights(self) -> NDArray[np.float64] | None:
        return self.tuple_weights
