"""Laws of noise: how a recorded count arises from the true one.

A law gives P(recorded | k) for k positives among n members (L of Eq. 22), a sampler of recorded counts, and the matrix
of one length. No other module knows a law: a new one is one registered class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES, Facts, Registry

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class NoiseLaw(ABC):
    """P(recorded count | true count), for tuples of any length."""

    @abstractmethod
    def likelihood(self, recorded: Ints, k: Ints, n: Ints | int) -> Floats:
        """P(recorded | k positives among n members), for arrays that broadcast."""

    @abstractmethod
    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        """What is recorded of true counts."""

    def support(self, recorded: Ints, n: Ints) -> tuple[Ints, Ints]:
        """The smallest and the largest true count that can be behind a recorded one; a tight answer saves time."""
        return np.zeros_like(n), n

    def matrix(self, n: int) -> Floats:
        """P(recorded | k) of one length: a row per recorded count 0 … n, a column per true count."""
        k = np.arange(n + 1)
        return self.likelihood(k[:, None], k, n)


noise_laws: Registry[type[NoiseLaw], Facts] = REGISTRIES["count-laws"]
"""Laws by name; a law is a class whose arguments are its parameters."""


@noise_laws.register("exact")
@dataclass(frozen=True)
class Exact(NoiseLaw):
    """The recorded count is the true one."""

    def likelihood(self, recorded: Ints, k: Ints, n: Ints | int) -> Floats:
        return np.asarray(recorded == k, dtype=np.float64)

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        return counts

    def support(self, recorded: Ints, n: Ints) -> tuple[Ints, Ints]:
        return recorded, recorded


@noise_laws.register("off-by-one")
@dataclass(frozen=True)
class OffByOne(NoiseLaw):
    """With probability `rate` the recorded count is one more or one less; from 0 and n, the one neighbour.

    Eq. 26.
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise UsageError(f"the rate of counts that are off by one is {self.rate}; it must be from 0 to 1")

    def likelihood(self, recorded: Ints, k: Ints, n: Ints | int) -> Floats:
        distance = np.abs(k - recorded)
        neighbours = np.where((k == 0) | (k == n), 1, 2)
        probability: Floats = (1 - self.rate) * (distance == 0) + self.rate / neighbours * (distance == 1)
        return probability

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        moves = rng.random(len(counts)) < self.rate
        step = np.where(rng.random(len(counts)) < 0.5, 1, -1)
        step = np.where(counts == 0, 1, np.where(counts == sizes, -1, step))
        return np.where(moves, counts + step, counts)

    def support(self, recorded: Ints, n: Ints) -> tuple[Ints, Ints]:
        return np.maximum(recorded - 1, 0), np.minimum(recorded + 1, n)


def count_noise(rate: float) -> NoiseLaw:
    """The law of counts that are off by one at this rate: `Exact` at rate 0."""
    return Exact() if rate == 0 else OffByOne(rate)
