"""The exact count likelihood (SPEC section 4): alone, and oriented by the unbiased risk."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.counts import count_log_prob
from ntmp_cli.learning.groups import effective_gap
from ntmp_cli.learning.method import Heldout, Method, Task, methods
from ntmp_cli.learning.risk import clamped, coefficients, partial_risks


@dataclass(frozen=True)
class _Prepared:
    sizes: Tensor
    counts: Tensor
    tuple_instances: int
    risk: tuple[Tensor, Tensor] | None
    risk_weight: float


@methods.register("count-plain")
class CountPlain(Method):
    """Exact likelihood of the counts alone: the ablation that shows the mirror (SPEC 4)."""

    orients = False

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        # The network's scores are at the deployment prior; the likelihood wants them at the tuples' own rate.
        self.shift = _logit(config.prior) - _logit(_tuple_rate(task))

    @staticmethod
    def label(config: TrainConfig) -> str:
        return config.method

    def prepare(self, batch: Batch, progress: float) -> _Prepared:
        sizes, counts = torch.from_numpy(batch.sizes), torch.from_numpy(batch.counts)
        return _Prepared(sizes, counts, batch.tuple_instances, *self._risk(batch, progress))

    def _risk(self, batch: Batch, progress: float) -> tuple[tuple[Tensor, Tensor] | None, float]:
        return None, 0.0

    def loss(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        device = scores.device
        z = scores[: prepared.tuple_instances] - self.shift
        nll = -count_log_prob(z, prepared.sizes.to(device), prepared.counts.to(device)).mean()
        if prepared.risk is None:
            return nll, torch.stack([nll.detach(), scores.new_zeros(()), scores.new_zeros(())])
        plus, minus = (weights.to(device) for weights in prepared.risk)
        parts = partial_risks(scores, plus, minus, prepared.tuple_instances, "sigmoid", "class")
        loss = nll + prepared.risk_weight * clamped(parts, "relu")
        return loss, torch.cat([nll.detach()[None], parts.detach()])

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        likelihood = {"nll": float(telemetry[:, 0].mean())}
        if not self.orients:
            return likelihood
        parts = dict(zip(("positive", "negative"), telemetry[:, 1:].mean(axis=0).tolist(), strict=True))
        return {**likelihood, "parts": parts}

    def heldout_risk(self, heldout: Heldout) -> float | None:
        """Mean −log P(count) of held-out tuples."""
        z = torch.from_numpy(heldout.tuple_scores) - self.shift
        return -float(count_log_prob(z, torch.from_numpy(heldout.sizes), torch.from_numpy(heldout.counts)).mean())


@methods.register("count")
class Count(CountPlain):
    """Exact likelihood of the counts, oriented by the unbiased risk: learns most from tuples (SPEC 4).

    The likelihood alone has a mirrored local optimum and a plateau at constant scores; the class-clamped risk has a
    first-order signal and one side. Their sum starts, the likelihood ends: the risk's weight falls from 1 to 0 over
    the first half of training.
    """

    orients = True

    def __init__(self, config: TrainConfig, task: Task) -> None:
        super().__init__(config, task)
        _require_orientation(config, task)
        sizes = [n * k for n, _, k in task.strata]
        rates = [m / n for n, m, _ in task.strata]
        self._risk_orients = effective_gap([*sizes, task.unlabeled], [*rates, config.prior]) > 1e-9

    def mirror_centre(self, heldout: Heldout, progress: float) -> float | None:
        """Where no risk can orient (every rate equals π), the likelihood itself can, unless n = 2m throughout."""
        if self._risk_orients or progress > 0.5:
            return None
        z = heldout.tuple_scores - self.shift
        return self.shift if looks_mirrored(z, heldout.sizes, heldout.counts) else None

    def _risk(self, batch: Batch, progress: float) -> tuple[tuple[Tensor, Tensor] | None, float]:
        weights = coefficients(batch.sizes, batch.counts, batch.unlabeled, self.config.prior)
        if weights is None:
            return None, 0.0
        plus, minus = (torch.from_numpy(c.astype(np.float32)) for c in (weights.plus, weights.minus))
        return (plus, minus), max(0.0, 1 - 2 * progress)


def looks_mirrored(z: NDArray[np.float32], sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> bool:
    """Whether the counts are more probable under a·z + b with a < 0 than with a > 0 (SPEC section 5)."""
    scores, n, m = torch.from_numpy(z).double(), torch.from_numpy(sizes), torch.from_numpy(counts)

    def best_fit(sign: int) -> float:
        def loss(at: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            point = torch.tensor(at, requires_grad=True)
            value = -count_log_prob(sign * point[0].exp() * scores + point[1], n, m).mean()
            (slope,) = torch.autograd.grad(value, point)
            return float(value.detach()), slope.numpy()

        return float(minimize(loss, np.zeros(2), jac=True, bounds=[(-8, 4), (-50, 50)]).fun)

    return best_fit(-1) < best_fit(1)


def _tuple_rate(task: Task) -> float:
    """Share of positives among all tuple instances, kept away from 0 and 1 where its logit would be infinite."""
    rate = sum(m * k for _, m, k in task.strata) / sum(n * k for n, _, k in task.strata)
    return min(max(rate, 0.01), 0.99)


def _logit(p: float) -> float:
    return log(p / (1 - p))


def _require_orientation(config: TrainConfig, task: Task) -> None:
    """n = 2m in every stratum and π = ½: exchanging the classes leaves all data unchanged."""
    if all(n == 2 * m for n, m, _ in task.strata) and abs(config.prior - 0.5) < 1e-9:
        raise NotIdentifiableError(
            "the two classes cannot be told apart: every tuple is half positive and so is the unlabeled pool",
            hint="Add tuples of another rate, or an unlabeled pool whose prior is not 0.5.",
        )
