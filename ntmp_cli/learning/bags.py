"""Bags: tuples, and instances of U in bags of the same lengths. No torch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def bags_of_pool(sizes: Integers, unlabeled: int) -> Integers:
    """Lengths of bags that U is cut into: those of the tuples in turn; what is left over is in no bag."""
    if not len(sizes):
        return np.empty(0, dtype=np.int64)
    lengths = np.resize(sizes, max(1, -(-unlabeled // int(sizes.min()))))
    return lengths[np.cumsum(lengths) <= unlabeled]


def bag_means(values: Floats, sizes: Integers) -> Floats:
    """Mean of every bag; the instances of all bags lie in a row."""
    return np.add.reduceat(values, np.cumsum(sizes) - sizes) / sizes if len(sizes) else np.empty(0)
