"""Instances that occur in more than one group of tuples."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.tuple_source import TupleSource


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
    halves: tuple[list[NDArray[np.generic]], list[NDArray[np.generic]]] = ([], [])
    before = 0
    for name, rows in shards:
        middle = min(max(total // 2 - before, 0), rows)
        for half, start, stop in ((halves[0], 0, middle), (halves[1], middle, rows)):
            if start < stop:
                half.append(source.read_tuples(name, start, stop)[0])
        before += rows
    return repeated_share(halves)


def _digests(raw: NDArray[np.generic]) -> NDArray[np.uint64]:
    flat = np.ascontiguousarray(raw).reshape(len(raw), -1).view(np.uint8)
    factors = np.random.default_rng(0).integers(2**63, size=flat.shape[1], dtype=np.uint64)
    digests: NDArray[np.uint64] = flat.astype(np.uint64) @ factors
    return digests
