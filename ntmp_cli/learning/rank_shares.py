"""Training data in one share per rank: all shares are read by one process, or each by its own.

A step's batch is the union of one slice of every share, so that what is learned depends on the number of ranks, not on
how many processes read their shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ntmp_cli.learning.batches import Batch, TrainingData


@dataclass(frozen=True)
class RankShares:
    """The shares of all ranks, and the ranks whose shares this process reads (by default all)."""

    shares: Sequence[TrainingData]
    local_ranks: Sequence[int] = ()

    @property
    def batch_size(self) -> int:
        return self.shares[0].batch_size

    def epoch(self, epoch: int, skip: int = 0) -> tuple[int, Iterator[Batch]]:
        """Number of steps of an epoch, and this process's slices of its batches from step `skip` on."""
        if len(self.shares) == 1:
            return self.shares[0].epoch(epoch, skip)
        chunks = [min(len(share.tuple_chunks), len(share.unlabeled_chunks)) for share in self.shares]
        windows = min(max(share.windows for share in self.shares), *chunks)
        groups = [share.groups(epoch, windows) for share in self.shares]
        steps = []
        for window in zip(*groups, strict=True):
            tuples, unlabeled = [group.tuples for group in window], [group.unlabeled for group in window]
            instances = sum(tuples) * self.shares[0].mean_size + sum(unlabeled)
            steps.append(max(1, min(int(np.ceil(instances / self.batch_size)), *tuples, *unlabeled)))
        ranks = self.local_ranks or range(len(self.shares))
        visits = [self.shares[rank].visit(groups[rank], steps, epoch, skip) for rank in ranks]
        return sum(steps), (union_of_batches(batches) for batches in zip(*visits, strict=True))


def union_of_batches(batches: Sequence[Batch]) -> Batch:
    """One batch: the tuples of all, then the unlabeled instances of all."""
    if len(batches) == 1:
        return batches[0]
    tuple_instances = [batch.tuple_instances for batch in batches]
    targets = [batch.targets for batch in batches if batch.targets is not None]
    return Batch(
        tuples_first([batch.x for batch in batches], tuple_instances),
        np.concatenate([batch.sizes for batch in batches]),
        np.concatenate([batch.counts for batch in batches]),
        sum(tuple_instances),
        sum(batch.unlabeled for batch in batches),
        tuples_first(targets, tuple_instances) if len(targets) == len(batches) else None,
    )


def tuples_first(values: Sequence[torch.Tensor], tuple_instances: Sequence[int]) -> torch.Tensor:
    """Values of several batches as values of their union: those of tuple instances first."""
    pairs = list(zip(values, tuple_instances, strict=True))
    return torch.cat([v[:inside] for v, inside in pairs] + [v[inside:] for v, inside in pairs])
