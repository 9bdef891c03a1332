"""A cache for results that depend only on the composition of a batch: with fixed (n, m) few compositions occur."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
SIZE = 64


def cached_by_composition(compute: Callable[..., T]) -> Callable[..., T]:
    """`compute(sizes, counts, …)` with its last results kept; further arguments must be hashable."""

    @lru_cache(SIZE)
    def by_bytes(sizes: bytes, counts: bytes, kind: np.dtype[Any], *further: Any) -> T:
        return compute(np.frombuffer(sizes, np.int64), np.frombuffer(counts, kind), *further)

    def by_arrays(sizes: NDArray[np.int64], counts: NDArray[Any], *further: Any) -> T:
        # Counts are whole numbers, means of a stratum, or records.
        kind = np.dtype(np.int64) if counts.dtype.kind in "iu" else counts.dtype
        return by_bytes(sizes.astype(np.int64).tobytes(), counts.astype(kind).tobytes(), kind, *further)

    return by_arrays
