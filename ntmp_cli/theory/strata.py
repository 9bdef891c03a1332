"""A design: how many tuples of which (n, m), how many unlabeled instances, and the prior of the latter (Eq. 2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.learning.groups import NO_GAP, effective_gap, normalised_gap

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stratum:
    """Tuples of one length and count; their number is an expectation where it comes from a spec."""

    n: int
    m: float
    """Whole, but where counts are noisy: then the mean of the stratum."""
    tuples: float

    @property
    def rate(self) -> float:
        return self.m / self.n

    @property
    def instances(self) -> float:
        return self.n * self.tuples


@dataclass(frozen=True)
class Groups:
    """The groups of a risk: N_g instances of rate θ_g, the unlabeled pool last."""

    sizes: Floats
    rates: Floats

    @property
    def prior(self) -> float:
        return float(self.rates[-1])

    @property
    def spread(self) -> float:
        """√D/S₀ (Eq. 11)."""
        return effective_gap(self.sizes, self.rates)

    @property
    def gap(self) -> float:
        """√D/S₀ over its value for a gap of one; with one stratum |π − α| (Eq. 18)."""
        return normalised_gap(self.sizes, self.rates)

    @property
    def identifiable(self) -> bool:
        return self.spread >= NO_GAP


@dataclass(frozen=True)
class Design:
    strata: tuple[Stratum, ...]
    unlabeled: float
    prior: float

    @property
    def tuples(self) -> float:
        return sum(s.tuples for s in self.strata)

    @property
    def instances(self) -> float:
        return sum(s.instances for s in self.strata)

    @property
    def mean_rate(self) -> float:
        """ᾱ: the mean of m/n over tuples (Eq. 14)."""
        return sum(s.tuples * s.rate for s in self.strata) / self.tuples

    @property
    def flat_rate(self) -> float:
        """Σm/Σn: the share of positives among all tuple instances (Eq. 14)."""
        return sum(s.tuples * s.m for s in self.strata) / self.instances

    def stratified(self) -> Groups:
        """Every stratum is a group of its own."""
        sizes = [*(s.instances for s in self.strata), self.unlabeled]
        return Groups(np.array(sizes), np.array([*(s.rate for s in self.strata), self.prior]))

    def pooled(self) -> Groups:
        """The paper's version: one rate ᾱ, every tuple has the same weight (Eq. 14).

        The mean of K tuple means has variance σ² Σ(1/n_t)/K², that of K²/Σ(1/n_t) instances.
        """
        effective_size = self.tuples**2 / sum(s.tuples / s.n for s in self.strata)
        return Groups(np.array([effective_size, self.unlabeled]), np.array([self.mean_rate, self.prior]))

    def at(self, prior: float) -> Design:
        """The same tuples beside a pool of another prior."""
        return replace(self, prior=prior)

    def with_added(self, stratum: Stratum) -> Design:
        return replace(self, strata=(*self.strata, stratum))
