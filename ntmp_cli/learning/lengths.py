"""Default number of epochs and default batch size of a network. No torch."""

from __future__ import annotations

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.model_choice import TABLE_METHOD
from ntmp_cli.tuple_source import InstanceFormat, Task

STEPS_ON_SMALL_DATA = 16
SMALLEST_BATCH = 32
EPOCHS = 30
# On tables a network overfits after a few hundred steps, and the held-out tuples are too few to detect it.
STEPS_ON_TABLES, FEWEST_EPOCHS = 300, 5
# Elsewhere small data in one or two batches need more epochs than usual to have been learned at all.
FEWEST_STEPS = 300


def default_batch(task: Task, usual: int, smallest: int, epochs: int | None) -> int:
    """Instances per step: the default, or fewer if an epoch of small data would have too few steps.

    If few epochs were requested, large batches are reduced further until the training has enough steps in total.
    """
    total = task.instances + task.unlabeled
    if epochs is not None:
        smallest = max(SMALLEST_BATCH, min(smallest, -(-total // -(-FEWEST_STEPS // epochs))))
    return min(usual, max(smallest, -(-total // STEPS_ON_SMALL_DATA)))


def with_length(config: TrainConfig, instance: InstanceFormat, task: Task) -> TrainConfig:
    """The same settings with a number of epochs, of networks on such data."""
    if config.epochs is not None:
        return config
    return config.model_copy(update={"epochs": _epochs(config, instance, task)})


def _epochs(config: TrainConfig, instance: InstanceFormat, task: Task) -> int:
    kind = methods.get(config.method)
    if not issubclass(kind, GradientMethod):
        return EPOCHS
    batch = config.batch_size or default_batch(task, kind.batch, kind.smallest_batch, None)
    # No step is without a tuple.
    steps = min(-(-(task.instances + task.unlabeled) // batch), sum(tuples for _, _, tuples in task.strata))
    if config.method == TABLE_METHOD and len(instance.shape) == 1 and config.encoder is None:
        return min(EPOCHS, max(FEWEST_EPOCHS, -(-STEPS_ON_TABLES // steps)))
    return max(EPOCHS, -(-FEWEST_STEPS // steps))
