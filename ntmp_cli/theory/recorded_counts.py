"""Counts that are off by one with some probability (`counting.laws`): recorded and true strata (Eq. 100)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.theory.strata import Floats, Stratum


@dataclass(frozen=True)
class RecordedStratum:
    """Tuples whose recorded count is m, and their true share of positives."""

    n: int
    m: int
    tuples: float
    true_rate: float

    @property
    def instances(self) -> float:
        return self.n * self.tuples


def recorded_strata(strata: Sequence[Stratum], noise: float) -> tuple[RecordedStratum, ...]:
    """The expected recorded strata of true ones (Eq. 100)."""
    recorded = []
    for n, true in _by_length(strata).items():
        joint = count_noise(noise).matrix(n) * true
        for m, row in enumerate(joint):
            if (tuples := float(row.sum())) > 0:
                recorded.append(RecordedStratum(n, m, tuples, float(row @ np.arange(n + 1)) / n / tuples))
    return tuple(recorded)


def true_strata(recorded: Sequence[Stratum], noise: float) -> tuple[Stratum, ...]:
    """The true strata that fit recorded ones best: least squares under the noise, with no number below 0 (Eq. 100)."""
    if noise == 0:
        return tuple(recorded)
    strata = []
    for n, seen in _by_length(recorded).items():
        solved, _ = nnls(count_noise(noise).matrix(n), seen)
        solved *= seen.sum() / solved.sum()
        strata += [Stratum(n, m, float(k)) for m, k in enumerate(solved) if k > 1e-9 * seen.sum()]
    return tuple(strata)


def expected_counts(recorded: Sequence[Stratum], noise: float) -> dict[tuple[int, float], float]:
    """E[true count | n, recorded count] of recorded strata: what a stratum's share of positives is, times n.

    The law of the true counts is that of `true_strata`; where it excludes a recorded count, all true counts that the
    noise allows are equally probable.
    """
    expected: dict[tuple[int, float], float] = {}
    true = _by_length(true_strata(recorded, noise))
    for n, seen in _by_length(recorded).items():
        matrix, k = count_noise(noise).matrix(n), np.arange(n + 1)
        for m in np.flatnonzero(seen):
            weights = matrix[m] * true[n]
            weights = weights if weights.sum() > 1e-9 * seen.sum() else matrix[m]
            expected[n, int(m)] = float(weights @ k / weights.sum())
    return expected


def _by_length(strata: Sequence[Stratum]) -> dict[int, Floats]:
    """Tuples of each length by count, 0 … n."""
    tables: dict[int, Floats] = {}
    for s in strata:
        tables.setdefault(s.n, np.zeros(s.n + 1))[int(s.m)] += s.tuples
    return dict(sorted(tables.items()))
