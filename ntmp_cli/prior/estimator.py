"""What a prior estimator takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.registry import Registry


@dataclass(frozen=True)
class ScoredTuples:
    """Scores of held-out tuples (in a row), their lengths and recorded counts, and scores of U."""

    scores: NDArray[np.float64]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    unlabeled: NDArray[np.float64]


# An estimator maps scores to the class prior π of the unlabeled pool.
priors: Registry[Callable[[ScoredTuples], float]] = Registry("prior", "ntmp_cli.prior")
