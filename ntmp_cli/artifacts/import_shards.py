"""The shards of an import: which rows go into each, and how rows are encoded and written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.layout import TEST_INSTANCES
from ntmp_cli.artifacts.shards import SHARD_BYTES, write_plain, write_tuples
from ntmp_cli.artifacts.temporary_rows import GatheredRows
from ntmp_cli.counting.recorded import Counts
from ntmp_cli.data.user.grouping import Grouped
from ntmp_cli.data.user.mapping import FeatureMapping, ImageFeatures, TableFeatures, blocks_of
from ntmp_cli.progress import Advance

PIECE_BYTES = 4 * 2**20

RowNumbers = NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """Row numbers of one file; for tuples also their boundaries and counts."""

    name: str
    rows: RowNumbers
    offsets: RowNumbers | None = None
    counts: Counts | None = None

    def arrays(self) -> list[NDArray[Any]]:
        """The arrays that are not None."""
        return [array for array in (self.rows, self.offsets, self.counts) if array is not None]

    def __len__(self) -> int:
        """Number of tuples, or of rows if there are no tuples."""
        return len(self.rows) if self.counts is None else len(self.counts)


def instance_format(mapping: FeatureMapping) -> tuple[list[int], np.dtype[Any], float]:
    """Shape, type and scale of an instance."""
    if isinstance(mapping.features, ImageFeatures):
        return list(mapping.features.shape), np.dtype(mapping.features.dtype), mapping.features.scale
    return [mapping.features.width], np.dtype(np.float32), 1.0


def tuple_shards(split: str, tuples: Grouped, mapping: FeatureMapping) -> Iterator[Shard]:
    """Shards of tuples in order, of about the usual size; no tuple is split."""
    size = max(1, round(SHARD_BYTES * len(tuples) / (_instance_bytes(mapping) * len(tuples.rows))))
    for number, start in enumerate(range(0, len(tuples), size)):
        bounds = tuples.offsets[start : start + size + 1]
        rows, counts = tuples.rows[bounds[0] : bounds[-1]], tuples.counts[start : start + size]
        yield Shard(f"{split}/tuples-{number:05d}.h5", rows, bounds - bounds[0], counts)


def pool_shards(split: str, rows: RowNumbers, mapping: FeatureMapping) -> Iterator[Shard]:
    for number, shard in enumerate(blocks_of(rows, max(1, SHARD_BYTES // _instance_bytes(mapping)))):
        yield Shard(f"{split}/unlabeled-{number:05d}.h5", shard)


def test_shards(rows: RowNumbers) -> Iterator[Shard]:
    """One file for all test rows; none if there are none."""
    if len(rows):
        yield Shard(TEST_INSTANCES, rows)


def write_shard(
    path: Path, shard: Shard, mapping: FeatureMapping, rows: GatheredRows, advance: Advance = lambda number: None
) -> None:
    """Gather the rows of a shard, encode them and write them; `advance` counts tuples, or rows."""
    scale = instance_format(mapping)[2]
    pieces = _pieces(shard, mapping, rows)
    if shard.offsets is None or shard.counts is None:
        write_plain(path, _counted(pieces, advance), len(shard.rows), scale=scale)
        return
    write_tuples(path, pieces, shard.offsets, shard.counts, scale=scale)
    advance(len(shard))


def _pieces(shard: Shard, mapping: FeatureMapping, rows: GatheredRows) -> Iterator[NDArray[np.generic]]:
    for block in blocks_of(shard.rows, max(1, PIECE_BYTES // _instance_bytes(mapping))):
        yield _instances(mapping, rows.gather(block))


def _counted(pieces: Iterator[NDArray[np.generic]], advance: Advance) -> Iterator[NDArray[np.generic]]:
    for piece in pieces:
        yield piece
        advance(len(piece))


def _instances(mapping: FeatureMapping, cells: NDArray[Any]) -> NDArray[np.generic]:
    features = mapping.features
    return features.apply(cells) if isinstance(features, TableFeatures) else cells[:, : features.shape[0]]


def _instance_bytes(mapping: FeatureMapping) -> int:
    shape, dtype, _ = instance_format(mapping)
    return int(np.prod(shape)) * dtype.itemsize
