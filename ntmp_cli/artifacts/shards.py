"""Shards: self-contained HDF5 files of instances, written and read one at a time.

`tuples-*.h5` holds `instances` (N, ...), `offsets` (T+1) and `counts` (T): tuple t owns the instances
offsets[t]:offsets[t+1], and counts[t] of them are recorded as positive. `unlabeled-*.h5` and `test.h5`
hold `instances` alone. A network sees `instances / scale`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import hdf5
from ntmp_cli.artifacts.manifest import Artifact
from ntmp_cli.artifacts.publish import Staging
from ntmp_cli.errors import ArtifactError


@dataclass(frozen=True)
class TupleBlock:
    """Some tuples: instances of all of them in a row, tuple boundaries, recorded counts."""

    instances: NDArray[np.generic]
    offsets: NDArray[np.int64]
    counts: NDArray[np.int64]


def write_tuple_shards(
    staging: Staging, folder: str, blocks: Iterable[TupleBlock], *, shard_size: int, scale: float, first: int = 0
) -> None:
    """Cut a stream of blocks into shards of `shard_size` tuples, numbered from `first`, one in memory at a time."""
    for number, parts in enumerate(_regroup(blocks, shard_size), start=first):
        name = f"{folder}/tuples-{number:05d}.h5"
        sizes = np.concatenate([np.diff(part.offsets) for part in parts])
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        with hdf5.create(staging.file(name), "tuples") as file:
            like = parts[0].instances
            file.reserve("instances", (int(offsets[-1]), *like.shape[1:]), like.dtype, scale=scale)
            start = 0
            for part in parts:
                start = file.fill("instances", start, part.instances)
            file.put("offsets", offsets)
            file.put("counts", np.concatenate([part.counts for part in parts]).astype(np.int64))
        staging.add(name, rows=len(sizes))


def _regroup(blocks: Iterable[TupleBlock], shard_size: int) -> Iterator[list[TupleBlock]]:
    parts: list[TupleBlock] = []
    room = shard_size
    for block in blocks:
        start = 0
        while start < len(block.counts):
            stop = min(start + room, len(block.counts))
            a, b = block.offsets[start], block.offsets[stop]
            parts.append(
                TupleBlock(block.instances[a:b], block.offsets[start : stop + 1] - a, block.counts[start:stop])
            )
            room -= stop - start
            start = stop
            if room == 0:
                yield parts
                parts, room = [], shard_size
    if parts:
        yield parts


def write_instances(
    staging: Staging, name: str, pieces: Iterable[NDArray[np.generic]], rows: int, *, scale: float
) -> None:
    """One file of `rows` plain instances, written piece by piece."""
    with hdf5.create(staging.file(name), "instances") as file:
        start = 0
        for number, piece in enumerate(pieces):
            if number == 0:
                file.reserve("instances", (rows, *piece.shape[1:]), piece.dtype, scale=scale)
            start = file.fill("instances", start, piece)
    staging.add(name, rows=rows)


def tuple_shard_names(artifact: Artifact, split: str) -> list[str]:
    return [entry.path for entry in artifact.entries(f"{split}/tuples-")]


def unlabeled_shard_names(artifact: Artifact, split: str) -> list[str]:
    return [entry.path for entry in artifact.entries(f"{split}/unlabeled-")]


def read_tuple_shard(artifact: Artifact, name: str, start: int = 0, stop: int | None = None) -> TupleBlock:
    """One shard of tuples, checked; or its tuples start:stop, reading no instances of others."""
    where = artifact.path / name
    with hdf5.read(artifact.file(name), "tuples") as file:
        offsets, counts = hdf5.array(file, "offsets"), hdf5.array(file, "counts")
        if start == 0 and stop in (None, len(counts)):
            block = TupleBlock(hdf5.array(file, "instances"), offsets, counts)
        else:
            stored = hdf5.dataset(file, "instances")
            if not _boundaries_fit(TupleBlock(stored, offsets, counts)):
                raise ArtifactError(f"{where}: tuple boundaries do not fit the instances")
            own = offsets[start : None if stop is None else stop + 1]
            block = TupleBlock(np.asarray(stored[own[0] : own[-1]]), own - own[0], counts[start:stop])
    if not _boundaries_fit(block):
        raise ArtifactError(f"{where}: tuple boundaries do not fit the instances")
    sizes = np.diff(block.offsets)
    if (block.counts < 0).any() or (block.counts > sizes).any():
        raise ArtifactError(f"{where}: a recorded count lies outside 0..n")
    _check_finite(block.instances, str(where))
    return block


def read_offsets(artifact: Artifact, name: str) -> NDArray[np.int64]:
    """Tuple boundaries of a shard, without its instances."""
    with hdf5.read(artifact.file(name), "tuples") as file:
        return hdf5.array(file, "offsets").astype(np.int64)


def _boundaries_fit(block: TupleBlock) -> bool:
    instances, offsets, counts = block.instances, block.offsets, block.counts
    if instances.ndim < 1 or any(a.ndim != 1 or a.dtype.kind not in "iu" for a in (offsets, counts)):
        return False
    return bool(
        len(offsets) == len(counts) + 1
        and offsets[0] == 0
        and offsets[-1] == len(instances)
        and (offsets[1:] > offsets[:-1]).all()
    )


def read_instances(artifact: Artifact, name: str) -> NDArray[np.generic]:
    """One file of plain instances, checked."""
    with hdf5.read(artifact.file(name), "instances") as file:
        instances = hdf5.array(file, "instances")
    _check_finite(instances, str(artifact.path / name))
    return instances


def read_instance_range(artifact: Artifact, name: str, start: int, stop: int) -> NDArray[np.generic]:
    """Rows start:stop of a file of plain instances, checked."""
    with hdf5.read(artifact.file(name), "instances") as file:
        instances: NDArray[np.generic] = np.asarray(hdf5.dataset(file, "instances")[start:stop])
    _check_finite(instances, str(artifact.path / name))
    return instances


def _check_finite(instances: NDArray[np.generic], where: str) -> None:
    if instances.dtype.kind == "f" and not np.isfinite(instances).all():
        raise ArtifactError(
            f"{where}: instances hold NaN or infinite values", hint="Make the tuples again from finite data."
        )
