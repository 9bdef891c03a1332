"""Learning from label proportions: the mean prediction of a tuple is matched to its rate (SPEC section 9).

Only the mean of a tuple enters, so where all tuples have the same rate a constant prediction is a perfect answer: these
methods then learn nothing, and nothing orients them. That is what the baseline shows; no label or prior mends it here.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import GradientMethod, Heldout, HeldoutRisk, methods

TINY = 1e-7


@dataclass(frozen=True)
class _Prepared:
    sizes: Tensor
    rates: Tensor
    tuple_instances: int


class _Proportions(GradientMethod):
    def prepare(self, batch: Batch, progress: float) -> _Prepared:
        rates = torch.from_numpy(batch.counts / batch.sizes).float()
        return _Prepared(torch.from_numpy(batch.sizes), rates, batch.tuple_instances)

    def loss(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        z = scores[: prepared.tuple_instances]
        mean = tuple_means(z.sigmoid(), prepared.sizes.to(z.device))
        mismatch = self.mismatch(mean, prepared.rates.to(z.device)).mean()
        entropy = F.binary_cross_entropy_with_logits(z, z.sigmoid())
        weight = self.entropy_weight()
        loss = mismatch + weight * entropy if weight else mismatch
        return loss, torch.stack([mismatch.detach(), entropy.detach()])

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        mismatch, entropy = telemetry.mean(axis=0).tolist()
        return {"mismatch": mismatch, "entropy": entropy}

    def heldout_risk(self, heldout: Heldout) -> HeldoutRisk | None:
        """The mismatch of held-out tuples."""
        p = torch.from_numpy(heldout.tuple_scores).sigmoid()
        sizes, counts = torch.from_numpy(heldout.sizes), torch.from_numpy(heldout.counts)
        return HeldoutRisk(float(self.mismatch(tuple_means(p, sizes), counts.double() / sizes).mean()))

    @abstractmethod
    def mismatch(self, mean: Tensor, rates: Tensor) -> Tensor:
        """How far the mean prediction of every tuple is from its rate."""

    def entropy_weight(self) -> float:
        return 0.0


@methods.register("llp-bagce")
class BagCrossEntropy(_Proportions):
    """Label proportions: cross-entropy of a tuple's mean prediction and its rate (SPEC 9)."""

    uses = frozenset({"entropy_weight"})

    def mismatch(self, mean: Tensor, rates: Tensor) -> Tensor:
        return cross_entropy(rates, mean)

    def entropy_weight(self) -> float:
        return self.config.entropy_weight


@methods.register("llp-js")
class BagJensenShannon(_Proportions):
    """Label proportions: Jensen–Shannon divergence of a tuple's mean prediction and its rate (SPEC 9)."""

    def mismatch(self, mean: Tensor, rates: Tensor) -> Tensor:
        return jensen_shannon(mean, rates)


def tuple_means(values: Tensor, sizes: Tensor) -> Tensor:
    """Mean of every tuple; the instances of all tuples lie in a row."""
    owner = torch.repeat_interleave(torch.arange(len(sizes), device=values.device), sizes)
    return values.new_zeros(len(sizes)).index_add(0, owner, values) / sizes.to(values.dtype)


def cross_entropy(target: Tensor, p: Tensor) -> Tensor:
    """H(q, p) of two Bernoulli laws."""
    p = p.clamp(TINY, 1 - TINY)
    return -(target * p.log() + (1 - target) * (1 - p).log())


def jensen_shannon(p: Tensor, q: Tensor) -> Tensor:
    """JS(p‖q) = H((p+q)/2) − (H(p) + H(q))/2 of two Bernoulli laws, between 0 and log 2."""
    middle = (p + q) / 2
    return cross_entropy(middle, middle) - (cross_entropy(p, p) + cross_entropy(q, q)) / 2
