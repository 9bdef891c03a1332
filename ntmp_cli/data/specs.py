"""The grammar of tuple specs.

N:M        n fixed, m fixed            3:1
N:M1-M2    m uniform over a range      5:1-3
N:~P       m Binomial(n, P)            5:~0.4
N1-N2:...  n uniform over a range      3-7:1
...@W      weight in a mixture         3:1@0.7
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import UsageError

_SPEC = re.compile(
    r"^(?P<n1>\d+)(?:-(?P<n2>\d+))?:(?:(?P<m1>\d+)(?:-(?P<m2>\d+))?|~(?P<p>\d*\.?\d+))(?:@(?P<w>\d*\.?\d+))?$"
)
# Counts less probable than this are left out of the expected strata.
NEVER = 1e-12
_GRAMMAR = "A spec is N:M, N:M1-M2 or N:~P, where N may be a range N1-N2; a mixture adds weights, as in 3:1@0.7."


@dataclass(frozen=True)
class TupleSpec:
    """One component of the mixture that tuples are sampled from."""

    n_low: int
    n_high: int
    m_low: int = 0
    m_high: int = 0
    rate: float | None = None
    weight: float = 1.0

    @property
    def mean_length(self) -> float:
        return (self.n_low + self.n_high) / 2

    @property
    def most_positives(self) -> int:
        if self.rate is not None:
            return self.n_high if self.rate > 0 else 0
        return self.m_high

    @property
    def most_negatives(self) -> int:
        if self.rate is not None:
            return self.n_high if self.rate < 1 else 0
        return self.n_high - self.m_low

    @property
    def fixed(self) -> tuple[int, int] | None:
        """(n, m) when neither varies."""
        if self.rate is None and self.n_low == self.n_high and self.m_low == self.m_high:
            return self.n_low, self.m_low
        return None


def parse_spec(text: str) -> TupleSpec:
    """Parse one spec; a UsageError says what is wrong with it."""
    match = _SPEC.match(text.strip())
    if match is None:
        raise UsageError(f"tuple spec '{text}': not understood", hint=_GRAMMAR)
    n_low = int(match["n1"])
    n_high = int(match["n2"] or n_low)
    weight = float(match["w"] or 1.0)
    if n_low < 1 or n_high < n_low:
        raise UsageError(f"tuple spec '{text}': lengths must be at least 1, in ascending order", hint=_GRAMMAR)
    if not 0 < weight < inf:
        raise UsageError(f"tuple spec '{text}': the weight must be above 0 and finite", hint=_GRAMMAR)
    if match["p"] is not None:
        rate = float(match["p"])
        if not 0 <= rate <= 1:
            raise UsageError(f"tuple spec '{text}': the rate {rate} is not in [0, 1]", hint=_GRAMMAR)
        return TupleSpec(n_low, n_high, rate=rate, weight=weight)
    m_low = int(match["m1"])
    m_high = int(match["m2"] or m_low)
    if m_high < m_low:
        raise UsageError(f"tuple spec '{text}': counts must be in ascending order", hint=_GRAMMAR)
    if m_high > n_low:
        raise UsageError(
            f"tuple spec '{text}': m = {m_high} positives do not fit into a tuple of n = {n_low}",
            hint="Choose m between 0 and n.",
        )
    return TupleSpec(n_low, n_high, m_low, m_high, weight=weight)


def sample_sizes(
    specs: Sequence[TupleSpec], size: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lengths n_t and true counts m_t of `size` tuples of the mixture."""
    weights = np.array([spec.weight for spec in specs])
    which = rng.choice(len(specs), size=size, p=weights / weights.sum())
    lows, highs = (np.array([getattr(spec, key) for spec in specs])[which] for key in ("n_low", "n_high"))
    n = rng.integers(lows, highs + 1)
    m_lows, m_highs = (np.array([getattr(spec, key) for spec in specs])[which] for key in ("m_low", "m_high"))
    uniform = rng.integers(m_lows, m_highs + 1)
    rates = np.array([np.nan if spec.rate is None else spec.rate for spec in specs])[which]
    binomial = rng.binomial(n, np.nan_to_num(rates))
    return n, np.where(np.isnan(rates), uniform, binomial)


def expected_strata(specs: Sequence[TupleSpec], size: float) -> dict[tuple[int, int], float]:
    """Expected numbers of tuples by (n, m) among `size` tuples of the mixture."""
    total = sum(spec.weight for spec in specs)
    expected: dict[tuple[int, int], float] = {}
    for spec in specs:
        for n in range(spec.n_low, spec.n_high + 1):
            share = size * spec.weight / total / (spec.n_high - spec.n_low + 1)
            for m, chance in _count_law(spec, n):
                expected[n, m] = expected.get((n, m), 0.0) + share * chance
    return dict(sorted(expected.items()))


def _count_law(spec: TupleSpec, n: int) -> list[tuple[int, float]]:
    """Counts that a tuple of length n may have, with their probabilities."""
    from scipy.stats import binom

    if spec.rate is None:
        counts = range(spec.m_low, spec.m_high + 1)
        return [(m, 1 / len(counts)) for m in counts]
    law = binom.pmf(np.arange(n + 1), n, spec.rate)
    return [(m, float(chance)) for m, chance in enumerate(law) if chance > NEVER]


def mean_length(specs: Sequence[TupleSpec]) -> float:
    return sum(s.weight * s.mean_length for s in specs) / sum(s.weight for s in specs)


def mean_rate(specs: Sequence[TupleSpec]) -> float:
    """ᾱ = E[m/n] of a tuple of the mixture: lengths and counts are independent; the rate of a binomial count is P."""
    rates = [s.rate if s.rate is not None else (s.m_low + s.m_high) / 2 * _mean_inverse_length(s) for s in specs]
    return sum(s.weight * rate for s, rate in zip(specs, rates, strict=True)) / sum(s.weight for s in specs)


def _mean_inverse_length(spec: TupleSpec) -> float:
    lengths = range(spec.n_low, spec.n_high + 1)
    return sum(1 / n for n in lengths) / len(lengths)
