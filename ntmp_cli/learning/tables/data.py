"""The input of a learner for tables: concatenated members of all tuples, their observations, an optional pool."""

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
# Fits use at most as many pool rows as the tuples have members, or the first number if that is more; if all tuples are
# of one class, at most the second number.
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
    """Tuples with raw features; optionally a pool and its prior."""

    x: Floats
    observed: CountObservations
    unlabeled: Floats | None = None
    prior: float | None = None
    blocks: Ints | None = None
    """(T,) block of every tuple; a block is never divided between folds."""
    weights: Floats | None = None
    """(T,) weights of the tuples."""
    trusts_prior: bool = False
    """Whether the prior determines the orientation even if the counts contradict it."""
    pool_prior: float | None = None
    """Class prior of the pool, if it was not estimated from these counts; fits may then use the pool."""

    def objective(self, spread: float = 0.0) -> CountObjective:
        return CountObjective(self.observed, spread, self.weights)

    @property
    def rate(self) -> float:
        return usable_rate(self.observed.rate, self.observed.instances)

    @property
    def weighted_rate(self) -> float:
        """The weighted rate of the tuples, at which fits to weighted tuples give log-odds."""
        if self.weights is None or self.one_class:
            return self.rate
        rate = float(self.weights @ self.observed.likely) / float(self.weights @ self.observed.sizes)
        return usable_rate(rate, self.observed.instances)

    @cached_property
    def one_class(self) -> bool:
        """Whether all members are known to be positive, or all negative: the tuples alone are then uninformative."""
        return self.observed.exact and self.observed.rate in (0.0, 1.0)

    @cached_property
    def pool_rows(self) -> Ints:
        """Positions of the pool rows that fits may use; empty if the pool is uninformative.

        Its prior must be known, and differ from the rate of the tuples by more than sampling error. Large pools
        are subsampled, so that fits take about as long as those to the tuples alone.
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
        """The objective of the scores of all members and of `rows` pool rows."""
        assert self.pool_prior is not None
        rate = self.observed.rate if self.one_class else self.weighted_rate
        return PooledObjective(self.objective(), rows, self.pool_prior, rate)

    @cached_property
    def one_rate(self) -> bool:
        """Whether all tuples may have one rate: the gradient at a constant is then 0, soft labels are uninformative."""
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
