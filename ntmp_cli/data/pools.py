"""Splitting labelled training instances between tuples and the unlabeled pool."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import UsageError

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class PoolSplit:
    """Disjoint sets of training instances: those that tuples are sampled from, and those of the unlabeled pool."""

    tuples: Indices
    tuples_heldout: Indices
    unlabeled: Indices
    unlabeled_heldout: Indices


def split_pool(size: int, tuple_share: float, heldout_share: float, rng: np.random.Generator) -> PoolSplit:
    """A random split of range(size) between tuples and the unlabeled pool, each with a held-out share."""
    order = rng.permutation(size)
    tuples, unlabeled = np.split(order, [round(size * tuple_share)])

    def hold_out(indices: Indices) -> tuple[Indices, Indices]:
        keep = len(indices) - round(len(indices) * heldout_share)
        return indices[:keep], indices[keep:]

    return PoolSplit(*hold_out(tuples), *hold_out(unlabeled))


def choose_unlabeled(
    candidates: Indices,
    positive: NDArray[np.bool_],
    prior: float | None,
    size: int | None,
    rng: np.random.Generator,
) -> Indices:
    """Indices of the unlabeled pool whose share of positives is `prior`, none of them twice.

    Without `prior` the candidates keep their share. Without `size` the pool is as large as the prior allows.
    """
    if len(candidates) == 0:
        raise UsageError(
            "no instances are left for the unlabeled pool",
            hint="Lower --tuple-share or --heldout-share, or use more data.",
        )
    pos, neg = candidates[positive[candidates]], candidates[~positive[candidates]]
    if prior is None:
        if size is not None and size > len(candidates):
            raise UsageError(
                f"an unlabeled pool of {size} was requested, but only {len(candidates)} instances are available for it"
            )
        return rng.permutation(candidates)[:size]
    largest = int(min(len(pos) / prior, len(neg) / (1 - prior)) + 1e-9)
    total = largest if size is None else size
    n_pos = round(prior * total)
    n_neg = total - n_pos
    if n_pos > len(pos) or n_neg > len(neg) or min(n_pos, n_neg) < 1:
        raise UsageError(
            f"prior {prior} cannot be reached: {total} unlabeled instances need {n_pos} positives and {n_neg} "
            f"negatives, but only {len(pos)} and {len(neg)} are available",
            hint=f"At this prior the pool can hold at most {largest}; lower --unlabeled-size, move --prior "
            "towards the middle, or lower --tuple-share.",
        )
    chosen = np.concatenate([rng.choice(pos, n_pos, replace=False), rng.choice(neg, n_neg, replace=False)])
    return rng.permutation(chosen)
