"""Counts that are off by one with some probability (`counting.laws`): recorded and true strata (Eq. 100)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.strata import expected_behind, numbers_behind
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
        solved = numbers_behind(seen, count_noise(noise))
        strata += [Stratum(n, m, float(k)) for m, k in enumerate(solved) if k > 1e-9 * seen.sum()]
    return tuple(strata)


def expected_counts(recorded: Sequence[Stratum], noise: float) -> dict[tuple[int, float], float]:
    """E[true count | n, recorded count] of recorded strata: n times the stratum's share of positives."""
    expected: dict[tuple[int, float], float] = {}
    for n, seen in _by_length(recorded).items():
        behind = expected_behind(seen, count_noise(noise))
        expected |= {(n, int(m)): float(behind[m]) for m in np.flatnonzero(seen)}
    return expected


def _by_length(strata: Sequence[Stratum]) -> dict[int, Floats]:
    """Tuples of each length by count, 0 … n."""
    tables: dict[int, Floats] = {}
    for s in strata:
        tables.setdefault(s.n, np.zeros(s.n + 1))[int(s.m)] += s.tuples
    return dict(sorted(tables.items()))
