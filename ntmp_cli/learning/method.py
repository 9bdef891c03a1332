"""What a training method is: an objective on batches of scores, and a label-free held-out objective."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.batches import Batch
from ntmp_cli.registry import Registry


@dataclass(frozen=True)
class Task:
    """What is known about the data before training: strata (n, m, tuples) and the size of U."""

    strata: Sequence[tuple[int, int, int]]
    unlabeled: int


@dataclass(frozen=True)
class Heldout:
    """Scores of held-out tuples and unlabeled instances, with what is recorded of the tuples."""

    tuple_scores: NDArray[np.float32]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    unlabeled_scores: NDArray[np.float32]


class Method(ABC):
    """A gradient method. Subclasses are registered by name and read their settings from TrainConfig."""

    def __init__(self, config: TrainConfig, task: Task) -> None:
        self.config = config
        self.task = task

    @staticmethod
    @abstractmethod
    def label(config: TrainConfig) -> str:
        """How results of this method are named in tables, e.g. `ure+abs`."""

    @abstractmethod
    def prepare(self, batch: Batch, progress: float) -> Any | None:
        """Whatever the loss needs beside scores, at this share of training; None skips the batch."""

    @abstractmethod
    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        """The objective, and a detached vector of telemetry for `summarise`."""

    @abstractmethod
    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        """An epoch's telemetry, one row per step, as fields of its history record."""

    def mirror_centre(self, heldout: Heldout, progress: float) -> float | None:
        """Where to mirror the scores if the network has learned the classes exchanged; None if it has not."""
        return None

    @abstractmethod
    def heldout_risk(self, heldout: Heldout) -> float | None:
        """A label-free objective on held-out data, lower is better; None where there is none."""


methods: Registry[type[Method]] = Registry("method", "ntmp_cli.learning.methods")
