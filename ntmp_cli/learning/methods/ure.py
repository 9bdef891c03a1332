"""The paper's method: minimise the unbiased risk, plain or clamped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntmp_cli.config import RISK_SETTINGS, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.dealing import Dealing, share_below
from ntmp_cli.learning.groups import NO_GAP, effective_gap
from ntmp_cli.learning.method import GradientMethod, Heldout, HeldoutRisk, Targets, Task, methods
from ntmp_cli.learning.risk import PARTS, cached_coefficients, clamped, partial_risks, unbiased_risk


@dataclass(frozen=True)
class _Prepared:
    plus: Tensor
    minus: Tensor
    tuple_instances: int
    weight: float


@methods.register("ure")
class Ure(GradientMethod):
    """Unbiased risk from tuple counts and U, plain or clamped by ReLU or ABS (SPEC 2, 3)."""

    uses = RISK_SETTINGS

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        # Pooled, and ᾱ inside the margin: batches of one side each, which `resample` deals.
        self._below = _share_below(config, task)
        if self._below is None:
            _require_identifiable(config, task)
        self._weighted = False
        self._full_weight = torch.ones(1)
        flat_rate = task.rate if config.mixing == "flat" else None
        self._coefficients = cached_coefficients(config.prior, config.mixing, flat_rate)

    @staticmethod
    def label(config: TrainConfig) -> str:
        clamp = "" if config.clamp == "none" else f"+{config.clamp}"
        # Without a clamp the scope only groups telemetry.
        scope = "/source" if clamp and config.clamp_scope == "source" else ""
        return f"ure{clamp}{scope}"

    def targets(self) -> Targets:
        wanted: dict[str, Targets] = {"resample": "discriminant", "reweight": "weights"}
        return wanted.get(self.config.margin_policy, "none")

    def dealing(self) -> Dealing | None:
        return Dealing(self.config.prior, self._below) if self.config.margin_policy == "resample" else None

    def prepare(self, batch: Batch, progress: float) -> _Prepared | None:
        config, found = self.config, self._coefficients(batch.sizes, batch.counts, batch.unlabeled)
        if found is None:
            return None
        plus, minus, gap = found
        if config.margin_policy == "reweight" and batch.targets is not None:
            plus, minus = plus * batch.targets, minus * batch.targets
            self._weighted = self._weighted or bool((batch.targets != 1).any())
        weight = 1.0
        if config.margin_policy != "off" and gap < config.margin:
            if config.margin_policy == "skip":
                return None
            # The variance of the risk grows as gap⁻²: weigh the batch by its inverse.
            weight = (gap / config.margin) ** 2
        return _Prepared(plus, minus, batch.tuple_instances, weight)

    def loss(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        config = self.config
        parts = partial_risks(
            scores, prepared.plus, prepared.minus, prepared.tuple_instances, config.loss, config.clamp_scope
        )
        risk = clamped(parts, config.clamp)
        if prepared.weight != 1.0:
            risk = risk * prepared.weight
            return risk, torch.cat([parts.detach(), parts.new_tensor([prepared.weight])])
        return risk, torch.cat([parts.detach(), self._full_weight.to(parts.device)])

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        names = PARTS[self.config.clamp_scope]
        parts, weights = telemetry[:, :2], telemetry[:, 2]
        return {
            "parts": dict(zip(names, parts.mean(axis=0).tolist(), strict=True)),
            "negative_rate": dict(zip(names, (parts < 0).mean(axis=0).tolist(), strict=True)),
            "downweighted": int((weights < 1).sum()),
        }

    def heldout_risk(self, heldout: Heldout) -> HeldoutRisk | None:
        if self._weighted:  # held-out instances have no weights, and without them another prior
            return None
        risk = unbiased_risk(
            heldout.tuple_scores,
            heldout.sizes,
            heldout.counts,
            heldout.unlabeled_scores,
            self.config.prior,
            self.config.loss,
            "stratified" if self._below is not None else self.config.mixing,
            self.task.rate if self.config.mixing == "flat" else None,
        )
        return None if risk is None else HeldoutRisk(risk)


def _share_below(config: TrainConfig, task: Task) -> float | None:
    """Share of batches from below π where `resample` must part the sides; None where it need not, or cannot."""
    rates, tuples = [m / n for n, m, _ in task.strata], [k for _, _, k in task.strata]
    near = abs(float(np.average(rates, weights=tuples)) - config.prior) < config.margin
    asked = config.margin_policy == "resample" and config.mixing == "pooled"
    return share_below(task.strata, config.prior) if asked and near else None


def _require_identifiable(config: TrainConfig, task: Task) -> None:
    """All rates equal (D = 0): no weights exist. Say so before an epoch is spent."""
    rates = [m / n for n, m, _ in task.strata]
    tuples = [k for _, _, k in task.strata]
    if config.mixing in ("pooled", "flat"):
        mean = task.rate if config.mixing == "flat" else float(np.average(rates, weights=tuples))
        gap = abs(mean - config.prior)
        what = f"the mean tuple rate ᾱ = {mean:.6g} equals the prior π = {config.prior:.6g}"
        hint = "Use --method ure --mixing stratified if the tuples have several rates, or another prior."
    else:
        sizes = [n * k for n, _, k in task.strata]
        gap = effective_gap([*sizes, task.unlabeled], [*rates, config.prior])
        what = f"every tuple's rate equals the prior π = {config.prior:.6g} (effective gap √D/S₀ = 0)"
        hint = "Mix in tuples of another rate (make-tuples --tuple 3:1 --tuple 3:2) or use another unlabeled pool."
    if gap < NO_GAP:
        raise NotIdentifiableError(f"the risk is not identifiable: {what}", hint=hint)
