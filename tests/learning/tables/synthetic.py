"""Tables with known labels in tuples, for tests of learners."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.learning.tables.data import TableData

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Labelled:
    """Rows in tuples, the log-odds that their labels follow, and test rows with theirs."""

    data: TableData
    labels: NDArray[np.int64]
    test_x: Floats
    test_labels: NDArray[np.int64]


def log_odds(x: Floats, curved: bool) -> Floats:
    """A line in the first two features; curved: a parabola in the first one, which no line follows."""
    z: Floats = 2 * x[:, 0] ** 2 - 2 if curved else 1.5 * x[:, 0] - x[:, 1] - 0.5
    return z


def table(sizes: NDArray[np.int64], seed: int = 0, *, curved: bool = False) -> Labelled:
    """Random groups; four features on different scales, the last one constant."""
    rng = np.random.default_rng(seed)

    def rows(number: int) -> Floats:
        return np.column_stack([rng.normal(0, 1, (number, 3)), np.ones(number)])

    x, test_x = rows(int(sizes.sum())), rows(2000)
    labels = rng.binomial(1, expit(log_odds(x, curved)))
    counts = np.add.reduceat(labels, np.cumsum(sizes) - sizes)
    test_labels = rng.binomial(1, expit(log_odds(test_x, curved)))
    scale = np.array([1.0, 100.0, 0.01, 1.0])
    return Labelled(TableData(x * scale, CountObservations(sizes, counts)), labels, test_x * scale, test_labels)


def natural_groups(tuples: int, n: int, spread: float, seed: int = 0) -> TableData:
    """Members of a tuple resemble each other, in log-odds x₁ − x₂ and in an intercept of this spread beyond them."""
    rng = np.random.default_rng(seed)
    x = np.repeat(rng.normal(0, 1, (tuples, 3)), n, axis=0) + rng.normal(0, 0.5, (tuples * n, 3))
    intercept = np.repeat(rng.normal(0, spread, tuples), n)
    labels = rng.binomial(1, expit(x[:, 0] - x[:, 1] + intercept))
    return TableData(x, CountObservations(np.full(tuples, n), labels.reshape(tuples, n).sum(axis=1)))


def one_rate(tuples: int, n: int, m: int, pool: int = 0, prior: float = 0.0, seed: int = 0) -> Labelled:
    """Every tuple has n members and m positives, which differ by a shift of the features; a pool at `prior`."""
    rng = np.random.default_rng(seed)

    def rows(labels: NDArray[np.int64]) -> Floats:
        shifted: Floats = rng.normal(0, 1, (len(labels), 4)) + 2.5 * labels[:, None] * [1, -0.5, 0, 0]
        return shifted

    labels = np.concatenate([rng.permutation(np.repeat([1, 0], [m, n - m])) for _ in range(tuples)])
    of_pool, test_labels = rng.binomial(1, prior, pool), rng.binomial(1, 0.5, 2000)
    observed = CountObservations(np.full(tuples, n), np.full(tuples, m))
    data = TableData(rows(labels), observed, rows(of_pool) if pool else None, prior if pool else None)
    return Labelled(data, labels, rows(test_labels), test_labels)
