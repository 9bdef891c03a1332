"""A tuples directory as a source of training data: what a training may read of it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.layout import BLOCKS, TEST_INSTANCES
from ntmp_cli.artifacts.manifest import TuplesArtifact
from ntmp_cli.artifacts.shards import (
    read_instance_range,
    read_instances,
    read_offsets,
    read_sizes_and_counts,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
)
from ntmp_cli.counting.laws import NoiseLaw, count_noise
from ntmp_cli.counting.recorded import as_records, join, simplest, with_labels, with_law
from ntmp_cli.counting.strata import knowledge_of, strata_of
from ntmp_cli.tuple_source import Counts, HeldoutData, InstanceFormat, Integers, Task

# Shards of U with at most this many bytes are read whole.
SMALL_SHARD = 8 * 2**20


@dataclass
class StoredTuples:
    """The training, held-out and test instances of a tuples or features directory; small arrays are cached."""

    artifact: TuplesArtifact
    law: NoiseLaw | None = None
    """The noise law of all counts, if it is not the recorded one."""
    _open_shard: tuple[str, NDArray[np.generic]] | None = None

    @property
    def name(self) -> str:
        return str(self.artifact.path)

    @property
    def task(self) -> Task:
        """Strata and sizes from the manifest, before any shard is opened; under another law, from the shards."""
        return self.artifact.summary.task() if self.law is None else self._task

    @cached_property
    def _task(self) -> Task:
        shards = [read_sizes_and_counts(self.artifact, name) for name in tuple_shard_names(self.artifact, "train")]
        sizes = np.concatenate([sizes for sizes, _ in shards])
        counts = simplest(self._counts("train", 0, join([counts for _, counts in shards])))
        strata = strata_of(sizes, counts)
        unlabeled = self.artifact.summary.unlabeled.train
        return Task([row[:3] for row in strata], unlabeled, knowledge_of(strata, sizes, counts))

    @property
    def instance(self) -> InstanceFormat:
        return self.artifact.summary.instance.as_format()

    def tuple_shards(self) -> Sequence[tuple[str, int]]:
        return self._shards("train/tuples-")

    def unlabeled_shards(self) -> Sequence[tuple[str, int]]:
        return self._shards("train/unlabeled-")

    def _shards(self, prefix: str) -> list[tuple[str, int]]:
        return [(entry.path, entry.rows or 0) for entry in self.artifact.entries(prefix)]

    def read_tuples(self, shard: str, start: int, stop: int) -> tuple[NDArray[np.generic], Integers, Counts]:
        block = read_tuple_shard(self.artifact, shard, start, stop)
        return block.instances, np.diff(block.offsets), self._counts("train", self._first[shard] + start, block.counts)

    @cached_property
    def _first(self) -> dict[str, int]:
        """Number of training tuples before each shard."""
        names, rows = zip(*self.tuple_shards(), strict=True)
        return dict(zip(names, accumulate((0, *rows)), strict=False))

    def _counts(self, split: str, first: int, counts: Counts) -> Counts:
        """The counts of a shard, of the same type in all shards; `first` is the number of its first tuple in the split.

        `self.law` replaces recorded laws, but labels stay exact.
        """
        if self.law is not None:
            labelled = self.artifact.summary.labelled
            last = 0 if labelled is None else getattr(labelled, split) or 0
            at = first + np.arange(len(counts)) < getattr(self.artifact.summary.tuples, split) - last
            labels = as_records(counts)[~at]["low"] > 0
            return as_records(with_labels(with_law(counts[at], self.law), labels))
        return counts if self.artifact.summary.knowledge is None else as_records(counts)

    def read_unlabeled(self, shard: str, start: int, stop: int) -> NDArray[np.generic]:
        if self.artifact.entry(shard).bytes > SMALL_SHARD:
            return read_instance_range(self.artifact, shard, start, stop)
        # Many ranges of one file are read in succession: a small file is opened once for all of them.
        if self._open_shard is None or self._open_shard[0] != shard:
            self._open_shard = shard, read_instances(self.artifact, shard)
        instances = self._open_shard[1]
        if stop >= len(instances):
            self._open_shard = None
        return instances[start:stop]

    def tuple_offsets(self, shard: str) -> Integers:
        return read_offsets(self.artifact, shard)

    def heldout(self) -> HeldoutData | None:
        return self._heldout

    @cached_property
    def _heldout(self) -> HeldoutData | None:
        tuples, unlabeled = (names(self.artifact, "heldout") for names in (tuple_shard_names, unlabeled_shard_names))
        if not tuples:
            return None
        blocks = [read_tuple_shard(self.artifact, name) for name in tuples]
        return HeldoutData(
            np.concatenate([block.instances for block in blocks]),
            np.concatenate([np.diff(block.offsets) for block in blocks]),
            self._counts("heldout", 0, join([block.counts for block in blocks])),
            np.concatenate([self._no_instances, *(read_instances(self.artifact, name) for name in unlabeled)]),
        )

    @property
    def shares_instances(self) -> bool:
        reuse = self.artifact.summary.reuse
        return reuse is not None and max(reuse.positive, reuse.negative) > 1

    def blocks(self) -> Integers | None:
        return self._blocks

    @cached_property
    def _blocks(self) -> Integers | None:
        if not self.artifact.has(BLOCKS):
            return None
        stored, sizes = self.artifact.read_json(BLOCKS), dict(self.artifact.summary.tuples.items())
        texts = isinstance(stored, dict) and all(
            isinstance(blocks, list) and all(isinstance(block, str | int) for block in blocks)
            for blocks in stored.values()
        )
        if not texts or {name: len(blocks) for name, blocks in stored.items()} != sizes:
            raise self.artifact.damaged(BLOCKS, "it does not name one block per tuple")
        _, codes = np.unique(np.array([block for split in sizes for block in stored[split]]), return_inverse=True)
        return codes.astype(np.int64)

    def weights(self) -> NDArray[np.float64] | None:
        return None

    def test_instances(self) -> NDArray[np.generic]:
        return self._test_instances

    @cached_property
    def _test_instances(self) -> NDArray[np.generic]:
        if not self.artifact.has(TEST_INSTANCES):
            return self._no_instances
        return read_instances(self.artifact, TEST_INSTANCES)

    @property
    def _no_instances(self) -> NDArray[np.generic]:
        return np.empty((0, *self.instance.shape), self.instance.dtype)


def under_noise(tuples: TuplesArtifact, rate: float) -> StoredTuples:
    """The tuples with counts that are off by one at this rate, and exact labels.

    If all counts were recorded as integers, they stay integers: methods know the noise rate from their setting.
    """
    recorded = tuples.summary.knowledge or tuples.summary.labelled
    return StoredTuples(tuples, count_noise(rate) if rate and recorded else None)
