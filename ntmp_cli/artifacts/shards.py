"""Shards: self-contained HDF5 files of instances, written and read one at a time.

`tuples-*.h5` holds `instances` (N, ...), `offsets` (T+1) and `counts` (T): tuple t owns the instances
offsets[t]:offsets[t+1], and counts[t] of them are recorded as positive; where counts are not exact, counts[t] is a
record of low, high and law (`counting.recorded`). `unlabeled-*.h5` and `test.h5` hold `instances` alone. A network sees
`instances / scale`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import hdf5
from ntmp_cli.artifacts.layout import DIGESTS
from ntmp_cli.artifacts.manifest import TuplesArtifact, remake
from ntmp_cli.artifacts.publish import Staging
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recorded import Counts, are_records, join
from ntmp_cli.errors import ArtifactError, DataError, UsageError

# Approximate number of bytes of instances in a shard.
SHARD_BYTES = 16 * 2**20


@dataclass(frozen=True)
class TupleBlock:
    """Tuples: their concatenated instances, tuple boundaries, recorded counts."""

    instances: NDArray[np.generic]
    offsets: NDArray[np.int64]
    counts: Counts


def write_tuple_shards(
    staging: Staging, folder: str, blocks: Iterable[TupleBlock], *, shard_size: int, scale: float, first: int = 0
) -> None:
    """Split a stream of blocks into shards of `shard_size` tuples, numbered from `first`, one in memory at a time."""
    for number, segments in enumerate(_regroup(blocks, shard_size), start=first):
        name = f"{folder}/tuples-{number:05d}.h5"
        sizes = np.concatenate([np.diff(segment.offsets) for segment in segments])
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        counts = join([segment.counts for segment in segments])
        write_tuples(staging.file(name), (segment.instances for segment in segments), offsets, counts, scale=scale)
        staging.add(name, rows=len(sizes))


def write_tuples(
    path: Path, pieces: Iterable[NDArray[np.generic]], offsets: NDArray[np.int64], counts: Counts, *, scale: float
) -> None:
    """One shard: the instances of its tuples piece by piece, tuple boundaries and recorded counts."""
    with hdf5.create(path, "tuples") as file:
        _fill(file, pieces, int(offsets[-1]), scale)
        file.put("offsets", offsets)
        file.put("counts", counts if are_records(counts) else counts.astype(np.int64))


def _fill(file: hdf5.Writer, pieces: Iterable[NDArray[np.generic]], rows: int, scale: float) -> None:
    start = 0
    for number, piece in enumerate(pieces):
        if number == 0:
            file.reserve("instances", (rows, *piece.shape[1:]), piece.dtype, scale=scale)
        start = file.fill("instances", start, piece)


def _regroup(blocks: Iterable[TupleBlock], shard_size: int) -> Iterator[list[TupleBlock]]:
    """The segments of blocks that form each shard."""
    segments: list[TupleBlock] = []
    remaining = shard_size
    for block in blocks:
        start = 0
        while start < len(block.counts):
            stop = min(start + remaining, len(block.counts))
            a, b = block.offsets[start], block.offsets[stop]
            segments.append(
                TupleBlock(block.instances[a:b], block.offsets[start : stop + 1] - a, block.counts[start:stop])
            )
            remaining -= stop - start
            start = stop
            if remaining == 0:
                yield segments
                segments, remaining = [], shard_size
    if segments:
        yield segments


def write_instances(
    staging: Staging, name: str, pieces: Iterable[NDArray[np.generic]], rows: int, *, scale: float
) -> None:
    """One file of `rows` plain instances, written piece by piece."""
    write_plain(staging.file(name), pieces, rows, scale=scale)
    staging.add(name, rows=rows)


def write_plain(path: Path, pieces: Iterable[NDArray[np.generic]], rows: int, *, scale: float) -> None:
    """As `write_instances`, to any path."""
    with hdf5.create(path, "instances") as file:
        _fill(file, pieces, rows, scale)


def tuple_shard_names(artifact: TuplesArtifact, split: str) -> list[str]:
    return [entry.path for entry in artifact.entries(f"{split}/tuples-")]


def unlabeled_shard_names(artifact: TuplesArtifact, split: str) -> list[str]:
    return [entry.path for entry in artifact.entries(f"{split}/unlabeled-")]


def read_tuple_shard(artifact: TuplesArtifact, name: str, start: int = 0, stop: int | None = None) -> TupleBlock:
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
            bounds = offsets[start : None if stop is None else stop + 1]
            block = TupleBlock(np.asarray(stored[bounds[0] : bounds[-1]]), bounds - bounds[0], counts[start:stop])
    if not _boundaries_fit(block):
        raise ArtifactError(f"{where}: tuple boundaries do not fit the instances")
    artifact.require_rows(name, len(counts))
    _check_counts(where, np.diff(block.offsets), block.counts)
    _check_instances(artifact, name, block.instances)
    return block


def _check_counts(where: Path, sizes: NDArray[np.int64], counts: Counts) -> None:
    """Check that counts are 0 … n, and that records are possible under their laws."""
    if are_records(counts):
        try:
            CountObservations(sizes, counts)
        except (DataError, UsageError, UnicodeDecodeError) as error:
            raise ArtifactError(f"{where}: {error}", hint="Make the tuples again.") from None
    elif (counts < 0).any() or (counts > sizes).any():
        raise ArtifactError(f"{where}: a recorded count lies outside 0..n")


def read_offsets(artifact: TuplesArtifact, name: str) -> NDArray[np.int64]:
    """Tuple boundaries of a shard, without its instances."""
    with hdf5.read(artifact.file(name), "tuples") as file:
        return hdf5.array(file, "offsets").astype(np.int64)


def read_sizes_and_counts(artifact: TuplesArtifact, name: str) -> tuple[NDArray[np.int64], Counts]:
    """Sizes and recorded counts of a shard, without its instances."""
    with hdf5.read(artifact.file(name), "tuples") as file:
        sizes, counts = np.diff(hdf5.array(file, "offsets")), hdf5.array(file, "counts")
    _check_counts(artifact.path / name, sizes, counts)
    return sizes, counts


def _boundaries_fit(block: TupleBlock) -> bool:
    instances, offsets, counts = block.instances, block.offsets, block.counts
    if instances.ndim < 1 or offsets.ndim != 1 or offsets.dtype.kind not in "iu" or counts.ndim != 1:
        return False
    if counts.dtype.kind not in "iu" and not are_records(counts):
        return False
    return bool(
        len(offsets) == len(counts) + 1
        and offsets[0] == 0
        and offsets[-1] == len(instances)
        and (offsets[1:] > offsets[:-1]).all()
    )


def read_instances(artifact: TuplesArtifact, name: str) -> NDArray[np.generic]:
    """One file of plain instances, checked."""
    with hdf5.read(artifact.file(name), "instances") as file:
        instances = hdf5.array(file, "instances")
    artifact.require_rows(name, len(instances))
    _check_instances(artifact, name, instances)
    return instances


def read_instance_range(artifact: TuplesArtifact, name: str, start: int, stop: int) -> NDArray[np.generic]:
    """Rows start:stop of a file of plain instances, checked."""
    with hdf5.read(artifact.file(name), "instances") as file:
        stored = hdf5.dataset(file, "instances")
        artifact.require_rows(name, len(stored))
        instances: NDArray[np.generic] = np.asarray(stored[start:stop])
    _check_instances(artifact, name, instances)
    return instances


def write_digests(staging: Staging, digests: NDArray[np.bytes_]) -> None:
    """Hashes of the instances behind features, as pairs of numbers."""
    with hdf5.create(staging.file(DIGESTS), "digests") as file:
        file.put("digests", digests.view(np.uint64).reshape(len(digests), -1))
    staging.add(DIGESTS, rows=len(digests))


def read_digests(artifact: TuplesArtifact) -> NDArray[np.bytes_]:
    """Hashes of the instances behind features, in the order of the files: training, held-out, test."""
    with hdf5.read(artifact.file(DIGESTS), "digests") as file:
        stored = hdf5.array(file, "digests")
    artifact.require_rows(DIGESTS, len(stored))
    if stored.dtype != np.uint64 or stored.ndim != 2 or stored.shape[1] != 2:
        raise artifact.damaged(DIGESTS, "not pairs of whole numbers")
    return np.ascontiguousarray(stored).view("S16").reshape(-1)


def _check_instances(artifact: TuplesArtifact, name: str, instances: NDArray[np.generic]) -> None:
    """Check that instances are finite, and have the shape and type that the manifest says."""
    where, expected = artifact.path / name, artifact.summary.instance
    if instances.dtype.kind == "f" and not np.isfinite(instances).all():
        raise ArtifactError(
            f"{where}: instances hold NaN or infinite values", hint="Make the tuples again from finite data."
        )
    if instances.shape[1:] != expected.shape or instances.dtype.name != expected.dtype:
        raise ArtifactError(
            f"{where}: instances of shape {instances.shape[1:]} {instances.dtype}, but the manifest says "
            f"{expected.shape} {expected.dtype}",
            hint=remake(artifact.kind),
        )
