"""Ranks of values, without scipy.stats: importing that takes longer than most commands."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def average_ranks(values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Ranks from 1 on, as Eqs. 74 and 78 need them; equal values share their mean rank."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[which]
    return ranks
