"""The distinct instances of a tuples directory, and their features from directories that have them already.

Simulated tuples use an instance about twice, and a study uses the same images in every cell. An instance is identified
by the hash of its bytes, so that an encoder computes its features once, whichever tuples it is in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.layout import DIGESTS, ENCODER_WEIGHTS, TEST_INSTANCES
from ntmp_cli.artifacts.manifest import Artifact, TuplesArtifact, open_artifact
from ntmp_cli.artifacts.shards import (
    read_digests,
    read_instances,
    read_offsets,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
)
from ntmp_cli.artifacts.temporary_rows import TemporaryRows
from ntmp_cli.errors import ArtifactError

DIGEST_BYTES = 16

Integers = NDArray[np.int64]
Rows = NDArray[np.generic]


def instance_files(tuples: TuplesArtifact) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """Every file of instances with a function that reads them, in the order in which digests are stored."""
    for split in ("train", "heldout"):
        for name in tuple_shard_names(tuples, split):
            yield name, lambda name=name: read_tuple_shard(tuples, name).instances  # type: ignore[misc]
        for name in unlabeled_shard_names(tuples, split):
            yield name, lambda name=name: read_instances(tuples, name)  # type: ignore[misc]
    if tuples.has(TEST_INSTANCES):
        yield TEST_INSTANCES, lambda: read_instances(tuples, TEST_INSTANCES)


def digests(rows: Rows, scale: float) -> NDArray[np.bytes_]:
    """The hash of every row: of its bytes, with type, shape and scale."""
    reading = json.dumps([rows.dtype.str, rows.shape[1:], scale]).encode()
    salt = hashlib.blake2b(reading, digest_size=DIGEST_BYTES).digest()
    hashes = [hashlib.blake2b(row, digest_size=DIGEST_BYTES, salt=salt).digest() for row in np.ascontiguousarray(rows)]
    return np.array(hashes, dtype=f"S{DIGEST_BYTES}")


class DistinctInstances:
    """Numbers 0 … of the distinct instances of a tuples directory."""

    def __init__(self, tuples: TuplesArtifact) -> None:
        self._tuples = tuples
        scale = tuples.summary.instance.scale
        by_file = {name: digests(read(), scale) for name, read in instance_files(tuples)}
        self.digests = np.concatenate(list(by_file.values()))
        self._distinct, numbers = np.unique(self.digests, return_inverse=True)
        ends = np.cumsum([len(rows) for rows in by_file.values()])
        # Numbers of the distinct instances, by file.
        self.numbers: Mapping[str, Integers] = dict(zip(by_file, np.split(numbers, ends[:-1]), strict=True))

    def __len__(self) -> int:
        return len(self._distinct)

    def pieces(self, known: NDArray[np.bool_]) -> Iterator[tuple[Rows, Integers]]:
        """Every instance without known features, once, with its number, file by file."""
        seen = known.copy()
        for name, read in instance_files(self._tuples):
            numbers, first = np.unique(self.numbers[name], return_index=True)
            rows = np.sort(first[~seen[numbers]])
            seen[numbers] = True
            if len(rows):
                yield read()[rows], self.numbers[name][rows]

    def find(self, hashes: NDArray[np.bytes_]) -> Integers:
        """The number of the instance with each hash; −1 if there is none."""
        at = np.minimum(np.searchsorted(self._distinct, hashes), len(self._distinct) - 1)
        return np.where(self._distinct[at] == hashes, at, -1)


class FeatureRows:
    """Features of distinct instances in a temporary file, found by their number."""

    def __init__(self, rows: TemporaryRows, distinct: DistinctInstances) -> None:
        self._rows, self._distinct = rows, distinct
        self._at = np.full(len(distinct), -1, dtype=np.int64)

    @property
    def known(self) -> NDArray[np.bool_]:
        return self._at >= 0

    def add(self, numbers: Integers, features: NDArray[Any]) -> None:
        """Features of distinct instances that were not known."""
        self._at[numbers] = self._rows.rows + np.arange(len(numbers))
        self._rows.append(features)

    def of(self, name: str) -> NDArray[Any]:
        """Features of all instances of a file of the tuples directory, in its order."""
        return self._rows.gather(self._at[self._distinct.numbers[name]])

    def take_from(self, features: Artifact[Any]) -> int:
        """Copy features of these instances from another directory of the same encoder; returns their number."""
        numbers = self._distinct.find(read_digests(features))
        wanted, start, before = (numbers >= 0) & ~self.known[numbers], 0, int(self.known.sum())
        for name, read in instance_files(features):
            if not wanted[start:].any():
                break
            stop = start + _instances(features, name)
            rows = np.flatnonzero(wanted[start:stop])
            chosen, first = np.unique(numbers[start:stop][rows], return_index=True)
            new = ~self.known[chosen]
            if new.any():
                self.add(chosen[new], read()[rows[first[new]]])
            start = stop
        return int(self.known.sum()) - before


def _instances(artifact: TuplesArtifact, name: str) -> int:
    if "/tuples-" in name:
        return int(read_offsets(artifact, name)[-1])
    return artifact.entry(name).rows or 0


def others_of_encoder(folder: Path, out: Path, config: Mapping[str, Any], weights: str) -> Iterator[Artifact[Any]]:
    """Undamaged features directories beside `out` by the same encoder: same settings, same hash of its weights."""
    for path in sorted(folder.glob("features-*")):
        if path == out:
            continue
        try:
            found = open_artifact(path, "features")
        except ArtifactError:  # another version, or not an artefact: it has no features to reuse
            continue
        # The setting `weights` may differ, for example a file here and fitted weights there; the hash decides.
        settings = {**found.manifest.config, "weights": config["weights"]}
        same = settings == config and found.entry(ENCODER_WEIGHTS).sha256 == weights
        if same and found.has(DIGESTS) and found.damage() is None:
            yield found
