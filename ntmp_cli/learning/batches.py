"""Training data as a stream of batches, tuples and unlabeled instances side by side.

An epoch visits every tuple and every unlabeled instance once. Data that fit into the memory budget are
held as one tensor of raw instances (tuples first) and gathered by index; larger data are visited window
by window, each a random group of chunks. The order depends only on the seed and the epoch, so a run
can be resumed at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntmp_cli.counting.recorded import join
from ntmp_cli.learning.batch_assignment import BatchAssignment, assign_tuples, assign_unlabeled
from ntmp_cli.randomness import stream
from ntmp_cli.tuple_source import Counts

# Small batches are gathered several at a time: one large copy instead of many small ones.
GATHER_BYTES = 2**20


@dataclass(frozen=True)
class TupleChunk:
    """Tuples that can be loaded: (instances, sizes n_t, recorded counts m_t).

    `targets` gives one number per instance, for methods that need it: the probabilities of a teacher, or, only for an
    oracle, the true labels.
    """

    tuples: int
    load: Callable[[], tuple[NDArray[np.generic], NDArray[np.int64], Counts]]
    targets: Callable[[], NDArray[np.float32]] | None = None


@dataclass(frozen=True)
class UnlabeledChunk:
    """Unlabeled instances that can be loaded."""

    instances: int
    load: Callable[[], NDArray[np.generic]]
    targets: Callable[[], NDArray[np.float32]] | None = None


@dataclass(frozen=True)
class Batch:
    """Raw instances of tuples, then of the unlabeled pool, for one forward pass."""

    x: Tensor
    sizes: NDArray[np.int64]
    counts: Counts
    tuple_instances: int
    unlabeled: int
    targets: Tensor | None = None


@dataclass(frozen=True)
class MemoryWindow:
    """The part of the data that is in memory: one tensor of raw instances, tuples first."""

    x: Tensor
    sizes: NDArray[np.int64]
    counts: Counts
    targets: Tensor | None = None

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        starts: NDArray[np.int64] = np.cumsum(self.sizes) - self.sizes
        return starts

    @cached_property
    def tuple_instances(self) -> int:
        return int(self.sizes.sum())

    def batches(
        self,
        steps: int,
        rng: np.random.Generator,
        skip: int = 0,
        assignment: BatchAssignment | None = None,
        sides: NDArray[np.bool_] | None = None,
    ) -> Iterator[Batch]:
        """Every tuple and every unlabeled instance once, in `steps` batches of even size."""
        tuple_bounds: NDArray[np.int64]
        if assignment is None:
            order = rng.permutation(len(self.sizes))
            tuple_bounds = np.linspace(0, len(order), steps + 1).astype(np.int64)
        else:
            order, tuple_bounds = assign_tuples(self.sizes, self.counts, steps, assignment.prior, sides, rng)
        unlabeled = self.tuple_instances + self._unlabeled_order(steps, rng, assignment)
        sizes, counts = self.sizes[order], self.counts[order]
        flat = _members(self.starts[order], sizes)
        flat_bounds = np.concatenate([[0], np.cumsum(sizes)])[tuple_bounds]
        unlabeled_bounds = np.linspace(0, len(unlabeled), steps + 1).astype(np.int64)
        bounds = list(zip(tuple_bounds.tolist(), flat_bounds.tolist(), unlabeled_bounds.tolist(), strict=True))
        ahead = max(1, GATHER_BYTES * steps // max(1, self.x.nbytes))
        for first in range(skip, steps, ahead):
            spans = list(pairwise(bounds[first : first + ahead + 1]))
            rows = [rows for (_, f0, u0), (_, f1, u1) in spans for rows in (flat[f0:f1], unlabeled[u0:u1])]
            index = torch.from_numpy(np.concatenate(rows))
            x = self.x.index_select(0, index)
            targets = None if self.targets is None else self.targets.index_select(0, index)
            start = 0
            for (t0, f0, u0), (t1, f1, u1) in spans:
                stop = start + f1 - f0 + u1 - u0
                batch_targets = None if targets is None else targets[start:stop]
                yield Batch(x[start:stop], sizes[t0:t1], counts[t0:t1], f1 - f0, u1 - u0, batch_targets)
                start = stop

    def _unlabeled_order(
        self, steps: int, rng: np.random.Generator, assignment: BatchAssignment | None
    ) -> NDArray[np.int64]:
        if assignment is None or self.targets is None:
            return rng.permutation(len(self.x) - self.tuple_instances)
        return assign_unlabeled(self.targets[self.tuple_instances :].numpy(), steps, rng)


def _members(starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """start, start+1, …, start+size−1 for every tuple, in a row."""
    ends = np.cumsum(sizes)
    members: NDArray[np.int64] = np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)
    return members


@dataclass
class ChunkGroup:
    """Chunks of tuples and of unlabeled instances that are in memory at the same time."""

    tuple_chunks: Sequence[TupleChunk]
    unlabeled_chunks: Sequence[UnlabeledChunk]

    @property
    def tuples(self) -> int:
        return sum(chunk.tuples for chunk in self.tuple_chunks)

    @property
    def unlabeled(self) -> int:
        return sum(chunk.instances for chunk in self.unlabeled_chunks)


@dataclass
class TrainingData(ChunkGroup):
    """All chunks, and how much of them may be in memory."""

    mean_size: float
    instance_bytes: int
    budget_bytes: int
    batch_size: int
    seed: int
    share: int = 0
    assignment: BatchAssignment | None = None
    _all_data: MemoryWindow | None = None

    @cached_property
    def windows(self) -> int:
        """In how many windows an epoch is visited: 1 when the data fit."""
        total = (self.tuples * self.mean_size + self.unlabeled) * self.instance_bytes
        needed = int(np.ceil(total / self.budget_bytes))
        return max(1, min(needed, len(self.tuple_chunks), len(self.unlabeled_chunks)))

    def epoch(self, epoch: int, skip: int = 0) -> tuple[int, Iterator[Batch]]:
        """Number of steps of an epoch, and its batches from step `skip` on."""
        groups = self.groups(epoch, self.windows)
        steps = [self._steps(group) for group in groups]
        return sum(steps), self.visit(groups, steps, epoch, skip)

    def groups(self, epoch: int, windows: int) -> list[ChunkGroup]:
        """The chunks of every window of an epoch."""
        rng = stream(self.seed, "windows", epoch, *self._share_key)
        return [
            ChunkGroup([self.tuple_chunks[i] for i in ts], [self.unlabeled_chunks[i] for i in us])
            for ts, us in zip(
                np.array_split(rng.permutation(len(self.tuple_chunks)), windows),
                np.array_split(rng.permutation(len(self.unlabeled_chunks)), windows),
                strict=True,
            )
        ]

    @property
    def _share_key(self) -> tuple[int, ...]:
        return (self.share,) if self.share else ()

    def _steps(self, group: ChunkGroup) -> int:
        steps = int(np.ceil((group.tuples * self.mean_size + group.unlabeled) / self.batch_size))
        return max(1, min(steps, group.tuples, group.unlabeled))

    def visit(self, groups: Sequence[ChunkGroup], steps: Sequence[int], epoch: int, skip: int) -> Iterator[Batch]:
        """The batches of the windows, each window cut into its number of steps."""
        for number, (group, count) in enumerate(zip(groups, steps, strict=True)):
            if skip < count:
                rng = stream(self.seed, "batches", epoch, number, *self._share_key)
                # All shares use the same side of π for a batch; otherwise their union would mix the sides.
                shared = stream(self.seed, "sides", epoch, number)
                sides = None if self.assignment is None else self.assignment.sides(count, shared)
                yield from self._window(group).batches(count, rng, skip, self.assignment, sides)
            skip = max(0, skip - count)

    def _window(self, group: ChunkGroup) -> MemoryWindow:
        if len(group.tuple_chunks) < len(self.tuple_chunks):
            return load_window(group.tuple_chunks, group.unlabeled_chunks)
        if self._all_data is None:
            # In stored order, so that the batches do not depend on how the data are cut into shards.
            self._all_data = load_window(self.tuple_chunks, self.unlabeled_chunks)
        return self._all_data


def load_window(tuples: Sequence[TupleChunk], unlabeled: Sequence[UnlabeledChunk]) -> MemoryWindow:
    """Load chunks into one tensor."""
    pieces, sizes, counts = [], [], []
    for chunk in tuples:
        instances, n, m = chunk.load()
        pieces.append(torch.from_numpy(instances))
        sizes.append(n)
        counts.append(m)
    pieces += [torch.from_numpy(chunk.load()) for chunk in unlabeled]
    x = torch.empty((sum(map(len, pieces)), *pieces[0].shape[1:]), dtype=pieces[0].dtype)
    start = 0
    for index, piece in enumerate(pieces):
        x[start : start + len(piece)] = piece
        start += len(piece)
        pieces[index] = x[:0]  # what is copied is freed, so that the peak is one window, not two
    return MemoryWindow(x, np.concatenate(sizes), join(counts), _load_targets([*tuples, *unlabeled]))


def _load_targets(chunks: Sequence[TupleChunk | UnlabeledChunk]) -> Tensor | None:
    targets = [chunk.targets() for chunk in chunks if chunk.targets is not None]
    return torch.from_numpy(np.concatenate(targets)) if len(targets) == len(chunks) else None
