"""What a learner for tables takes: the members of all tuples in a row, what was observed of them, perhaps a pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.learning.groups import usable_rate


@dataclass(frozen=True)
class Standardisation:
    """x → (x − centre) / scale, per feature; a constant feature becomes 0."""

    centre: Floats
    scale: Floats

    @classmethod
    def of(cls, x: Floats) -> Standardisation:
        spread = x.std(axis=0)
        return cls(x.mean(axis=0), np.where(spread > 0, spread, 1.0))

    def __call__(self, x: Floats) -> Floats:
        standardised: Floats = (x - self.centre) / self.scale
        return standardised


@dataclass(frozen=True)
class TableData:
    """Tuples with raw features; a pool at a prior, where there is one."""

    x: Floats
    observed: CountObservations
    unlabeled: Floats | None = None
    prior: float | None = None
    blocks: Ints | None = None
    """(T,) tuples of one block are never divided between folds."""
    weights: Floats | None = None
    """(T,) weights of the tuples."""
    trusts_prior: bool = False
    """Whether the prior orients the fit even against the counts."""

    def objective(self, spread: float = 0.0) -> CountObjective:
        return CountObjective(self.observed, spread, self.weights)

    @property
    def rate(self) -> float:
        return usable_rate(self.observed.rate, self.observed.instances)

    @cached_property
    def one_rate(self) -> bool:
        """All tuples may have one rate: then the gradient at a constant is zero, and soft labels say nothing."""
        return self.observed.one_rate

    @cached_property
    def standardisation(self) -> Standardisation:
        return Standardisation.of(self.x if self.unlabeled is None else np.concatenate([self.x, self.unlabeled]))

    def rows(self, which: Ints) -> Ints:
        """Positions of the members of these tuples."""
        return np.flatnonzero(np.isin(self.observed.owner, which))

    def subset(self, which: Ints) -> TableData:
        """These tuples, given in ascending order, with the whole pool."""
        observed = self.observed.subset(which)
        weights = None if self.weights is None else self.weights[which]
        blocks = None if self.blocks is None else self.blocks[which]
        x = self.x[self.rows(which)]
        return replace(self, x=x, observed=observed, weights=weights, blocks=blocks)
