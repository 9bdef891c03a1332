"""Input of the training loop from a source of tuples: chunks, orientation data, input normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.recorded import join
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.batch_assignment import BatchAssignment
from ntmp_cli.learning.batches import TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.folds import fold_tuples
from ntmp_cli.learning.lengths import default_batch
from ntmp_cli.learning.models import normalisation, standardises
from ntmp_cli.ranks import processes_here
from ntmp_cli.tuple_source import Counts, HeldoutData, Integers, TupleSource

ORIENTATION_TUPLES = 4000
# With this many instances a share is known to half a percent.
SHARE_INSTANCES = 10_000
# One number per instance of tuples, and of U, in stored order.
InstanceTargets = tuple[NDArray[np.float32], NDArray[np.float32]]


class Batching(NamedTuple):
    """How a method wants its batches: their usual and smallest size, targets per instance, assignment of tuples."""

    size: int = 1024
    smallest: int = 32
    targets: InstanceTargets | None = None
    assignment: BatchAssignment | None = None


DEFAULT_BATCHING = Batching()


def training_shares(
    source: TupleSource, config: TrainConfig, shares: int = 1, batching: Batching = DEFAULT_BATCHING
) -> list[TrainingData]:
    """Lazily loaded training chunks in shares of equal size, one per rank."""
    instance, task = source.instance, source.task
    tuple_shards, unlabeled_shards = source.tuple_shards(), source.unlabeled_shards()
    tuples, unlabeled = (sum(rows for _, rows in shards) for shards in (tuple_shards, unlabeled_shards))
    for what, rows in (("tuples", tuples), ("unlabeled instances", unlabeled)):
        if not rows:
            raise UsageError(f"{source.name}: there are no {what}, and a network needs some")
        if rows < shares:
            raise UsageError(f"{source.name}: fewer {what} than the {shares} ranks or folds to divide them among")
    inside, outside = batching.targets or (None, None)
    # Slices of the unlabeled shards are fine enough that every window can have its share.
    step = max(1, min(4 * 2**20 // instance.nbytes, -(-unlabeled // 64)))
    return [
        TrainingData(
            list(_tuple_chunks(source, _slices(tuple_shards, share, shares), inside)),
            list(_unlabeled_chunks(source, _slices(unlabeled_shards, share, shares, step), outside)),
            mean_size=task.instances / tuples,
            instance_bytes=instance.nbytes,
            # The shares that are read on this machine, by one process or several, divide its memory.
            budget_bytes=config.memory_mb * 2**20 // processes_here(shares),
            batch_size=config.batch_size or default_batch(task, batching.size, batching.smallest, config.epochs),
            seed=config.seed,
            share=share,
            assignment=batching.assignment,
        )
        for share in range(shares)
    ]


def training_folds(
    source: TupleSource, config: TrainConfig, folds: int, batching: Batching = DEFAULT_BATCHING
) -> list[TrainingData]:
    """The same in folds, which never divide a block of tuples."""
    shares = training_shares(source, config, folds, batching)
    if source.blocks() is None:
        return shares
    assert batching.targets is None, "targets are added to folds once they are made"
    return [
        replace(share, tuple_chunks=list(_chunks_of(source, positions)))
        for share, positions in zip(shares, fold_tuples(source, folds), strict=True)
    ]


def _chunks_of(source: TupleSource, positions: Integers) -> Iterator[TupleChunk]:
    """The tuples at these stored positions, one chunk per shard."""
    before = 0
    for shard, rows in source.tuple_shards():
        within = positions[(positions >= before) & (positions < before + rows)] - before
        if len(within):
            yield TupleChunk(len(within), partial(_read_at, source, shard, within))
        before += rows


def _read_at(source: TupleSource, shard: str, rows: Integers) -> tuple[NDArray[np.generic], Integers, Counts]:
    start, stop = int(rows[0]), int(rows[-1]) + 1
    x, sizes, counts = source.read_tuples(shard, start, stop)
    is_chosen = np.isin(np.arange(start, stop), rows)
    return x[np.repeat(is_chosen, sizes)], sizes[is_chosen], counts[is_chosen]


def _tuple_chunks(
    source: TupleSource, slices: Iterator[tuple[str, int, int]], targets: NDArray[np.float32] | None
) -> Iterator[TupleChunk]:
    bounds = {} if targets is None else _instance_bounds(source)
    for shard, start, stop in slices:
        chunk_targets = None if targets is None else partial(_slice, targets, bounds[shard][start], bounds[shard][stop])
        yield TupleChunk(stop - start, partial(source.read_tuples, shard, start, stop), chunk_targets)


def _unlabeled_chunks(
    source: TupleSource, slices: Iterator[tuple[str, int, int]], targets: NDArray[np.float32] | None
) -> Iterator[UnlabeledChunk]:
    shards = source.unlabeled_shards()
    first_row = dict(zip((name for name, _ in shards), np.cumsum([0, *(rows for _, rows in shards)]), strict=False))
    for shard, start, stop in slices:
        at = int(first_row[shard])
        chunk_targets = None if targets is None else partial(_slice, targets, at + start, at + stop)
        yield UnlabeledChunk(stop - start, partial(source.read_unlabeled, shard, start, stop), chunk_targets)


def _instance_bounds(source: TupleSource) -> dict[str, Integers]:
    """Where every tuple of every shard begins and ends among all tuple instances."""
    bounds, before = {}, 0
    for shard, _ in source.tuple_shards():
        offsets = source.tuple_offsets(shard)
        bounds[shard] = before + offsets
        before += int(offsets[-1])
    return bounds


def _slice(values: NDArray[np.float32], start: int, stop: int) -> NDArray[np.float32]:
    return values[start:stop]


def _slices(
    shards: Sequence[tuple[str, int]], share: int, shares: int, step: int | None = None
) -> Iterator[tuple[str, int, int]]:
    """(shard, start, stop) of one share: contiguous rows over all shards, in slices of at most `step`."""
    total = sum(rows for _, rows in shards)
    first, last = total * share // shares, total * (share + 1) // shares
    before = 0
    for name, rows in shards:
        begin, end = max(first - before, 0), min(last - before, rows)
        for start in range(begin, end, step or max(1, end - begin)):
            yield name, start, min(end, start + (step or end))
        before += rows


def orientation_sample(data: TrainingData) -> HeldoutData:
    """A few training tuples and unlabeled instances: enough to decide between two signs."""
    x, sizes, counts = data.tuple_chunks[0].load()
    few = min(len(sizes), ORIENTATION_TUPLES)
    return HeldoutData(x[: int(sizes[:few].sum())], sizes[:few], counts[:few], data.unlabeled_chunks[0].load())


def training_sample(data: TrainingData) -> HeldoutData:
    """Training tuples and unlabeled instances, all of them or as many chunks as a share of positives needs."""
    tuples, unlabeled = [], []
    for tuple_chunk in data.tuple_chunks:
        tuples.append(tuple_chunk.load())
        if sum(len(x) for x, _, _ in tuples) >= SHARE_INSTANCES:
            break
    for chunk in data.unlabeled_chunks:
        unlabeled.append(chunk.load())
        if sum(map(len, unlabeled)) >= SHARE_INSTANCES:
            break
    x, sizes, counts = zip(*tuples, strict=True)
    return HeldoutData(np.concatenate(x), np.concatenate(sizes), join(counts), np.concatenate(unlabeled))


def input_normalisation(
    source: TupleSource, data: Sequence[TrainingData], kind: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(factor, shift) of the network's input, from all training instances, one chunk at a time."""
    shape, _, scale, standardised = source.instance
    channels = shape[0]
    # Imported tables are standardised already; doing it again would inflate rare categories.
    if (kind == "auto" and standardised) or not standardises(kind, shape):
        return normalisation(shape, np.zeros(channels), np.full(channels, scale))
    count, total, square = 0, np.zeros(channels), np.zeros(channels)
    for chunk in raw_chunks(data):
        x = chunk.astype(np.float64)
        axes = (0, *range(2, x.ndim))
        count += x.size // channels
        total += x.sum(axis=axes)
        square += (x**2).sum(axis=axes)
    mean = total / count
    return normalisation(shape, mean, np.sqrt(np.maximum(square / count - mean**2, 0)))


def raw_chunks(data: Sequence[TrainingData]) -> Iterator[NDArray[np.generic]]:
    """All training instances, one chunk at a time."""
    for share in data:
        yield from (chunk.load()[0] for chunk in share.tuple_chunks)
        yield from (chunk.load() for chunk in share.unlabeled_chunks)
