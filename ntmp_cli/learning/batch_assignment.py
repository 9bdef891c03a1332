"""Which tuples and which unlabeled instances a batch gets under the margin policy `resample`.

A random batch may have a mean rate near π although the data do not, and a share of positives in U that is not π. The
assignment keeps both close to their values in the data, and still visits everything once per epoch:

- tuples are assigned stratum by stratum, so that every batch has the composition of all data;
- where the mean rate ᾱ itself is inside the margin and one pooled rate is used, every batch takes its tuples from
  one side of π: the paper's strata S₁ and S₂ with a system each (Theorem on heterogeneous tuples, ii);
- unlabeled instances are assigned in the order of a probability, so that every batch has the same mixture of probable
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
class BatchAssignment:
    """`share_below`: share of batches whose tuples have rates below π; None if all batches have the same mixture."""

    prior: float
    share_below: float | None = None

    def sides(self, steps: int, rng: np.random.Generator) -> NDArray[np.bool_] | None:
        """For every batch whether its tuples come from below π; None where they come from both sides."""
        if self.share_below is None or steps < 2:
            return None
        low = min(max(round(steps * self.share_below), 1), steps - 1)
        return rng.permutation(np.arange(steps) < low)


def share_below(strata: Sequence[tuple[int, float, int]], prior: float) -> float | None:
    """Of tuples (n, m, number) with another rate than π, the share below it; None if they are all on one side."""
    below = sum(k for n, m, k in strata if m / n < prior)
    above = sum(k for n, m, k in strata if m / n > prior)
    return below / (below + above) if below and above else None


def assign_tuples(
    sizes: Integers,
    counts: Integers,
    steps: int,
    prior: float,
    sides: NDArray[np.bool_] | None,
    rng: np.random.Generator,
) -> tuple[Integers, Integers]:
    """All tuples in an order, and the bounds of its `steps` batches."""
    strata = np.unique(np.stack([sizes, counts]), axis=1, return_inverse=True)[1].reshape(-1)
    order = evenly_spaced_order(strata, rng)
    if sides is None:
        return order, np.linspace(0, len(order), steps + 1).astype(np.int64)
    tuple_side = np.sign(counts[order] / sizes[order] - prior)
    slices: list[list[Integers]] = [[] for _ in range(steps)]
    for side, on_side in ((-1, sides), (1, ~sides), (0, np.full(steps, True))):
        side_steps = np.flatnonzero(on_side)
        for step, tuples in zip(side_steps, np.array_split(order[tuple_side == side], len(side_steps)), strict=True):
            slices[step].append(tuples)
    batches = [np.concatenate(step_slices) for step_slices in slices]
    return np.concatenate(batches), np.cumsum([0, *map(len, batches)])


def assign_unlabeled(probabilities: NDArray[np.floating], steps: int, rng: np.random.Generator) -> Integers:
    """An order of all unlabeled instances in which slices of equal size have nearly the same mean probability."""
    ranked = rng.permutation(len(probabilities))
    ranked = ranked[np.argsort(probabilities[ranked], kind="stable")]
    # Of `steps` neighbours in rank every batch gets one.
    block = np.empty(len(ranked), dtype=np.int64)
    block[ranked] = np.arange(len(ranked)) // steps
    return evenly_spaced_order(block, rng)


def evenly_spaced_order(kinds: Integers, rng: np.random.Generator) -> Integers:
    """A random order in which every kind is spread evenly, so that any slice has a proportional share of it."""
    shuffled = rng.permutation(len(kinds))
    grouped = shuffled[np.argsort(kinds[shuffled], kind="stable")]
    members = np.bincount(kinds)
    rank = np.arange(len(kinds)) - np.repeat(np.cumsum(members) - members, members)
    place = (rank + np.repeat(rng.random(len(members)), members)) / np.repeat(members, members)
    order: Integers = grouped[np.argsort(place, kind="stable")]
    return order
