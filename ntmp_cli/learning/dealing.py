"""Which tuples and which unlabeled instances meet in a batch (`--margin-policy resample`, SPEC section 3).

Left to chance, a batch may have a mean rate near π although the data have not, and a share of positives in U that is
not π. Dealing keeps both near where they should be, without visiting anything more or less than once an epoch:

- tuples are dealt stratum by stratum, so that every batch has the composition of the whole;
- where the mean rate ᾱ itself is inside the margin and one pooled rate is asked for, every batch takes its tuples from
  one side of π: the paper's strata S₁ and S₂ with a system each (Theorem on heterogeneous tuples, ii);
- unlabeled instances are dealt in the order of a probability, so that every batch has the same mixture of probable
  positives and negatives.

Every instance is as likely to be in one batch as in another of its side, so that the risk stays unbiased.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Dealing:
    """`below` is the share of batches whose tuples have rates below π; None where every batch is like the whole."""

    prior: float
    below: float | None = None

    def sides(self, steps: int, rng: np.random.Generator) -> NDArray[np.bool_] | None:
        """For every batch whether its tuples come from below π; None where they come from both sides."""
        if self.below is None or steps < 2:
            return None
        low = min(max(round(steps * self.below), 1), steps - 1)
        return rng.permutation(np.arange(steps) < low)


def share_below(strata: Sequence[tuple[int, int, int]], prior: float) -> float | None:
    """Of tuples (n, m, number) with another rate than π, the share below it; None if they are all on one side."""
    below = sum(k for n, m, k in strata if m / n < prior)
    above = sum(k for n, m, k in strata if m / n > prior)
    return below / (below + above) if below and above else None


def deal_tuples(
    sizes: Integers,
    counts: Integers,
    steps: int,
    prior: float,
    sides: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    """All tuples in an order, and the cuts of its `steps` batches."""
    kinds = np.unique(np.stack([sizes, counts]), axis=1, return_inverse=True)[1].reshape(-1)
    order = even_order(kinds, rng)
    if sides is None:
        return order, np.linspace(0, len(order), steps + 1).astype(np.int64)
    away = np.sign(counts[order] / sizes[order] - prior)
    batches: list[list[Integers]] = [[] for _ in range(steps)]
    for side, takers in ((-1, sides), (1, ~sides), (0, np.full(steps, True))):
        wanted = np.flatnonzero(takers)
        for step, some in zip(wanted, np.array_split(order[away == side], len(wanted)), strict=True):
            batches[step].append(some)
    joined = [np.concatenate(some) for some in batches]
    return np.concatenate(joined), np.cumsum([0, *map(len, joined)])


def deal_unlabeled(probabilities: NDArray[np.floating], steps: int, rng: np.random.Generator) -> Integers:
    """All unlabeled instances in an order of which every even cut has nearly the same mean probability."""
    ranked = rng.permutation(len(probabilities))
    ranked = ranked[np.argsort(probabilities[ranked], kind="stable")]
    # Of `steps` neighbours in rank every batch gets one.
    block = np.empty(len(ranked), dtype=np.int64)
    block[ranked] = np.arange(len(ranked)) // steps
    return even_order(block, rng)


def even_order(kinds: Integers, rng: np.random.Generator) -> Integers:
    """A random order in which the members of every kind lie at even distances, so that any stretch has its share."""
    shuffled = rng.permutation(len(kinds))
    grouped = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    members = np.bincount(kinds)
    rank = np.arange(len(kinds)) - np.repeat(np.cumsum(members) - members, members)
    place = (rank + np.repeat(rng.random(len(members)), members)) / np.repeat(members, members)
    order: Integers = grouped[np.argsort(place, kind="stable")]
    return order
