"""Instances that occur in more than one group of tuples."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.tuple_source import TupleSource

# A byte takes eight where it is summed.
BLOCK_BYTES = 8 * 2**20


def repeated_share(groups: Iterable[Iterable[NDArray[np.generic]]]) -> float:
    """Share of the distinct instances that occur in more than one group, by 64-bit sums of their bytes."""
    digests = [np.unique(np.concatenate([_digests(raw) for raw in group])) for group in groups]
    _, uses = np.unique(np.concatenate(digests), return_counts=True)
    return float((uses > 1).mean())


def repeated_between_halves(source: TupleSource) -> float:
    """The same for the first and the second half of the training tuples."""
    shards = source.tuple_shards()
    total = sum(rows for _, rows in shards)
    if total < 2:
        return 0.0
    halves: tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]] = ([], [])
    before = 0
    for name, rows in shards:
        middle = min(max(total // 2 - before, 0), rows)
        for half, start, stop in ((halves[0], 0, middle), (halves[1], middle, rows)):
            if start < stop:
                half.append((name, start, stop))
        before += rows
    # One shard at a time is in memory: of the others only sums are kept.
    return repeated_share((source.read_tuples(*where)[0] for where in half) for half in halves)


def _digests(raw: NDArray[np.generic]) -> NDArray[np.uint64]:
    flat = np.ascontiguousarray(raw).reshape(len(raw), -1).view(np.uint8)
    factors = np.random.default_rng(0).integers(2**63, size=flat.shape[1], dtype=np.uint64)
    step = max(1, BLOCK_BYTES // (8 * flat.shape[1]))
    blocks = [flat[at : at + step].astype(np.uint64) @ factors for at in range(0, len(flat), step)]
    return np.concatenate(blocks) if blocks else np.empty(0, np.uint64)
