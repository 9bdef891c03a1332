"""The exact count likelihood (SPEC section 4): alone, and oriented by the unbiased risk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_log_prob
from ntmp_cli.counting.recalibration import looks_mirrored, recalibrate
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.caching import cached_by_composition
from ntmp_cli.learning.count_kernel import CountKernel
from ntmp_cli.learning.groups import normalised_gap, rate_shift
from ntmp_cli.learning.known_slopes import believed_loss, clamped_sigmoid_risk, with_slope
from ntmp_cli.learning.method import GradientMethod, Heldout, HeldoutRisk, Targets, Task, methods
from ntmp_cli.learning.risk import PARTS, cached_coefficients

# Standard errors from which on the sign of a difference is believed.
CLEAR = 3.0
# Every so many steps a lesson is given, with so many times the weight: the same lesson at a fraction of the price.
LESSON_EVERY = 2
# Share of training that the start leads.
LED = 0.5


@dataclass(frozen=True)
class _Prepared:
    kernel: CountKernel
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
    uses = frozenset({"count_noise"})

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        # The network's scores are at the deployment prior; the likelihood wants them at the tuples' own rate.
        self.shift = rate_shift(config.prior, task.rate)
        law = count_noise(config.count_noise)
        self._kernel = cached_by_composition(lambda sizes, counts: CountKernel(CountObservations(sizes, counts, law)))

    def prepare(self, batch: Batch, progress: float) -> Any:
        return _Prepared(self._kernel(batch.sizes, batch.counts), batch.tuple_instances)

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        nll, slope = self.nll(scores.detach(), prepared)
        return with_slope(scores, nll, slope), nll[None]

    def nll(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        """Mean −log P(count) of the tuples of a batch, and its slope in the scores: 0 for those of U."""
        inside, slope = prepared.tuple_instances, torch.zeros_like(scores)
        z = scores[:inside] - self.shift
        log_prob, posterior = prepared.kernel.sweep(z)
        torch.sub(z.sigmoid(), posterior, out=slope[:inside]).div_(len(log_prob))
        return -log_prob.mean().to(scores.dtype), slope

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        return {"nll": float(telemetry[:, 0].mean())}

    def heldout_risk(self, heldout: Heldout) -> HeldoutRisk | None:
        return tuple_nll(heldout, self.config, self.task)


@methods.register("count")
class Count(CountPlain):
    """Exact likelihood of the counts, started and oriented: learns most from tuples (SPEC 4).

    The likelihood alone has a mirrored local optimum and a plateau at constant scores. `--warmup` leads off both: the
    class-clamped unbiased risk, or the probabilities of the closed form, have a first-order signal and one side. Their
    sum with the likelihood starts, the likelihood ends: the weight of the start falls from 1 to 0 over the first half
    of training. Without a start, or where every rate equals π, held-out data decide whether to mirror the network. From
    a fifth of training on, every other step also learns the averaged network's labels of unlabeled instances
    (`--self-training`), from half of it on with a share of their features hidden (`--hidden-share`).
    """

    uses = frozenset({"count_noise", "margin", "warmup", "self_training", "hidden_share"})

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        require_orientation(config, task)
        sizes = [n * k for n, _, k in task.strata]
        rates = [m / n for n, m, _ in task.strata]
        self._coefficients = cached_coefficients(config.prior)
        # Inside the margin the risk is mostly noise, which would drown the likelihood: then the data orient.
        self._risk_leads = normalised_gap([*sizes, task.unlabeled], [*rates, config.prior]) >= config.margin

    def targets(self) -> Targets:
        return "discriminant" if self.config.warmup == "discriminant" else "none"

    def prepare(self, batch: Batch, progress: float) -> Any:
        plain = super().prepare(batch, progress)
        lesson = self.config.self_training * self._lesson_share(progress)
        weight = max(0.0, 1 - progress / LED)
        if self.config.warmup == "discriminant" and weight > 0:
            return replace(plain, weight=weight, lesson_weight=lesson, closed_form=batch.targets)
        if self.config.warmup == "risk" and weight > 0 and self._risk_leads:
            found = self._coefficients(batch.sizes, batch.counts, batch.unlabeled)
            return replace(plain, weight=weight, lesson_weight=lesson, risk=found and found[:2])
        return replace(plain, lesson_weight=lesson)

    def _lesson_share(self, progress: float) -> float:
        """0 until a fifth of training, so that its side is settled before a network believes itself; 1 from half on."""
        return min(1.0, max(0.0, (progress - 0.2) / 0.3))

    def wants_teacher(self, step: int, progress: float) -> bool:
        return step % LESSON_EVERY == 0 and self.config.self_training * self._lesson_share(progress) > 0

    def hides(self, step: int, progress: float) -> float:
        """Not while the risk leads: it lives on what tells U from tuples, and hiding would. Nor without an average."""
        hidden = progress >= LED and self.config.ema > 0 and self.wants_teacher(step, progress)
        return self.config.hidden_share if hidden else 0.0

    def taught(self, prepared: Any, teacher: Tensor) -> Any:
        return replace(prepared, teacher=teacher)

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        z, inside = scores.detach(), prepared.tuple_instances
        nll, slope = self.nll(z, prepared)
        loss, first, second, lesson = nll, *3 * [z.new_zeros(())]
        if prepared.risk is not None:
            plus, minus = (weights.to(z) for weights in prepared.risk)
            first, second, own = clamped_sigmoid_risk(z, plus, minus)
            loss = loss + prepared.weight * (first.relu() + second.relu())
            slope.add_(own, alpha=prepared.weight)
        if prepared.closed_form is not None:
            # Of tuple instances the closed form gives the probability at the tuples' rate, of U that at the prior.
            at_rate, targets = torch.cat([z[:inside] - self.shift, z[inside:]]), prepared.closed_form.to(z.device)
            first = binary_cross_entropy_with_logits(at_rate, targets)
            loss = loss + prepared.weight * first
            slope.add_(at_rate.sigmoid() - targets, alpha=prepared.weight / len(z))
        if prepared.teacher is not None:
            lesson, own = believed_loss(z[inside:], prepared.teacher[inside:])
            lesson = LESSON_EVERY * lesson
            loss = loss + prepared.lesson_weight * lesson
            slope[inside:].add_(own, alpha=LESSON_EVERY * prepared.lesson_weight)
        return with_slope(scores, loss, slope), torch.stack([nll, first, second, lesson])

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        nll, first, second, lesson = telemetry.mean(axis=0).tolist()
        told = {"nll": nll, "self_training": lesson}
        if self.config.warmup == "discriminant":
            return {**told, "closed_form": first}
        below = (telemetry[:, 1:3] < 0).mean(axis=0).tolist()
        names = PARTS["class"]
        return {
            **told,
            "parts": dict(zip(names, (first, second), strict=True)),
            "negative_rate": dict(zip(names, below, strict=True)),
        }

    def oriented_by_data(self) -> bool:
        return True

    def _led(self) -> bool:
        """The risk and the closed form have a side of their own; without them the data decide alone."""
        return self.config.warmup == "discriminant" or (self.config.warmup == "risk" and self._risk_leads)

    def mirror_centre(self, heldout: Heldout) -> float | None:
        """First order where it is clear, U against tuples; else the likelihood of the counts under either sign.

        A network that is led is only turned by clear evidence: few steps on little data may not be enough to lead it.
        """
        z = orientation_z(heldout) * np.sign(self.config.prior - self.task.rate)
        if self._led():
            mirrored = z < -CLEAR
        elif abs(z) > CLEAR or self.task.symmetric:
            mirrored = z < 0
        else:
            mirrored = looks_mirrored(heldout.tuple_scores - self.shift, observed_counts(heldout, self.config))
        return self.shift if mirrored else None


def orientation_z(heldout: Heldout) -> float:
    """(E_U σ − E_T σ) in standard errors: its sign times that of π − ᾱ says which side is which (SPEC section 4)."""
    inside, outside = (expit(scores) for scores in (heldout.tuple_scores, heldout.unlabeled_scores))
    error = np.sqrt(inside.var() / len(inside) + outside.var() / len(outside))
    return float((outside.mean() - inside.mean()) / max(error, 1e-12))


def observed_counts(heldout: Heldout, config: TrainConfig) -> CountObservations:
    """The recorded counts of held-out tuples, under the noise that training was told of."""
    return CountObservations(heldout.sizes, heldout.counts, count_noise(config.count_noise))


def tuple_nll(heldout: Heldout, config: TrainConfig, task: Task) -> HeldoutRisk:
    """−log P(count) of held-out tuples under the best a·z + b with 0 < a ≤ 1 (SPEC section 5).

    Networks grow too sure of themselves long before they rank worse; toned down, the likelihood sees what they know.
    They are not made surer: a few tuples that happen to be ranked without a mistake would have a probability of one.
    """
    z = heldout.tuple_scores - rate_shift(config.prior, task.rate)
    observed = observed_counts(heldout, config)
    line = recalibrate(z, observed, steepest=0.0)
    return HeldoutRisk(line.nll, -count_log_prob(line.slope * z + line.intercept, observed))


def require_orientation(config: TrainConfig, task: Task) -> None:
    """n = 2m in every stratum and π = ½: exchanging the classes leaves all data unchanged."""
    if task.symmetric and abs(config.prior - 0.5) < 1e-9:
        raise NotIdentifiableError(
            "the two classes cannot be told apart: every tuple is half positive and so is the unlabeled pool",
            hint="Add tuples of another rate, or an unlabeled pool whose prior is not 0.5.",
        )
