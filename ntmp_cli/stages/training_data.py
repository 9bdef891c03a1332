"""From a tuples directory to what the training loop takes: chunks, held-out tensors, normalisation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.layout import TEST_INSTANCES
from ntmp_cli.artifacts.shards import (
    read_instance_range,
    read_instances,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
)
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.batches import TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.loop import HeldoutData
from ntmp_cli.learning.method import Task
from ntmp_cli.learning.models import normalisation, standardises

DEFAULT_BATCH = 1024
STEPS_ON_SMALL_DATA = 16
SMALLEST_BATCH = 32


def read_task(tuples: Artifact) -> Task:
    """Strata and sizes from the manifest, before any shard is opened."""
    strata = [(row["n"], row["m"], row["tuples"]) for row in tuples.summary["strata"]["train"]]
    return Task(strata, tuples.summary["unlabeled"]["train"])


def training_data(tuples: Artifact, config: TrainConfig) -> TrainingData:
    """Lazily loaded training chunks of a tuples directory."""
    info = tuples.summary
    shape, dtype = info["instance"]["shape"], np.dtype(info["instance"]["dtype"])
    item = int(np.prod(shape)) * dtype.itemsize
    instances = info["instances"]["train"] + info["unlabeled"]["train"]
    return TrainingData(
        [TupleChunk(rows, partial(_load_tuples, tuples, name)) for name, rows in _rows(tuples, "train/tuples-")],
        list(_unlabeled_chunks(tuples, item)),
        mean_size=info["instances"]["train"] / info["tuples"]["train"],
        instance_bytes=item,
        budget_bytes=config.memory_mb * 2**20,
        batch_size=config.batch_size or _default_batch(instances),
        seed=config.seed,
    )


def _default_batch(instances: int) -> int:
    return min(DEFAULT_BATCH, max(SMALLEST_BATCH, -(-instances // STEPS_ON_SMALL_DATA)))


def _rows(tuples: Artifact, prefix: str) -> Iterator[tuple[str, int]]:
    for entry in tuples.entries(prefix):
        if not entry.rows:
            raise ArtifactError(f"{tuples.path / entry.path}: the manifest does not say how many rows it has")
        yield entry.path, entry.rows


def _load_tuples(tuples: Artifact, name: str) -> tuple[NDArray[np.generic], NDArray[np.int64], NDArray[np.int64]]:
    block = read_tuple_shard(tuples, name)
    return block.instances, np.diff(block.offsets), block.counts


def _unlabeled_chunks(tuples: Artifact, item: int) -> Iterator[UnlabeledChunk]:
    """Slices of the unlabeled shards, fine enough that every window can have its share."""
    files = list(_rows(tuples, "train/unlabeled-"))
    total = sum(rows for _, rows in files)
    step = max(1, min(4 * 2**20 // item, -(-total // 64)))
    for name, rows in files:
        for start in range(0, rows, step):
            stop = min(start + step, rows)
            yield UnlabeledChunk(stop - start, partial(read_instance_range, tuples, name, start, stop))


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


def read_test_instances(tuples: Artifact) -> Tensor:
    return torch.from_numpy(read_instances(tuples, TEST_INSTANCES))


def input_normalisation(
    tuples: Artifact, data: TrainingData, kind: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(factor, shift) of the network's input, from all training instances, one chunk at a time."""
    info = tuples.summary["instance"]
    shape, scale = info["shape"], info["scale"]
    channels = shape[0]
    if not standardises(kind, shape):
        return normalisation(shape, np.zeros(channels), np.full(channels, scale))
    count, total, square = 0, np.zeros(channels), np.zeros(channels)
    pieces = chain((chunk.load()[0] for chunk in data.tuple_chunks), (chunk.load() for chunk in data.unlabeled_chunks))
    for piece in pieces:
        x = piece.astype(np.float64)
        axes = (0, *range(2, x.ndim))
        count += x.size // channels
        total += x.sum(axis=axes)
        square += (x**2).sum(axis=axes)
    mean = total / count
    return normalisation(shape, mean, np.sqrt(np.maximum(square / count - mean**2, 0)))
