"""Laws of noise: how a recorded count arises from the true one.

A law gives P(recorded | k) for k positives among n members (L of Eqs. 22 and 107), a sampler of recorded counts, and
what may be recorded at all. No other module knows a law: a new one is one registered class, whose fields are its
parameters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple, dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ntmp_cli.counting.binomial import binomial
from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES, Facts, Registry

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# No tuple has more members than this.
MOST_MEMBERS = 2**31
# What stands in the place of a law for the label of a single row.
LABEL = "label"
# Values of P(recorded | k) by k and by the number of positives that were counted are computed in pieces of this size.
PIECE = 2**20


class NoiseLaw(ABC):
    """P(recorded count | true count), for tuples of any length."""

    @abstractmethod
    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        """P(recorded | k positives among n members), for arrays that broadcast; a density where noise is continuous."""

    @abstractmethod
    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Floats | Ints:
        """What is recorded of true counts."""

    def between(self, low: Floats, high: Floats, k: Ints, n: Ints | int) -> Floats:
        """P(low ≤ recorded ≤ high | k), of a law whose records are whole numbers."""
        width = int(np.max(high - low, initial=0))
        steps = [np.where(low + d <= high, self.likelihood(low + d, k, n), 0.0) for d in range(width + 1)]
        total: Floats = np.minimum(np.sum(steps, axis=0), 1.0)
        return total

    def support(self, recorded: Floats | Ints, n: Ints) -> tuple[Ints, Ints]:
        """The smallest and the largest true count that can be behind a recorded one; a tight answer saves time."""
        return np.zeros_like(n), n

    def possible(self, recorded: Floats, n: Ints) -> Bools:
        """Which values can be recorded of tuples of n members: by default whole numbers 0 … n."""
        return np.asarray((recorded == np.floor(recorded)) & (recorded >= 0) & (recorded <= n))

    records: str = "a whole number from 0 to the number of its members"
    """What `possible` allows, in words."""
    adds_noise: bool = False
    """Whether a record is the true count plus independent noise of median 0."""

    def unbiased(self, recorded: Floats, n: Ints) -> Floats | None:
        """A number whose mean is the true count; None where there is none."""
        return None

    def matrix(self, n: int) -> Floats:
        """P(recorded | k) of one length: a row per recorded count 0 … n, a column per true count."""
        k = np.arange(n + 1)
        return self.likelihood(k[:, None], k, n)

    def record_probabilities(self, n: int) -> Floats:
        """P(record | k) of one length: a row for everything that may be recorded, or for narrow intervals of it."""
        return self.matrix(n)


noise_laws: Registry[type[NoiseLaw], Facts] = REGISTRIES["count-laws"]
"""Laws by name; a law is a class whose arguments are its parameters."""


@noise_laws.register("exact")
@dataclass(frozen=True)
class Exact(NoiseLaw):
    """The recorded count is the true one, or the true one lies in the recorded range. The default."""

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        return np.asarray(recorded == k, dtype=np.float64)

    def between(self, low: Floats, high: Floats, k: Ints, n: Ints | int) -> Floats:
        return np.asarray((low <= k) & (k <= high), dtype=np.float64)

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        return counts

    def support(self, recorded: Floats | Ints, n: Ints) -> tuple[Ints, Ints]:
        return recorded.astype(np.int64), recorded.astype(np.int64)

    def unbiased(self, recorded: Floats, n: Ints) -> Floats | None:
        return recorded


class Label(Exact):
    """The label of a single row: exact, whatever law of noise the counts beside it are given. No law for counts."""


@noise_laws.register("off-by-one")
@dataclass(frozen=True)
class OffByOne(NoiseLaw):
    """P: with this probability the count is one more or one less; from 0 and n, the one neighbour.

    Eq. 26.
    """

    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise UsageError(f"the rate of counts that are off by one is {self.rate}; it must be from 0 to 1")

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        distance = np.abs(k - recorded)
        neighbours = np.where((k == 0) | (k == n), 1, 2)
        probability: Floats = (1 - self.rate) * (distance == 0) + self.rate / neighbours * (distance == 1)
        return probability

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        moves = rng.random(len(counts)) < self.rate
        step = np.where(rng.random(len(counts)) < 0.5, 1, -1)
        step = np.where(counts == 0, 1, np.where(counts == sizes, -1, step))
        return np.where(moves, counts + step, counts)

    def support(self, recorded: Floats | Ints, n: Ints) -> tuple[Ints, Ints]:
        whole = recorded.astype(np.int64)
        return np.maximum(whole - 1, 0), np.minimum(whole + 1, n)

    def unbiased(self, recorded: Floats, n: Ints) -> Floats | None:
        return recorded


class _AddedNoise(NoiseLaw):
    """Noise of mean 0 that was added to the true count: what is recorded may be negative, or above n."""

    def _by_interval(self, n: int, width: float) -> Floats:
        """Intervals of an eighth of the noise's width, to 20 widths beyond all counts."""
        ends = np.arange(-20 * width, n + 20 * width, width / 8)
        return self.between(ends[:-1, None], ends[1:, None], np.arange(n + 1), n)

    adds_noise = True
    records = "a number that is not far beyond what the noise can add to a count from 0 to the number of its members"

    def unbiased(self, recorded: Floats, n: Ints) -> Floats | None:
        return recorded

    def possible(self, recorded: Floats, n: Ints) -> Bools:
        nearest = np.clip(np.rint(np.nan_to_num(recorded)), 0, n)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.isfinite(recorded) & (self.likelihood(recorded, nearest, n) > 0))


