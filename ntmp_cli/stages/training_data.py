"""From a tuples directory to what the training loop takes: chunks, held-out tensors, normalisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.layout import TEST_INSTANCES
from ntmp_cli.artifacts.shards import (
    read_instance_range,
    read_instances,
    read_offsets,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
)
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.learning.batches import TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.dealing import Dealing
from ntmp_cli.learning.loop import HeldoutData
from ntmp_cli.learning.method import Task
from ntmp_cli.learning.models import normalisation, standardises
from ntmp_cli.ranks import processes_here

STEPS_ON_SMALL_DATA = 16
SMALLEST_BATCH = 32
ASKED_TUPLES = 4000


def read_task(tuples: Artifact) -> Task:
    """Strata and sizes from the manifest, before any shard is opened."""
    strata = [(row["n"], row["m"], row["tuples"]) for row in tuples.summary["strata"]["train"]]
    return Task(strata, tuples.summary["unlabeled"]["train"])


# One number per instance of tuples, and of U, in stored order.
InstanceTargets = tuple[NDArray[np.float32], NDArray[np.float32]]


def training_data(
    tuples: Artifact,
    config: TrainConfig,
    parts: int = 1,
    targets: InstanceTargets | None = None,
    batch: int = 1024,
    dealing: Dealing | None = None,
) -> list[TrainingData]:
    """Lazily loaded training chunks of a tuples directory, in so many parts of even size."""
    info = tuples.summary
    shape, dtype = info["instance"]["shape"], np.dtype(info["instance"]["dtype"])
    item = int(np.prod(shape)) * dtype.itemsize
    instances = info["instances"]["train"] + info["unlabeled"]["train"]
    tuple_files, unlabeled_files = list(_rows(tuples, "train/tuples-")), list(_rows(tuples, "train/unlabeled-"))
    for what, files in (("tuples", tuple_files), ("unlabeled instances", unlabeled_files)):
        if sum(rows for _, rows in files) < parts:
            raise UsageError(f"{tuples.path}: fewer {what} than the {parts} parts to read them in")
    inside, outside = targets or (None, None)
    # Slices of the unlabeled shards are fine enough that every window can have its share.
    step = max(1, min(4 * 2**20 // item, -(-sum(rows for _, rows in unlabeled_files) // 64)))
    return [
        TrainingData(
            list(_tuple_chunks(tuples, tuple_files, part, parts, inside)),
            list(_unlabeled_chunks(tuples, unlabeled_files, part, parts, step, outside)),
            mean_size=info["instances"]["train"] / info["tuples"]["train"],
            instance_bytes=item,
            # The parts that are read on this machine, by one process or several, share its memory.
            budget_bytes=config.memory_mb * 2**20 // processes_here(parts),
            batch_size=config.batch_size or _default_batch(instances, batch),
            seed=config.seed,
            part=part,
            dealing=dealing,
        )
        for part in range(parts)
    ]


def _tuple_chunks(
    tuples: Artifact, files: Sequence[tuple[str, int]], part: int, parts: int, targets: NDArray[np.float32] | None
) -> Iterator[TupleChunk]:
    bounds = {} if targets is None else _instance_bounds(tuples, [name for name, _ in files])
    for name, start, stop in _slices(files, part, parts):
        own = None if targets is None else partial(_slice, targets, bounds[name][start], bounds[name][stop])
        yield TupleChunk(stop - start, partial(_load_tuples, tuples, name, start, stop), own)


def _unlabeled_chunks(
    tuples: Artifact,
    files: Sequence[tuple[str, int]],
    part: int,
    parts: int,
    step: int,
    targets: NDArray[np.float32] | None,
) -> Iterator[UnlabeledChunk]:
    before = dict(zip((name for name, _ in files), np.cumsum([0, *(rows for _, rows in files)]).tolist(), strict=False))
    for name, start, stop in _slices(files, part, parts, step):
        at = before[name]
        own = None if targets is None else partial(_slice, targets, at + start, at + stop)
        yield UnlabeledChunk(stop - start, partial(read_instance_range, tuples, name, start, stop), own)


def _instance_bounds(tuples: Artifact, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Where every tuple of every shard begins and ends among all tuple instances."""
    bounds, before = {}, 0
    for name in names:
        offsets = read_offsets(tuples, name)
        bounds[name] = before + offsets
        before += int(offsets[-1])
    return bounds


