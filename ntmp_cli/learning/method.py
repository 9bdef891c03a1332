"""What a method is: a name in the tables, and a way from tuples and U to a scorer of instances.

Most methods are gradients of an objective on batches of scores (`GradientMethod`, run by `loop`); some are computed at
once and are linear in their features (`FittedMethod`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.dealing import Dealing
from ntmp_cli.learning.models import build_network
from ntmp_cli.registry import Registry

# What a method is told of single instances: nothing, the probabilities of the closed form, weights that move U to the
# prior, or (the ceiling) the truth.
Targets = Literal["none", "discriminant", "weights", "truth"]


@dataclass(frozen=True)
class Task:
    """What is known about the data before training: strata (n, m, tuples) and the size of U."""

    strata: Sequence[tuple[int, int, int]]
    unlabeled: int

    @property
    def instances(self) -> int:
        return sum(n * k for n, _, k in self.strata)

    @property
    def rate(self) -> float:
        """Share of positives among all tuple instances, Σm/Σn."""
        return sum(m * k for _, m, k in self.strata) / self.instances

    @property
    def symmetric(self) -> bool:
        """n = 2m in every stratum: the counts say nothing of which class is which."""
        return all(n == 2 * m for n, m, _ in self.strata)


@dataclass(frozen=True)
class Heldout:
    """Scores of held-out tuples and unlabeled instances, with what is recorded of the tuples."""

    tuple_scores: NDArray[np.float64]
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    unlabeled_scores: NDArray[np.float64]


class HeldoutRisk(NamedTuple):
    """A label-free objective on held-out data, lower is better; with that of every tuple where it is their mean."""

    value: float
    each: NDArray[np.float64] | None = None

    def clearly_above(self, other: HeldoutRisk) -> bool:
        """Whether it is more than a standard error above another, tuple by tuple, or, without tuples, at all."""
        if self.each is None or other.each is None or len(self.each) < 2:
            return self.value > other.value
        more = self.each - other.each
        return bool(more.mean() > more.std(ddof=1) / np.sqrt(len(more)))


class Method(ABC):
    """Subclasses are registered by name and read their settings from TrainConfig."""

    ceiling = False
    """Whether it sees true labels: then it is the bar, never a competitor."""
    uses: frozenset[str] = frozenset()
    """Settings beyond those of training itself that mean something to it."""
    encoder: str | None = None
    """The frozen encoder that the method cannot do without, or None."""
    normalises = True
    """Whether inputs may be standardised; a cosine is one of features as they are."""

    def __init__(self, config: TrainConfig, task: Task) -> None:
        self.config = config
        self.task = task

    @staticmethod
    def label(config: TrainConfig) -> str:
        """How results of this method are named in tables, e.g. `ure+abs`."""
        return config.method

    @abstractmethod
    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """The freshly initialised network, from the shape of one instance to one score."""

    @abstractmethod
    def model_name(self) -> str:
        """What the network is called in a run's summary."""

    def heldout_risk(self, heldout: Heldout) -> HeldoutRisk | None:
        """What epochs are compared by; None where there is nothing."""
        return None


class GradientMethod(Method):
    """An objective on batches of scores."""

    batch = 1024
    """Instances per step unless asked otherwise; less on small data."""

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        return build_network(self.config.model, shape)

    def model_name(self) -> str:
        return self.config.model

    def targets(self) -> Targets:
        """What is to be known of single instances."""
        return "none"

    def dealing(self) -> Dealing | None:
        """How tuples and U are dealt to batches; None leaves it to chance."""
        return None

    @abstractmethod
    def prepare(self, batch: Batch, progress: float) -> Any | None:
        """Whatever the loss needs beside scores, at this share of training; None skips the batch."""

    @abstractmethod
    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        """The objective, and a detached vector of telemetry for `summarise`."""

    @abstractmethod
    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        """An epoch's telemetry, one row per step, as fields of its history record."""

    def wants_teacher(self, step: int, progress: float) -> bool:
        """Whether to learn from the averaged network's scores of U at this step of an epoch and share of training."""
        return False

    def taught(self, prepared: Any, teacher: Tensor) -> Any:
        """`prepared` with the teacher's scores of the batch; those of tuple instances are not computed and 0."""
        return prepared

    def hides(self, step: int, progress: float) -> float:
        """Share of the features of U to hide from the network at this step; its teacher sees all of them."""
        return 0.0

    def oriented_by_data(self) -> bool:
        """Whether nothing but scores of tuples and U can say which class is which."""
        return False

    def mirror_centre(self, heldout: Heldout) -> float | None:
        """Where to mirror the scores if the network has learned the classes exchanged; None if it has not."""
        return None


@dataclass(frozen=True)
class FitData:
    """Training instances as network inputs, flattened (N, k), in pieces that are read as they are asked for."""

    tuples: Callable[[], Iterator[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]]]
    unlabeled: Callable[[], Iterator[NDArray[np.float32]]]

    def instances(self) -> Iterator[NDArray[np.float32]]:
        """Instances of tuples, then of U."""
        for x, _, _ in self.tuples():
            yield x
        yield from self.unlabeled()


@dataclass(frozen=True)
class LinearFit:
    """score = x·weight + bias, and what there is to say about how it was found."""

    weight: NDArray[np.float64]
    bias: float
    fields: dict[str, Any] = field(default_factory=dict)


class FittedMethod(Method):
    """Computed at once, without epochs; the scorer is linear in its features."""

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        return build_network("linear", shape)

    def model_name(self) -> str:
        return "linear"

    @abstractmethod
    def fit(self, data: FitData) -> LinearFit:
        """The scorer. May read the data more than once."""


methods: Registry[type[Method]] = Registry("method", "ntmp_cli.learning.methods")
"""One file per method, or per family of methods; importing the package's modules fills the registry."""
