"""The supervised upper bound: the same network on the same instances, with their true labels."""

from __future__ import annotations

from math import log
from typing import TYPE_CHECKING, Any

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.method import Targets, methods
from ntmp_cli.learning.methods.count import CountPlain
from ntmp_cli.tuple_source import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ntmp_cli.learning.batches import Batch


@methods.register("supervised")
class Supervised(CountPlain):
    """Oracle on the true labels of tuples and U: the supervised upper bound.

    Its epoch is chosen as for `count`, by the likelihood of held-out counts, so that they differ in the labels only.
    """

    is_oracle = True
    counts_needed = "any"

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        # Labels are learned at the rate of all tuples and U; scores are at the deployment prior.
        total = task.instances + task.unlabeled
        rate = (task.instances * task.rate + task.unlabeled * self.prior) / total
        self.label_shift = log(self.prior / (1 - self.prior)) - log(rate / (1 - rate))

    def targets(self) -> Targets:
        return "labels"

    def prepare(self, batch: Batch, progress: float) -> Any:
        return batch.targets

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        from torch.nn import functional as F

        loss = F.binary_cross_entropy_with_logits(scores - self.label_shift, prepared.to(scores.device))
        return loss, loss.detach()[None]

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        return {"cross_entropy": float(telemetry.mean())}
