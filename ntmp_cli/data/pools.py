"""Splitting labelled training instances between tuples and the unlabeled pool."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import UsageError

Indices = NDArray[np.int64]
# The default size of an i.i.d. pool leaves so many standard deviations for its random number of positives.
SCATTER = 5.0


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


@dataclass(frozen=True)
class PoolRequest:
    """The prior and the size of an unlabeled pool, and whether its number of positives is fixed or random."""

    prior: float | None
    size: int | None
    is_iid: bool = False


def choose_unlabeled(
    candidates: Indices,
    positive: NDArray[np.bool_],
    request: PoolRequest,
    rng: np.random.Generator,
) -> Indices:
    """Indices of the unlabeled pool, without repetition; its share of positives is the prior.

    In an i.i.d. pool the number of positives is binomial. Without a prior, the pool is a random subset of the
    candidates. Without a size, it is as large as the prior allows.
    """
    prior, size = request.prior, request.size
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
    largest = (_largest_iid if request.is_iid else _largest_exact)(len(pos), len(neg), prior)
    total = largest if size is None else size
    n_pos = int(rng.binomial(total, prior)) if request.is_iid else round(prior * total)
    n_neg = total - n_pos
    fewest = 0 if request.is_iid and total else 1
    if n_pos > len(pos) or n_neg > len(neg) or min(n_pos, n_neg) < fewest:
        raise UsageError(
            f"prior {prior} cannot be reached: {total} unlabeled instances need {n_pos} positives and {n_neg} "
            f"negatives, but only {len(pos)} and {len(neg)} are available",
            hint=f"At this prior the pool can hold at most {largest}; lower --unlabeled-size, move --prior "
            "towards the middle, or lower --tuple-share.",
        )
    chosen = np.concatenate([rng.choice(pos, n_pos, replace=False), rng.choice(neg, n_neg, replace=False)])
    return rng.permutation(chosen)


def _largest_exact(positives: int, negatives: int, prior: float) -> int:
    return int(min(positives / prior, negatives / (1 - prior)) + 1e-9)


def _largest_iid(positives: int, negatives: int, prior: float) -> int:
    """The largest size at which the available instances of either class suffice, except in one of millions of cases.

    N p + 5 √(N p (1−p)) = available is a quadratic in √N.
    """

    def fits(available: int, share: float) -> int:
        scatter = SCATTER * math.sqrt(share * (1 - share))
        root = (math.sqrt(scatter**2 + 4 * share * available) - scatter) / (2 * share)
        return int(root**2)

    return min(fits(positives, prior), fits(negatives, 1 - prior))
