from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ntmp_cli.prior.estimator import ScoredTuples

Simulate = Callable[..., ScoredTuples]


@pytest.fixture(scope="session")
def simulate() -> Simulate:
    """Scores a·z + b of two unit Gaussians 3 apart, z their true log-odds at the tuples' rate."""

    def scores(
        n: int,
        m: int,
        prior: float,
        *,
        tuples: int = 2000,
        pool: int = 4000,
        a: float = 0.7,
        b: float = 0.4,
        seed: int = 0,
    ) -> ScoredTuples:
        rng = np.random.default_rng(seed)
        inside = rng.permuted(np.tile(np.arange(n) < m, (tuples, 1)), axis=1).reshape(-1)
        positive = np.append(inside, np.arange(pool) < round(prior * pool))
        x = rng.standard_normal(len(positive)) + 3 * (positive - 0.5)
        z = a * (3 * x + np.log(m / (n - m))) + b
        return ScoredTuples(z[: n * tuples], np.full(tuples, n), np.full(tuples, m), z[n * tuples :])

    return scores
