"""What a learner for tables takes: the members of all tuples in a row, what was observed of them, perhaps a pool."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.pooled import PooledObjective
from ntmp_cli.learning.groups import signal_to_noise, usable_rate

# Standard errors by which the pool must differ from the tuples under a perfect score.
POOL_SIGNAL = 2.0
# Of larger pools so many rows are learned from: as many as tuples have members, and at least the first number; where
# tuples are of one class, up to the second.
FEWEST_POOL_ROWS, MOST_POOL_ROWS = 1000, 20_000


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
    pool_prior: float | None = None
    """Class prior of the pool, where it is known from elsewhere than these counts: fits may use the pool then."""

    def objective(self, spread: float = 0.0) -> CountObjective:
        return CountObjective(self.observed, spread, self.weights)

    @property
    def rate(self) -> float:
        return usable_rate(self.observed.rate, self.observed.instances)

    @property
    def weighted_rate(self) -> float:
        """The rate with tuples as often as their weights say: what fits to weighted tuples give log-odds at."""
        if self.weights is None or self.one_class:
            return self.rate
        rate = float(self.weights @ self.observed.likely) / float(self.weights @ self.observed.sizes)
        return usable_rate(rate, self.observed.instances)

    @cached_property
    def one_class(self) -> bool:
        """All members are known to be positive, or none: tuples alone then say nothing."""
        return self.observed.exact and self.observed.rate in (0.0, 1.0)

    @cached_property
    def pool_rows(self) -> Ints:
        """Positions of the pool rows that fits may learn from, none where the pool tells nothing.

        Its prior must be known, and so far from the rate of the tuples that chance is smaller. Large pools
        are thinned out, so that fits take about as long as those to the tuples.
        """
        pool = 0 if self.unlabeled is None else len(self.unlabeled)
        if self.pool_prior is None or pool == 0:
            return np.empty(0, dtype=np.int64)
        members = self.observed.instances
        used = min(pool, MOST_POOL_ROWS if self.one_class else max(members, FEWEST_POOL_ROWS))
        if signal_to_noise([members, used], [self.observed.rate, self.pool_prior]) < POOL_SIGNAL:
            return np.empty(0, dtype=np.int64)
        return np.arange(used) * pool // used

    def pooled_objective(self, rows: int) -> PooledObjective:
        """Of the scores of all members and of so many pool rows."""
        assert self.pool_prior is not None
        rate = self.observed.rate if self.one_class else self.weighted_rate
        return PooledObjective(self.objective(), rows, self.pool_prior, rate)

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
