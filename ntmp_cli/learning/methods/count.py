"""The exact count likelihood (SPEC section 4): alone, and oriented by the unbiased risk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.counts import count_log_prob
from ntmp_cli.learning.groups import effective_gap
from ntmp_cli.learning.method import GradientMethod, Heldout, Targets, Task, methods
from ntmp_cli.learning.risk import clamped, coefficients, partial_risks


@dataclass(frozen=True)
class _Prepared:
    sizes: Tensor
    counts: Tensor
    tuple_instances: int
    weight: float = 0.0
    risk: tuple[Tensor, Tensor] | None = None
    closed_form: Tensor | None = None
    teacher: Tensor | None = None
    lesson_weight: float = 0.0


@methods.register("count-plain")
class CountPlain(GradientMethod):
    """Exact likelihood of the counts alone: the ablation that shows the mirror (SPEC 4)."""

    batch = 256

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        # The network's scores are at the deployment prior; the likelihood wants them at the tuples' own rate.
        self.shift = _logit(config.prior) - _logit(_tuple_rate(task))

    def prepare(self, batch: Batch, progress: float) -> Any:
        return _Prepared(torch.from_numpy(batch.sizes), torch.from_numpy(batch.counts), batch.tuple_instances)

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        nll = self.nll(scores, prepared)
        return nll, nll.detach()[None]

    def nll(self, scores: Tensor, prepared: _Prepared) -> Tensor:
        """Mean −log P(count) of the tuples of a batch."""
        z, device = scores[: prepared.tuple_instances] - self.shift, scores.device
        return -count_log_prob(z, prepared.sizes.to(device), prepared.counts.to(device)).mean()

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        return {"nll": float(telemetry[:, 0].mean())}

    def heldout_risk(self, heldout: Heldout) -> float | None:
        return tuple_nll(heldout, self.config.prior, self.task)


@methods.register("count")
class Count(CountPlain):
    """Exact likelihood of the counts, started and oriented: learns most from tuples (SPEC 4).

    The likelihood alone has a mirrored local optimum and a plateau at constant scores. `--warmup` leads off both: the
    class-clamped unbiased risk, or the probabilities of the closed form, have a first-order signal and one side. Their
    sum with the likelihood starts, the likelihood ends: the weight of the start falls from 1 to 0 over the first half
    of training. Without a start, or where every rate equals π, held-out data decide whether to mirror the network. From
    a fifth of training on, the averaged network's labels of unlabeled instances are learned too (`--self-training`).
    """

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        require_orientation(config, task)
        sizes = [n * k for n, _, k in task.strata]
        rates = [m / n for n, m, _ in task.strata]
        self._risk_exists = effective_gap([*sizes, task.unlabeled], [*rates, config.prior]) > 1e-9

    def targets(self) -> Targets:
        return "discriminant" if self.config.warmup == "discriminant" else "none"

    def prepare(self, batch: Batch, progress: float) -> Any:
        lesson = self.config.self_training * self._lesson_share(progress)
        plain = replace(super().prepare(batch, progress), lesson_weight=lesson)
        weight = max(0.0, 1 - 2 * progress)
        if self.config.warmup == "discriminant":
            return replace(plain, weight=weight, closed_form=batch.targets)
        if self.config.warmup == "risk" and self._risk_exists:
            weights = coefficients(batch.sizes, batch.counts, batch.unlabeled, self.config.prior)
            if weights is not None:
                plus, minus = (torch.from_numpy(c.astype(np.float32)) for c in (weights.plus, weights.minus))
                return replace(plain, weight=weight, risk=(plus, minus))
        return plain

    def _lesson_share(self, progress: float) -> float:
        """0 until a fifth of training, so that its side is settled before a network believes itself; 1 from half on."""
        return min(1.0, max(0.0, (progress - 0.2) / 0.3))

    def wants_teacher(self, progress: float) -> bool:
        return self.config.self_training * self._lesson_share(progress) > 0

    def taught(self, prepared: Any, teacher: Tensor) -> Any:
        return replace(prepared, teacher=teacher)

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        loss = nll = self.nll(scores, prepared)
        first = second = lesson = scores.new_zeros(())
        if prepared.risk is not None:
            plus, minus = (weights.to(scores.device) for weights in prepared.risk)
            parts = partial_risks(scores, plus, minus, prepared.tuple_instances, "sigmoid", "class")
            loss = loss + prepared.weight * clamped(parts, "relu")
            first, second = parts[0], parts[1]
        if prepared.closed_form is not None and prepared.weight > 0:
            first = binary_cross_entropy_with_logits(scores, prepared.closed_form.to(scores.device))
            loss = loss + prepared.weight * first
        if prepared.teacher is not None:
            start = prepared.tuple_instances
            lesson = believed_loss(scores[start:], prepared.teacher[start:])
            loss = loss + prepared.lesson_weight * lesson
        return loss, torch.stack([nll, first, second, lesson]).detach()

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        nll, first, second, lesson = telemetry.mean(axis=0).tolist()
        told = {"nll": nll, "self_training": lesson}
        if self.config.warmup == "discriminant":
            return {**told, "closed_form": first}
        return {**told, "parts": {"positive": first, "negative": second}}

    def mirror_centre(self, heldout: Heldout, progress: float) -> float | None:
        """Whether held-out data say that the classes are exchanged; asked only where the start cannot orient."""
        if progress > 0.5 or self.config.warmup == "discriminant":
            return None
        if self.config.warmup == "risk" and self._risk_exists:
            return None
        gap = self.config.prior - self.task.rate
        if abs(gap) > 1e-9:
            mirrored = orientation_z(heldout) * gap < 0
        else:
            mirrored = looks_mirrored(heldout.tuple_scores - self.shift, heldout.sizes, heldout.counts)
        return self.shift if mirrored else None


def believed_loss(scores: Tensor, teacher: Tensor) -> Tensor:
    """Cross-entropy with the teacher's labels, each weighed by how sure the teacher is, |2σ − 1|."""
    each = binary_cross_entropy_with_logits(scores, (teacher > 0).to(scores.dtype), reduction="none")
    return (each * (2 * teacher.sigmoid() - 1).abs()).mean()