def _slice(values: NDArray[np.float32], start: int, stop: int) -> NDArray[np.float32]:
    return values[start:stop]


def _slices(
    files: Sequence[tuple[str, int]], part: int, parts: int, step: int | None = None
) -> Iterator[tuple[str, int, int]]:
    """(file, start, stop) of the rows of one part: a contiguous share of all files, in pieces of at most `step`."""
    total = sum(rows for _, rows in files)
    first, last = total * part // parts, total * (part + 1) // parts
    before = 0
    for name, rows in files:
        begin, end = max(first - before, 0), min(last - before, rows)
        for start in range(begin, end, step or max(1, end - begin)):
            yield name, start, min(end, start + (step or end))
        before += rows


def _default_batch(instances: int, usual: int) -> int:
    return min(usual, max(SMALLEST_BATCH, -(-instances // STEPS_ON_SMALL_DATA)))


def _rows(tuples: Artifact, prefix: str) -> Iterator[tuple[str, int]]:
    for entry in tuples.entries(prefix):
        if not entry.rows:
            raise ArtifactError(f"{tuples.path / entry.path}: the manifest does not say how many rows it has")
        yield entry.path, entry.rows


def _load_tuples(
    tuples: Artifact, name: str, start: int, stop: int
) -> tuple[NDArray[np.generic], NDArray[np.int64], NDArray[np.int64]]:
    block = read_tuple_shard(tuples, name, start, stop)
    return block.instances, np.diff(block.offsets), block.counts


def heldout_data(tuples: Artifact) -> HeldoutData | None:
    """Held-out tuples and unlabeled instances, or None where none were set aside."""
    names = tuple_shard_names(tuples, "heldout"), unlabeled_shard_names(tuples, "heldout")
    if not all(names):
        return None
    blocks = [read_tuple_shard(tuples, name) for name in names[0]]
    return HeldoutData(
        torch.from_numpy(np.concatenate([b.instances for b in blocks])),
        np.concatenate([np.diff(b.offsets) for b in blocks]),
        np.concatenate([b.counts for b in blocks]),
        torch.from_numpy(np.concatenate([read_instances(tuples, name) for name in names[1]])),
    )


def some_training_data(data: TrainingData) -> HeldoutData:
    """A few training tuples and unlabeled instances, for a question that has one of two answers."""
    tuples, (unlabeled, *_) = data.tuple_chunks[0], data.unlabeled_chunks
    x, sizes, counts = tuples.load()
    few = min(len(sizes), ASKED_TUPLES)
    inside = int(sizes[:few].sum())
    return HeldoutData(torch.from_numpy(x[:inside]), sizes[:few], counts[:few], torch.from_numpy(unlabeled.load()))


def read_test_instances(tuples: Artifact) -> Tensor:
    """The test instances; none where the user has none."""
    if not tuples.has(TEST_INSTANCES):
        info = tuples.summary["instance"]
        return torch.from_numpy(np.empty((0, *info["shape"]), info["dtype"]))
    return torch.from_numpy(read_instances(tuples, TEST_INSTANCES))


def raw_instances(data: Sequence[TrainingData]) -> Iterator[NDArray[np.generic]]:
    """All training instances, one chunk at a time."""
    for part in data:
        yield from (chunk.load()[0] for chunk in part.tuple_chunks)
        yield from (chunk.load() for chunk in part.unlabeled_chunks)


def input_normalisation(
    tuples: Artifact, data: Sequence[TrainingData], kind: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(factor, shift) of the network's input, from all training instances, one chunk at a time."""
    info = tuples.summary["instance"]
    shape, scale = info["shape"], info["scale"]
    channels = shape[0]
    # What an import has standardised is ready: once more would blow rare categories up.
    ready = kind == "auto" and info.get("standardised", False)
    if ready or not standardises(kind, shape):
        return normalisation(shape, np.zeros(channels), np.full(channels, scale))
    count, total, square = 0, np.zeros(channels), np.zeros(channels)
    for piece in raw_instances(data):
        x = piece.astype(np.float64)
        axes = (0, *range(2, x.ndim))
        count += x.size // channels
        total += x.sum(axis=axes)
        square += (x**2).sum(axis=axes)
    mean = total / count
    return normalisation(shape, mean, np.sqrt(np.maximum(square / count - mean**2, 0)))