@noise_laws.register("gaussian")
@dataclass(frozen=True)
class Gaussian(_AddedNoise):
    """SD: normal noise of this standard deviation was added, as for privacy."""

    sd: float

    def __post_init__(self) -> None:
        _require("gaussian", "the standard deviation", self.sd, self.sd > 0, "above 0")

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        density: Floats = np.exp(-0.5 * ((recorded - k) / self.sd) ** 2) / (self.sd * np.sqrt(2 * np.pi))
        return density

    def between(self, low: Floats, high: Floats, k: Ints, n: Ints | int) -> Floats:
        first, last = (low - k) / self.sd, (high - k) / self.sd
        # Above the mean by the upper tail: 1 − ε has no digits left for a small ε.
        inside: Floats = np.where(first > 0, ndtr(-first) - ndtr(-last), ndtr(last) - ndtr(first))
        return inside

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Floats:
        return counts + rng.normal(0, self.sd, len(counts))

    def record_probabilities(self, n: int) -> Floats:
        return self._by_interval(n, self.sd)


@noise_laws.register("laplace")
@dataclass(frozen=True)
class Laplace(_AddedNoise):
    """B: Laplace noise of this scale was added, as for differential privacy."""

    scale: float

    def __post_init__(self) -> None:
        _require("laplace", "the scale", self.scale, self.scale > 0, "above 0")

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        density: Floats = np.exp(-np.abs(recorded - k) / self.scale) / (2 * self.scale)
        return density

    def between(self, low: Floats, high: Floats, k: Ints, n: Ints | int) -> Floats:
        first, last = (low - k) / self.scale, (high - k) / self.scale
        tails = 0.5 * np.exp(-np.abs(first)), 0.5 * np.exp(-np.abs(last))
        # On one side of the mean by the tails themselves: 1 − ε has no digits left for a small ε.
        inside: Floats = np.where((first > 0) | (last < 0), np.abs(tails[0] - tails[1]), 1 - tails[0] - tails[1])
        return inside

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Floats:
        return counts + rng.laplace(0, self.scale, len(counts))

    def record_probabilities(self, n: int) -> Floats:
        return self._by_interval(n, self.scale)


@noise_laws.register("geometric")
@dataclass(frozen=True)
class Geometric(_AddedNoise):
    """EPS: two-sided geometric noise was added: P(d) proportional to e^(−EPS·|d|), the discrete Laplace mechanism."""

    epsilon: float
    records = "a whole number, perhaps negative"

    def __post_init__(self) -> None:
        _require("geometric", "the parameter", self.epsilon, self.epsilon > 0, "above 0")

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        probability: Floats = np.tanh(self.epsilon / 2) * np.exp(-self.epsilon * np.abs(recorded - k))
        return probability

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        stop = -np.expm1(-self.epsilon)
        moved: Ints = counts + rng.geometric(stop, len(counts)) - rng.geometric(stop, len(counts))
        return moved

    def record_probabilities(self, n: int) -> Floats:
        reach = int(np.ceil(20 / self.epsilon))
        return self.likelihood(np.arange(-reach, n + reach + 1)[:, None], np.arange(n + 1), n)

    def possible(self, recorded: Floats, n: Ints) -> Bools:
        return np.asarray(super().possible(recorded, n) & (recorded == np.floor(recorded)))


