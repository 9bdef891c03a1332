"""Training data in several parts that are read side by side, one per process or all in one.

A step's batch is the union of one slice of every part, so that what is learned depends on the number of parts, not on
how many processes share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ntmp_cli.learning.batches import Batch, TrainingData


@dataclass(frozen=True)
class PartedData:
    """All parts, and which of them this process reads (by default all)."""

    parts: Sequence[TrainingData]
    mine: Sequence[int] = ()

    @property
    def batch_size(self) -> int:
        return self.parts[0].batch_size

    def epoch(self, epoch: int, skip: int = 0) -> tuple[int, Iterator[Batch]]:
        """Number of steps of an epoch, and this process's share of its batches from step `skip` on."""
        if len(self.parts) == 1:
            return self.parts[0].epoch(epoch, skip)
        chunks = [min(len(part.tuple_chunks), len(part.unlabeled_chunks)) for part in self.parts]
        windows = min(max(part.windows for part in self.parts), *chunks)
        groups = [part.groups(epoch, windows) for part in self.parts]
        steps = []
        for window in zip(*groups, strict=True):
            tuples, unlabeled = [group.tuples for group in window], [group.unlabeled for group in window]
            instances = sum(tuples) * self.parts[0].mean_size + sum(unlabeled)
            steps.append(max(1, min(int(np.ceil(instances / self.batch_size)), *tuples, *unlabeled)))
        mine = self.mine or range(len(self.parts))
        visits = [self.parts[i].visit(groups[i], steps, epoch, skip) for i in mine]
        return sum(steps), (joined(batches) for batches in zip(*visits, strict=True))


def joined(batches: Sequence[Batch]) -> Batch:
    """One batch: the tuples of all, then the unlabeled instances of all."""
    if len(batches) == 1:
        return batches[0]
    cuts = [batch.tuple_instances for batch in batches]
    given = [batch.targets for batch in batches if batch.targets is not None]
    return Batch(
        in_order([batch.x for batch in batches], cuts),
        np.concatenate([batch.sizes for batch in batches]),
        np.concatenate([batch.counts for batch in batches]),
        sum(cuts),
        sum(batch.unlabeled for batch in batches),
        in_order(given, cuts) if len(given) == len(batches) else None,
    )


def in_order(values: Sequence[torch.Tensor], cuts: Sequence[int]) -> torch.Tensor:
    """Values of several batches as values of their union: what belongs to tuples first."""
    return torch.cat(
        [v[:cut] for v, cut in zip(values, cuts, strict=True)] + [v[cut:] for v, cut in zip(values, cuts, strict=True)]
    )
