"""Attention-based multiple-instance learning on frozen features (Ilse et al. 2018; Eq. 81).

A bag's score is s = vᵀh with h = Σ a_i tanh(W z_i) and a = softmax(wᵀtanh(W z_i)) over the bag; an instance's score is
its margin vᵀtanh(W z_i), so that s = Σ a_i · margin_i. Training needs two kinds of bags: tuples, and bags of the
same lengths cut from U. A bag's binary label is whether its rate (m/n, or π) exceeds the mean rate over all instances.
Counts give no other label, and this one orients the margins. With one stratum and U it separates tuples from U.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.tuple_source import Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from ntmp_cli.learning.batches import Batch


# Instances per forward pass.
PIECE = 4096


@dataclass(frozen=True)
class _Prepared:
    owner: Tensor  # the bag of every instance that is in one; these are the first of the batch
    labels: Tensor


@methods.register("attention-mil")
class AttentionMil(GradientMethod):
    """Attention pooling on frozen features, bags classified by their rate (Ilse et al. 2018)."""

    expects_encoder = True

    def __init__(self, config: TrainConfig, task: Task) -> None:
        import numpy as np

        from ntmp_cli.learning.groups import effective_gap

        super().__init__(config, task)
        sizes = [n * k for n, _, k in task.strata] + [task.unlabeled]
        rates = [m / n for n, m, _ in task.strata] + [self.prior]
        if effective_gap(sizes, rates) < 1e-9:
            raise NotIdentifiableError(
                f"every bag has the rate π = {self.prior:.6g}: there are no two kinds of bags",
                hint="Mix in tuples of another rate or use another unlabeled pool.",
            )
        self.mean_rate = float(np.average(rates, weights=sizes))

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        from ntmp_cli.learning.models import AttentionHead

        return AttentionHead(prod(shape))

    def model_name(self) -> str:
        return "attention"

    def prepare(self, batch: Batch, progress: float) -> _Prepared:
        import numpy as np
        import torch

        from ntmp_cli.learning.bags import bags_of_pool

        inside, outside = batch.sizes, bags_of_pool(batch.sizes, batch.unlabeled)
        sizes = np.concatenate([inside, outside])
        high = np.concatenate([batch.counts / batch.sizes, np.full(len(outside), self.prior)]) > self.mean_rate
        owner = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
        return _Prepared(owner, torch.from_numpy(high.astype(np.float32)))

    def loss(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        import torch
        from torch.nn import functional as F

        owner, labels = prepared.owner.to(scores.device), prepared.labels.to(scores.device)
        bag = pool(scores[: len(owner), 0], scores[: len(owner), 1], owner, len(labels))
        loss = F.binary_cross_entropy_with_logits(bag, labels)
        right = ((bag > 0) == (labels > 0.5)).float().mean()
        return loss, torch.stack([loss, right]).detach()

    @classmethod
    def bag_scores(cls, scorer: Any, raw: NDArray[np.generic], sizes: NDArray[np.int64]) -> NDArray[np.float64] | None:
        """vᵀh of every bag."""
        import numpy as np
        import torch

        from ntmp_cli.learning.models import AttentionHead

        head, owner = scorer.network, torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
        assert isinstance(head, AttentionHead), "attention-mil trains an attention head"
        device = scorer.factor.device
        with torch.inference_mode():
            pieces = torch.split(torch.from_numpy(raw), PIECE)
            both = [head.margins_and_logits(scorer.inputs(piece.to(device))).cpu().double() for piece in pieces]
        margins, logits = torch.cat(both).T if both else torch.empty(2, 0, dtype=torch.float64)
        return pool(margins, logits, owner, len(sizes)).numpy()

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        loss, right = telemetry.mean(axis=0).tolist()
        return {"bag_loss": loss, "bag_accuracy": right}


def pool(margin: Tensor, logit: Tensor, owner: Tensor, bags: int) -> Tensor:
    """Σ a_i · margin_i of every bag, a the softmax of the logits inside the bag."""
    import torch

    top = logit.new_full((bags,), -torch.inf).scatter_reduce(0, owner, logit.detach(), "amax")
    weight = (logit - top[owner]).exp()
    total = weight.new_zeros(bags).index_add(0, owner, weight)
    return weight.new_zeros(bags).index_add(0, owner, weight * margin) / total
