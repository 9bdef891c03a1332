"""Results of a training of any kind: records of its epochs, and a scorer of instances. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.tuple_source import HeldoutData

if TYPE_CHECKING:
    from torch import Tensor

    from ntmp_cli.learning.method import HeldoutRisk, HeldoutScores, Method

Floats = NDArray[np.float64]
# A network with weights, a learner for tables, or a scikit-learn classifier.
Learner = Literal["network", "table", "estimator"]


class InstanceScorer(Protocol):
    """Raw instances in, log-odds of the positive class out."""

    def score(self, raw: NDArray[Any]) -> Floats: ...

    @property
    def size(self) -> int:
        """Number of parameters."""

    def files(self) -> dict[str, bytes]:
        """What the scorer is restored from, by file name."""


@dataclass(frozen=True)
class EpochRecord:
    """One epoch. `fields` go into the history; timings are apart, because they differ between equal runs."""

    epoch: int
    fields: Mapping[str, Any]
    test_scores: Floats | None
    seconds: float
    instances: int


class Watcher(Protocol):
    """Receives the progress of a training, for display."""

    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None: ...

    def epoch(self, record: EpochRecord) -> None: ...


# Displays a training of a given number of epochs.
Watching = Callable[[int], AbstractContextManager[Watcher | None]]


@dataclass
class TrainingResult:
    """Records of a training, and the weights of the selected epoch if a network was trained."""

    records: list[EpochRecord] = field(default_factory=list)
    selected_epoch: int = 0
    best: HeldoutRisk | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)


class MovableScorer(InstanceScorer, Protocol):
    """A scorer whose scores can be moved to another prior."""

    def moved(self, shift: float) -> MovableScorer: ...


class FoldFits(NamedTuple):
    """The fits that scored the tuples which they did not see."""

    scorers: tuple[MovableScorer, ...]
    """One per fold; empty if they are not kept, or if there is only the classifier itself."""
    of_tuple: NDArray[np.int64]
    """Which of them scored each scored tuple."""


class PoolPrior(NamedTuple):
    """The class prior of a training without a given one: estimated on the pool, or the rate of the tuples."""

    value: float
    source: Literal["estimated", "tuples"]
    ci: tuple[float, float] | None = None


@dataclass(frozen=True)
class Trained:
    """A scorer and how it was trained."""

    method: type[Method]
    model: str
    learner: Learner
    scorer: InstanceScorer
    outcome: TrainingResult
    batch_size: int | None = None
    heldout: HeldoutScores | None = None
    """Cross-fitted scores of the tuples; None if the scores of held-out tuples are used."""
    folds: FoldFits | None = None
    """The fits of these scores."""
    pool_scores: NDArray[np.float64] | None = None
    """Scores of the pool by the fits of the folds, each of which scored a share of it."""
    prior: PoolPrior | None = None
    """The prior, if none was given."""
    orientation_z: float | None = None
    """Evidence for the orientation in standard errors; None if the objective has no flipped solution."""
    spread: float | None = None
    """Standard deviation of tuples' random intercepts; None where it is not estimated."""


def score_heldout(scorer: InstanceScorer, data: HeldoutData) -> HeldoutScores:
    from ntmp_cli.learning.method import HeldoutScores

    return HeldoutScores(scorer.score(data.tuples), data.sizes, data.counts, scorer.score(data.unlabeled))
