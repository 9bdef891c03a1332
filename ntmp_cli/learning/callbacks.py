"""Two hooks of the training loop (forward, loss, backward, step), as in skorch or Lightning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ntmp_cli.learning.averaging import WeightAverage
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.models import Scorer
from ntmp_cli.learning.processes import OneProcess


@dataclass
class Networks:
    """The network, the average of its weights, and the optimiser."""

    model: Scorer
    average: WeightAverage
    optimizer: torch.optim.Optimizer


@dataclass
class Step:
    """One step before its forward pass. `batch` is the composition over all ranks, `x` this rank's instances."""

    epoch: int
    number: int
    progress: float
    batch: Batch
    tuple_instances: int
    x: Tensor
    prepared: Any
    networks: Networks
    processes: OneProcess


@dataclass
class EpochEnd:
    """An epoch after its last step, before its held-out risk is computed. `fields` go into the history."""

    networks: Networks
    processes: OneProcess
    fields: dict[str, Any]
    score_heldout: Callable[[], HeldoutScores | None] = field(repr=False)
    score_orientation: Callable[[], HeldoutScores | None] = field(repr=False)

    @cached_property
    def heldout(self) -> HeldoutScores | None:
        """Held-out data as the averaged network scores them now; None on other ranks than the first."""
        return self.score_heldout()

    def network_changed(self) -> None:
        """Drop the cached held-out scores, because the network has changed."""
        self.__dict__.pop("heldout", None)


class Callback:
    """Base of the objects of a method that the loop calls."""

    def on_step(self, step: Step) -> None:
        """Before the forward pass: may change what the network sees and what the loss gets."""

    def on_epoch(self, end: EpochEnd) -> None:
        """After the last step of an epoch: may change the network."""
