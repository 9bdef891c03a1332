"""Base classes of training methods: a name for the tables, settings, and a training from tuples and U to a scorer.

Most methods minimise an objective on batches of scores by gradients (`GradientMethod`, run by `loop`). Others have a
closed form and are linear in their features (`FittedMethod`). This module and the methods import torch and NumPy only
when they run, so that the command line can read their settings without them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES, Facts, Registry
from ntmp_cli.settings import MethodSettings
from ntmp_cli.tuple_source import Counts, CountsNeeded, Task, TupleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ntmp_cli.learning.batch_assignment import BatchAssignment
    from ntmp_cli.learning.batches import Batch
    from ntmp_cli.learning.callbacks import Callback

# Information on single instances that a method uses: none, probabilities by the closed form or by another run, weights
# that move U to the prior, or (an oracle) the true labels.
Targets = Literal["none", "discriminant", "teacher", "weights", "labels"]


@dataclass(frozen=True)
class HeldoutScores:
    """Scores of held-out tuples and unlabeled instances, with what is recorded of the tuples."""

    tuple_scores: NDArray[np.float64]
    sizes: NDArray[np.int64]
    counts: Counts
    unlabeled_scores: NDArray[np.float64]


class HeldoutRisk(NamedTuple):
    """A label-free objective on held-out data, lower is better; `per_tuple` where it is a mean over tuples."""

    value: float
    per_tuple: NDArray[np.float64] | None = None

    def clearly_above(self, other: HeldoutRisk) -> bool:
        """Whether it is above another, by more than a paired standard error if there are values per tuple."""
        if self.per_tuple is None or other.per_tuple is None or len(self.per_tuple) < 2:
            return self.value > other.value
        difference = self.per_tuple - other.per_tuple
        return bool(difference.mean() > difference.std(ddof=1) / sqrt(len(difference)))


class Method(ABC):
    """Subclasses are registered by name and declare a model of their settings."""

    settings: ClassVar[type[MethodSettings]] = MethodSettings
    """The settings of the method, beside those of every training."""
    implied_by: ClassVar[frozenset[str]] = frozenset()
    """Settings that select this method if none is named."""
    is_oracle: ClassVar[bool] = False
    """Whether it uses true labels: then it is a supervised upper bound and is not compared with other methods."""
    encoder: ClassVar[str | None] = None
    """The frozen encoder that the method needs, or None."""
    expects_encoder: ClassVar[bool] = False
    """Whether it is meant for the features of some frozen encoder, but learns without one."""
    normalises: ClassVar[bool] = True
    """Whether inputs may be standardised; a method that uses cosines needs unchanged features."""
    counts_needed: ClassVar[CountsNeeded] = "rates"
    """The kind of count that the method needs: any, a rate, or an exact count."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The command line and Python take all settings of a training at one level.
        if shared := sorted(cls.settings.model_fields.keys() & TrainConfig.model_fields.keys()):
            raise TypeError(f"{cls.settings.__name__}: every training has the settings {', '.join(shared)} already")

    def __init__(self, config: TrainConfig, task: Task) -> None:
        self.config = config
        self.task = task
        self.prior = config.known_prior()

    @classmethod
    def label(cls, config: TrainConfig) -> str:
        """Name of this method in tables, e.g. `ure+abs`."""
        return config.method

    @abstractmethod
    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """The freshly initialised network, from the shape of one instance to one score."""

    @abstractmethod
    def model_name(self) -> str:
        """What the network is called in a run's summary."""

    @classmethod
    def bag_scores(cls, scorer: Any, raw: NDArray[np.generic], sizes: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """Scores of whole bags whose instances lie in a row; None of methods that score instances alone."""
        return None

    def heldout_risk(self, heldout: HeldoutScores) -> HeldoutRisk | None:
        """The criterion for comparing epochs; None if the method has none."""
        return None


class GradientMethod(Method):
    """An objective on batches of scores."""

    batch: ClassVar[int] = 1024
    """Instances per step unless the batch size is set; fewer on small data."""
    smallest_batch: ClassVar[int] = 32
    """How few instances per step small data may have."""

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        from ntmp_cli.learning.models import build_network

        return build_network(self.model_name(), shape)

    def model_name(self) -> str:
        from ntmp_cli.learning.model_choice import network_name

        return network_name(self.config.model)

    def targets(self) -> Targets:
        """The information on single instances that the method needs."""
        return "none"

    def study(self, source: TupleSource) -> None:
        """Inspect the training data before the first step, for methods that choose something by them."""

    def batch_assignment(self) -> BatchAssignment | None:
        """How tuples and U are assigned to batches; None: at random."""
        return None

    def callbacks(self) -> Sequence[Callback]:
        """What the loop calls at every step and after every epoch."""
        return ()

    @property
    def sets_intercept(self) -> bool:
        """Whether scores are moved after training, by `intercept`."""
        return False

    def intercept(self, training: HeldoutScores) -> float:
        """What is added to all scores after training, from scores of training data."""
        return 0.0

    @abstractmethod
    def prepare(self, batch: Batch, progress: float) -> Any | None:
        """What the loss needs beside scores, at this fraction of training; None skips the batch."""

    @abstractmethod
    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        """The objective, and a detached vector of telemetry for `summarise`."""

    @abstractmethod
    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        """An epoch's telemetry, one row per step, as fields of its history record."""


class HeldoutInputs(NamedTuple):
    """Held-out tuples and unlabeled instances as network inputs, flattened."""

    tuples: NDArray[np.float32]
    sizes: NDArray[np.int64]
    counts: Counts
    unlabeled: NDArray[np.float32]


@dataclass(frozen=True)
class FitData:
    """Training instances as network inputs, flattened (N, k), in blocks that are read one by one."""

    tuples: Callable[[], Iterator[tuple[NDArray[np.float32], NDArray[np.int64], Counts]]]
    unlabeled: Callable[[], Iterator[NDArray[np.float32]]]
    heldout: Callable[[], HeldoutInputs | None] = lambda: None

    def instances(self) -> Iterator[NDArray[np.float32]]:
        """Instances of tuples, then of U."""
        for x, _, _ in self.tuples():
            yield x
        yield from self.unlabeled()


@dataclass(frozen=True)
class LinearFit:
    """score = x·weight + bias, and facts about the fit for the history."""

    weight: NDArray[np.float64]
    bias: float
    fields: dict[str, Any] = field(default_factory=dict)


class FittedMethod(Method):
    """A method with a closed form, without epochs; its scorer is linear in its features."""

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        # Here, so that all processes stop before they connect to each other.
        if (config.ranks or 1) > 1:
            raise UsageError(f"method {config.method} has no gradient steps: it runs in one process")

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        from ntmp_cli.learning.models import build_network

        return build_network("linear", shape)

    def model_name(self) -> str:
        return "linear"

    @abstractmethod
    def fit(self, data: FitData) -> LinearFit:
        """The scorer. May read the data more than once."""


methods: Registry[type[Method], Facts] = REGISTRIES["methods"]
"""One file per method, or per family of methods; importing the package's modules fills the registry."""
