"""Cutting a labelled training split into disjoint parts, and choosing the unlabeled pool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import UsageError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Parts:
    """Disjoint index sets over the training split: who may appear where."""

    tuples: Indices
    tuples_heldout: Indices
    unlabeled: Indices
    unlabeled_heldout: Indices


def cut(size: int, tuple_share: float, heldout_share: float, rng: np.random.Generator) -> Parts:
    """A random cut of range(size): tuple part and unlabeled part, each with a held-out share."""
    order = rng.permutation(size)
    tuples, unlabeled = np.split(order, [round(size * tuple_share)])

    def set_aside(part: Indices) -> tuple[Indices, Indices]:
        keep = len(part) - round(len(part) * heldout_share)
        return part[:keep], part[keep:]

    return Parts(*set_aside(tuples), *set_aside(unlabeled))


def choose_unlabeled(
    part: Indices,
    positive: NDArray[np.bool_],
    prior: float | None,
    size: int | None,
    rng: np.random.Generator,
) -> Indices:
    """Indices of the unlabeled pool with the asked share of positives, none of them twice.

    Without `prior` the part keeps its own share. Without `size` the pool is as large as the prior allows.
    """
    if len(part) == 0:
        raise UsageError(
            "no instances are left for the unlabeled pool",
            hint="Lower --tuple-share or --heldout-share, or use more data.",
        )
    pos, neg = part[positive[part]], part[~positive[part]]
    if prior is None:
        if size is not None and size > len(part):
            raise UsageError(f"an unlabeled pool of {size} was asked for, but its part has only {len(part)} instances")
        return rng.permutation(part)[:size]
    largest = int(min(len(pos) / prior, len(neg) / (1 - prior)) + 1e-9)
    total = largest if size is None else size
    n_pos = round(prior * total)
    n_neg = total - n_pos
    if n_pos > len(pos) or n_neg > len(neg) or min(n_pos, n_neg) < 1:
        raise UsageError(
            f"prior {prior} cannot be reached: {total} unlabeled instances need {n_pos} positives and {n_neg} "
            f"negatives, the part they are drawn from has {len(pos)} and {len(neg)}",
            hint=f"At this prior the pool can hold at most {largest}; lower --unlabeled-size, move --prior "
            "towards the middle, or lower --tuple-share.",
        )
    chosen = np.concatenate([rng.choice(pos, n_pos, replace=False), rng.choice(neg, n_neg, replace=False)])
    return rng.permutation(chosen)