@noise_laws.register("detect")
@dataclass(frozen=True)
class Detect(NoiseLaw):
    """SE,SP: every positive is counted with probability SE, every negative wrongly with probability 1 − SP."""

    sensitivity: float
    specificity: float

    def __post_init__(self) -> None:
        _require_rates("detect", self.sensitivity, self.specificity)

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        r, k, n = np.broadcast_arrays(np.asarray(recorded, dtype=np.float64), k, n)
        flat = [values.reshape(-1) for values in (r, k, n)]
        cells, inverse = np.unique(np.stack(flat), axis=1, return_inverse=True)  # in tables most come often
        values = self._convolved(*cells)[inverse.reshape(-1)]
        return values.reshape(r.shape)

    def _convolved(self, r: Floats, k: Floats, n: Floats) -> Floats:
        """Σ_j P(j of the k positives are counted) P(r − j of the n − k negatives are)."""
        if 1 in (self.sensitivity, self.specificity):  # only one j is possible
            j = r if self.specificity == 1 else k
            return binomial(j, k, self.sensitivity) * binomial(r - j, n - k, 1 - self.specificity)
        total = np.zeros(len(r))
        inside = (k >= 0) & (k <= n) & (r >= 0) & (r <= n)
        most = int(min(np.max(r[inside], initial=-1), np.max(k[inside], initial=-1)))
        step = max(1, PIECE // max(len(r), 1))
        for first in range(0, most + 1, step):
            some = np.arange(first, min(first + step, most + 1))[:, None]
            total += (binomial(some, k, self.sensitivity) * binomial(r - some, n - k, 1 - self.specificity)).sum(axis=0)
        return np.where(inside, total, 0.0)

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        found = rng.binomial(counts, self.sensitivity) + rng.binomial(sizes - counts, 1 - self.specificity)
        return found.astype(np.int64)

    def matrix(self, n: int) -> Floats:
        """The same for all counts of one length, in a thousandth of the time where members are many."""
        k = np.arange(n + 1)[:, None]
        found, wrong = binomial(k.T, k, self.sensitivity), binomial(k.T, k, 1 - self.specificity)
        return np.stack([np.convolve(found[i, : i + 1], wrong[n - i, : n - i + 1]) for i in range(n + 1)], axis=1)

    def unbiased(self, recorded: Floats, n: Ints) -> Floats | None:
        unbiased: Floats = (recorded - (1 - self.specificity) * n) / (self.sensitivity + self.specificity - 1)
        return unbiased


@noise_laws.register("round")
@dataclass(frozen=True)
class Round(NoiseLaw):
    """K: rounded to the nearest multiple of K; half way up or down with equal probability."""

    step: int

    def __post_init__(self) -> None:
        _require_whole("round", "the step", self.step)

    @property
    def records(self) -> str:  # type: ignore[override]
        return f"a multiple of {self.step} that a count from 0 to the number of its members rounds to"

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        distance = 2 * np.abs(recorded - k)
        near = 1.0 * (distance < self.step) + 0.5 * (distance == self.step)
        probability: Floats = near * (np.mod(recorded, self.step) == 0)
        return probability

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        below, rest = np.divmod(counts, self.step)
        up = (2 * rest > self.step) | ((2 * rest == self.step) & (rng.random(len(counts)) < 0.5))
        rounded: Ints = self.step * (below + up)
        return rounded

    def support(self, recorded: Floats | Ints, n: Ints) -> tuple[Ints, Ints]:
        whole, half = recorded.astype(np.int64), self.step // 2
        return np.clip(whole - half, 0, n), np.clip(whole + half, 0, n)

    def record_probabilities(self, n: int) -> Floats:
        return self.likelihood(np.arange(0, n + self.step, self.step)[:, None], np.arange(n + 1), n)

    def possible(self, recorded: Floats, n: Ints) -> Bools:
        return np.asarray((np.mod(recorded, self.step) == 0) & (recorded >= 0) & (recorded - self.step / 2 <= n))


@noise_laws.register("suppress")
@dataclass(frozen=True)
class Suppress(NoiseLaw):
    """K: true counts 1 … K−1 are written as 0; other counts are exact."""

    smallest: int

    def __post_init__(self) -> None:
        _require_whole("suppress", "the smallest published count", self.smallest)

    @property
    def records(self) -> str:  # type: ignore[override]
        return f"0, or a whole number from {self.smallest} to the number of its members"

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        published = np.where(k < self.smallest, 0, k)
        return np.asarray(recorded == published, dtype=np.float64)

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        return np.where(counts < self.smallest, 0, counts)

    def support(self, recorded: Floats | Ints, n: Ints) -> tuple[Ints, Ints]:
        whole = recorded.astype(np.int64)
        return whole, np.where(whole == 0, np.minimum(self.smallest - 1, n), whole)

    def possible(self, recorded: Floats, n: Ints) -> Bools:
        return np.asarray(super().possible(recorded, n) & ((recorded == 0) | (recorded >= self.smallest)))


@noise_laws.register("pooled-test")
@dataclass(frozen=True)
class PooledTest(NoiseLaw):
    """SE,SP: one test of all members, 1 with probability SE if any is positive, and with 1 − SP if none is."""

    sensitivity: float
    specificity: float
    records = "0 or 1, the result of the test"

    def __post_init__(self) -> None:
        _require_rates("pooled-test", self.sensitivity, self.specificity)

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        seen = np.where(k > 0, self.sensitivity, 1 - self.specificity)
        return np.where(recorded == 1, seen, np.where(recorded == 0, 1 - seen, 0.0))

    def record_probabilities(self, n: int) -> Floats:
        return self.likelihood(np.arange(2)[:, None], np.arange(n + 1), n)

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        seen = np.where(counts > 0, self.sensitivity, 1 - self.specificity)
        return (rng.random(len(counts)) < seen).astype(np.int64)

    def possible(self, recorded: Floats, n: Ints) -> Bools:
        return np.asarray((recorded == 0) | (recorded == 1))


def count_noise(rate: float) -> NoiseLaw:
    """The law of counts that are off by one at this rate: `Exact` at rate 0."""
    return Exact() if rate == 0 else OffByOne(rate)


@lru_cache(256)
def parse_law(text: str) -> NoiseLaw:
    """The law of a text such as `gaussian:17` or `detect:0.9,0.99`; `label` is written for labels alone."""
    if text == LABEL:
        return Label()
    name, given = law_parameters(text)
    try:
        numbers = [float(value) for value in given.values()]
    except ValueError:
        raise UsageError(
            f"count law '{text}': its parameters must be numbers",
            hint=f"Give a rough number here; `ntmp train --count-law {text}` replaces it by an estimate."
            if "auto" in given.values()
            else "`ntmp list count-laws` explains them.",
        ) from None
    whole = [number.is_integer() and abs(number) <= MOST_MEMBERS for number in numbers]
    return noise_laws.get(name)(*(int(x) if is_whole else x for x, is_whole in zip(numbers, whole, strict=True)))


def law_parameters(text: str) -> tuple[str, dict[str, str]]:
    """The name of a law and what is given for each of its parameters, of which there must be as many as it takes."""
    name, _, given = text.strip().partition(":")
    names = [field.name for field in fields(noise_laws.get(name))]  # type: ignore[arg-type]
    values = given.split(",") if given else []
    if len(values) != len(names):
        takes = f"takes {', '.join(names)}" if names else "takes no parameter"
        example = f"{name}:{','.join(name.upper() for name in names)}" if names else name
        raise UsageError(
            f"count law '{text}': {name} {takes}, and {len(values)} were given", hint=f"Write it as {example}."
        )
    return name, dict(zip(names, values, strict=True))


def law_text(law: NoiseLaw, digits: int = 12) -> str:
    """The text that `parse_law` reads as this law."""
    if isinstance(law, Label):
        return LABEL
    name = next(name for name, entry in noise_laws.items() if type(law) is entry)
    values = ",".join(f"{value:.{digits}g}" for value in astuple(law))  # type: ignore[call-overload]
    return f"{name}:{values}" if values else name


def _require(law: str, what: str, value: float, fits: bool, range_: str) -> None:
    if not fits or not np.isfinite(value):
        raise UsageError(f"count law {law}: {what} is {value:g}; it must be {range_}")


def _require_whole(law: str, what: str, value: float) -> None:
    fits = 1 <= value <= MOST_MEMBERS and float(value).is_integer()
    _require(law, what, value, fits, f"a whole number from 1 to {MOST_MEMBERS}")


def _require_rates(law: str, sensitivity: float, specificity: float) -> None:
    for what, value in (("the sensitivity", sensitivity), ("the specificity", specificity)):
        _require(law, what, value, 0 <= value <= 1, "from 0 to 1")
    if sensitivity + specificity <= 1:
        raise UsageError(
            f"count law {law}: sensitivity and specificity add up to {sensitivity + specificity:g}",
            hint="Their sum must be above 1: else what is counted says nothing, or the opposite.",
        )