def orientation_z(heldout: Heldout) -> float:
    """(E_U σ − E_T σ) in standard errors: its sign times that of π − ᾱ says which side is which (SPEC section 4)."""
    inside, outside = (expit(scores.astype(np.float64)) for scores in (heldout.tuple_scores, heldout.unlabeled_scores))
    error = np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))
    return float((outside.mean() - inside.mean()) / max(error, 1e-12))


def tuple_nll(heldout: Heldout, prior: float, task: Task) -> float:
    """Mean −log P(count) of held-out tuples under the best a·z + b with 0 < a ≤ 1 (SPEC section 5).

    Networks grow too sure of themselves long before they rank worse; toned down, the likelihood sees what they know.
    They are not made surer: a few tuples that happen to be ranked without a mistake would have a probability of one.
    """
    z = heldout.tuple_scores - (_logit(prior) - _logit(_tuple_rate(task)))
    return recalibrated_nll(z, heldout.sizes, heldout.counts, steepest=0.0)


def looks_mirrored(z: NDArray[np.float32], sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> bool:
    """Whether the counts are more probable under a·z + b with a < 0 than with a > 0 (SPEC section 5)."""
    return recalibrated_nll(-z, sizes, counts) < recalibrated_nll(z, sizes, counts)


def recalibrated_nll(
    z: NDArray[np.float32], sizes: NDArray[np.int64], counts: NDArray[np.int64], steepest: float = 4.0
) -> float:
    """The least mean −log P(count | a·z + b) over b and log a ≤ `steepest`; NaN where the scores are no numbers."""
    if not np.isfinite(z).all():
        return float("nan")
    scores, n, m = torch.from_numpy(z).double(), torch.from_numpy(sizes), torch.from_numpy(counts)

    def loss(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        point = torch.tensor(at, requires_grad=True)
        value = -count_log_prob(point[0].exp() * scores + point[1], n, m).mean()
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    return float(minimize(loss, np.zeros(2), jac=True, bounds=[(-8, steepest), (-50, 50)]).fun)


def _tuple_rate(task: Task) -> float:
    """Share of positives among all tuple instances, kept away from 0 and 1 where its logit would be infinite."""
    return min(max(task.rate, 0.01), 0.99)


def _logit(p: float) -> float:
    return log(p / (1 - p))


def require_orientation(config: TrainConfig, task: Task) -> None:
    """n = 2m in every stratum and π = ½: exchanging the classes leaves all data unchanged."""
    if all(n == 2 * m for n, m, _ in task.strata) and abs(config.prior - 0.5) < 1e-9:
        raise NotIdentifiableError(
            "the two classes cannot be told apart: every tuple is half positive and so is the unlabeled pool",
            hint="Add tuples of another rate, or an unlabeled pool whose prior is not 0.5.",
        )
