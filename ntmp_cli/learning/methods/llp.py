"""Learning from label proportions: the mean prediction of a tuple is matched to its rate.

Only the mean of a tuple enters, so where all tuples have the same rate a constant prediction is optimal: these methods
then learn nothing, and nothing orients them. The baseline shows that, so no label or prior is used to correct it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ntmp_cli.learning.method import GradientMethod, HeldoutRisk, HeldoutScores, methods
from ntmp_cli.settings import MethodSettings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ntmp_cli.learning.batches import Batch

TINY = 1e-7


class EntropySettings(MethodSettings):
    """Settings of proportion matching with an entropy penalty."""

    entropy_weight: float = Field(0.01, ge=0, description="Weight of the instance-entropy penalty.")


@dataclass(frozen=True)
class _Prepared:
    sizes: Tensor
    rates: Tensor
    tuple_instances: int


class _Proportions(GradientMethod):
    settings = EntropySettings

    def prepare(self, batch: Batch, progress: float) -> _Prepared:
        import torch

        rates = torch.from_numpy(batch.counts / batch.sizes).float()
        return _Prepared(torch.from_numpy(batch.sizes), rates, batch.tuple_instances)

    def loss(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        import torch
        from torch.nn import functional as F

        z = scores[: prepared.tuple_instances]
        mean = tuple_means(z.sigmoid(), prepared.sizes.to(z.device))
        mismatch = self.mismatch(mean, prepared.rates.to(z.device)).mean()
        entropy = F.binary_cross_entropy_with_logits(z, z.sigmoid())
        assert isinstance(self.config.settings, EntropySettings)
        weight = self.config.settings.entropy_weight
        loss = mismatch + weight * entropy if weight else mismatch
        return loss, torch.stack([mismatch.detach(), entropy.detach()])

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        mismatch, entropy = telemetry.mean(axis=0).tolist()
        return {"mismatch": mismatch, "entropy": entropy}

    def heldout_risk(self, heldout: HeldoutScores) -> HeldoutRisk | None:
        """The mismatch of held-out tuples."""
        import torch

        p = torch.from_numpy(heldout.tuple_scores).sigmoid()
        sizes, counts = torch.from_numpy(heldout.sizes), torch.from_numpy(heldout.counts)
        return HeldoutRisk(float(self.mismatch(tuple_means(p, sizes), counts.double() / sizes).mean()))

    @abstractmethod
    def mismatch(self, mean: Tensor, rates: Tensor) -> Tensor:
        """Divergence of the mean prediction of every tuple from its rate."""


@methods.register("llp-bagce")
class BagCrossEntropy(_Proportions):
    """Label proportions: cross-entropy of a tuple's mean prediction and its rate."""

    def mismatch(self, mean: Tensor, rates: Tensor) -> Tensor:
        return cross_entropy(rates, mean)


@methods.register("llp-js")
class BagJensenShannon(_Proportions):
    """Label proportions: Jensen–Shannon divergence of a tuple's mean prediction and its rate."""

    def mismatch(self, mean: Tensor, rates: Tensor) -> Tensor:
        return jensen_shannon(mean, rates)


def tuple_means(values: Tensor, sizes: Tensor) -> Tensor:
    """Mean of every tuple; the instances of all tuples lie in a row."""
    import torch

    owner = torch.repeat_interleave(torch.arange(len(sizes), device=values.device), sizes)
    return values.new_zeros(len(sizes)).index_add(0, owner, values) / sizes.to(values.dtype)


def cross_entropy(target: Tensor, p: Tensor) -> Tensor:
    """H(q, p) of two Bernoulli laws (Eq. 83)."""
    p = p.clamp(TINY, 1 - TINY)
    return -(target * p.log() + (1 - target) * (1 - p).log())


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """JS(p‖q) = H((p+q)/2) − (H(p) + H(q))/2 of two Bernoulli laws, between 0 and log 2 (Eq. 84)."""
    middle = (p + q) / 2
    return cross_entropy(middle, middle) - (cross_entropy(p, p) + cross_entropy(q, q)) / 2
