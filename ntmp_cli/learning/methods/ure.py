"""The paper's method: minimise the unbiased risk, plain or clamped."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.method import GradientMethod, HeldoutRisk, HeldoutScores, Targets, methods
from ntmp_cli.settings import MethodSettings
from ntmp_cli.tuple_source import Task, TupleSource

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ntmp_cli.learning.batch_assignment import BatchAssignment
    from ntmp_cli.learning.batches import Batch
    from ntmp_cli.learning.noisy_counts import ExpectedCounts

log = logging.getLogger(__name__)

Clamp = Literal["none", "relu", "abs"]
ClampScope = Literal["class", "source"]
LossName = Literal["sigmoid", "logistic", "ramp", "hinge", "clipped-logistic"]
TupleWeights = Literal["uniform", "random"]
Intercept = Literal["none", "shares"]
Mixing = Literal["stratified", "pooled", "flat"]
MarginPolicy = Literal["downweight", "skip", "off", "resample", "reweight"]
RISK_TERMS: dict[ClampScope, tuple[str, str]] = {"class": ("positive", "negative"), "source": ("tuples", "unlabeled")}


class CountNoiseSettings(MethodSettings):
    """Settings of methods that take noise of the counts into account."""

    count_noise: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Probability that a recorded count is off by one: in the count likelihood, and in the rates of the "
        "risk.",
    )


class MarginSettings(MethodSettings):
    """Settings of methods that weight the risk by its gap."""

    margin: float = Field(0.05, ge=0, lt=1, description="Operating margin ε₀ that a batch's gap should keep.")


class UuSettings(CountNoiseSettings, MarginSettings):
    """Settings of the uncorrected risk."""

    loss: LossName = Field("sigmoid", description="Surrogate loss ℓ of the risk.")
    margin_policy: MarginPolicy = Field(
        "downweight",
        description="Batches inside the margin: downweight, skip or off. "
        "resample: assign tuples and U so that batches keep it, downweight what still does not. "
        "reweight: downweight, and weight U to the prior if its own seems not within π ± ε₀.",
    )

    intercept: Intercept = Field(
        "none",
        description="After training: none, or shares: the intercept with which as many training instances are called "
        "positive as the counts of tuples and the prior of U say.",
    )


class RiskSettings(UuSettings):
    """Settings of the unbiased risk with its corrections."""

    clamp: Clamp = Field("relu", description="Correction f of the partial risks.")
    clamp_scope: ClampScope = Field(
        "class", description="Risk terms that are clamped: per class (Lu et al. 2020) or per source (the paper)."
    )
    mixing: Literal["auto", Mixing] = Field(
        "auto",
        description="stratified: minimum-variance weights over all strata; pooled: the paper's mean rate; flat: UU's "
        "pool. auto: stratified, but pooled where counts look off by one and --count-noise is not given.",
    )
    tuple_weights: TupleWeights = Field(
        "uniform",
        description="Weights inside a tuple: equal ones, of least variance, or random convex ones, new in every step; "
        "`inspect` shows the ratio of the variances.",
    )


def counts_behind(task: Task, noise: float) -> ExpectedCounts | None:
    """The expected true counts behind recorded ones; None where counts are exact as far as is known.

    Where tuples have a law of noise, their strata have these counts already.
    """
    if noise == 0 or task.expects or task.knowledge is not None:
        return None
    from ntmp_cli.learning.noisy_counts import ExpectedCounts

    return ExpectedCounts.of(task, noise)


@dataclass(frozen=True)
class _Prepared:
    plus: Tensor
    minus: Tensor
    tuple_instances: int
    weight: float
    sizes: NDArray[np.int64]
    in_tuple: Tensor | None = None
    """n_t a_j per tuple instance, where weights inside a tuple are not equal; in the coefficients already."""


@methods.register("ure")
class Ure(GradientMethod):
    """Unbiased risk from tuple counts and U, plain or clamped by ReLU or ABS."""

    settings: ClassVar[type[MethodSettings]] = RiskSettings
    # A clamp acts on the mean of a batch, whose noise it turns into bias: small data are one batch rather than sixteen.
    smallest_batch = 1024
    implied_by = frozenset(RiskSettings.model_fields.keys() - CountNoiseSettings.model_fields.keys())

    def __init__(self, config: TrainConfig, task: Task) -> None:
        import torch

        super().__init__(config, task)
        self.risk = self.risk_settings(config)
        self._mixing: Mixing = "stratified" if self.risk.mixing == "auto" else self.risk.mixing
        self._expected = counts_behind(task, self.risk.count_noise)
        self._rates = [m / n for n, m, _ in task.strata]
        if self._expected is not None:
            self._rates = [self._expected.of_stratum(n, m) / n for n, m, _ in task.strata]
        # Pooled, and ᾱ inside the margin: batches from one side of π each, which `resample` makes.
        self._below = self._share_below()
        if self._below is None:
            self._require_identifiable()
        self._weighted = False
        self._full_weight = torch.ones(1)
        self._weigh(self._flat_rate if self._mixing == "flat" else None)

    def _weigh(self, shared_rate: float | None) -> None:
        from ntmp_cli.learning.risk import cached_coefficients

        self._shared_rate = shared_rate
        self._coefficients = cached_coefficients(self.prior, self._mixing, shared_rate, self._expected)

    @property
    def _mean_rate(self) -> float:
        """ᾱ: the mean of m/n over tuples."""
        import numpy as np

        return float(np.average(self._rates, weights=[k for *_, k in self.task.strata]))

    @property
    def _flat_rate(self) -> float:
        """Σm/Σn."""
        import numpy as np

        return float(np.average(self._rates, weights=[n * k for n, _, k in self.task.strata]))

    def study(self, source: TupleSource) -> None:
        """Pool the strata where counts of an unknown noise look off by one, so that the errors average out."""
        if self._mixing != "stratified" or self._expected is not None or len(self.task.strata) < 2:
            return
        from ntmp_cli.learning.closed_form import training_blocks
        from ntmp_cli.learning.groups import NO_GAP
        from ntmp_cli.learning.noisy_counts import count_scatter, scatter_around_one_count

        scatter = count_scatter(training_blocks(self.config, source), self.task, self.prior)
        poolable = abs(self._mean_rate - self.prior) >= max(self.risk.margin, NO_GAP)
        if scatter is None or not scatter.is_noisy:
            # Near the prior, the means of the groups are too near each other to tell.
            if not poolable and scatter_around_one_count(self.task):
                log.warning(
                    "the counts scatter about one count as if some were off by one, which these data can neither "
                    "confirm nor average out. If they are, the risk is biased: pass the rate of wrong counts "
                    "(count_noise), or use the method 'count'"
                )
            return
        if self.risk.mixing == "auto" and poolable:
            self._mixing = "pooled"
            # Of all tuples: the mean rate of a batch would have the noise of its few counts.
            self._weigh(self._mean_rate)
            done = "All tuples share their mean rate (mixing 'pooled'), in which the errors average out"
        elif self.risk.mixing == "auto":
            done = (
                f"Their mean rate {self._mean_rate:.3g} is too near the prior to pool the tuples, so the risk is biased"
            )
        else:
            done = "With mixing 'stratified', as given, the risk is biased"
        log.warning(
            "about %.0f %% of the counts look off by one, or the prior is wrong. %s. With the noise known "
            "(count_noise %.2g) strata have their corrected rates",
            100 * scatter.rate,
            done,
            scatter.rate,
        )

    @classmethod
    def risk_settings(cls, config: TrainConfig) -> RiskSettings:
        assert isinstance(config.settings, RiskSettings)
        return config.settings

    @classmethod
    def label(cls, config: TrainConfig) -> str:
        risk = cls.risk_settings(config)
        clamp = "" if risk.clamp == "none" else f"+{risk.clamp}"
        # Without a clamp the scope only groups telemetry.
        scope = "/source" if clamp and risk.clamp_scope == "source" else ""
        return f"ure{clamp}{scope}"

    def targets(self) -> Targets:
        targets: dict[str, Targets] = {"resample": "discriminant", "reweight": "weights"}
        return targets.get(self.risk.margin_policy, "none")

    def batch_assignment(self) -> BatchAssignment | None:
        from ntmp_cli.learning.batch_assignment import BatchAssignment

        return BatchAssignment(self.prior, self._below) if self.risk.margin_policy == "resample" else None

    def prepare(self, batch: Batch, progress: float) -> _Prepared | None:
        risk, coefficients = self.risk, self._coefficients(batch.sizes, batch.counts, batch.unlabeled)
        if coefficients is None:
            return None
        plus, minus, gap = coefficients
        if risk.margin_policy == "reweight" and batch.targets is not None:
            plus, minus = plus * batch.targets, minus * batch.targets
            self._weighted = self._weighted or bool((batch.targets != 1).any())
        weight = 1.0
        if risk.margin_policy != "off" and gap < risk.margin:
            if risk.margin_policy == "skip":
                return None
            # The variance of the risk grows as gap⁻²: weigh the batch by its inverse (Eq. 19).
            weight = (gap / risk.margin) ** 2
        if risk.tuple_weights == "uniform":
            return _Prepared(plus, minus, batch.tuple_instances, weight, batch.sizes)
        return self._randomly_weighted(_Prepared(plus, minus, batch.tuple_instances, weight, batch.sizes), progress)

    def _randomly_weighted(self, prepared: _Prepared, progress: float) -> _Prepared:
        """With in-tuple weights that depend on the seed and the step alone."""
        import numpy as np
        import torch

        from ntmp_cli.learning.risk import tuple_weights
        from ntmp_cli.randomness import stream

        rng = stream(self.config.seed, "in-tuple weights", round(progress * 2**40))
        in_tuple = torch.from_numpy(tuple_weights(prepared.sizes, rng).astype(np.float32))
        factor = torch.cat([in_tuple, torch.ones(len(prepared.plus) - len(in_tuple))])
        return replace(prepared, plus=prepared.plus * factor, minus=prepared.minus * factor, in_tuple=in_tuple)

    def loss(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        import torch

        from ntmp_cli.learning.risk import clamped, partial_risks

        terms = partial_risks(
            scores, prepared.plus, prepared.minus, prepared.tuple_instances, self.risk.loss, self.risk.clamp_scope
        )
        value = clamped(terms, self.risk.clamp)
        telemetry = [terms.detach(), self._full_weight.to(terms.device)]
        if prepared.weight != 1.0:
            value, telemetry[1] = value * prepared.weight, terms.new_tensor([prepared.weight])
        if prepared.in_tuple is not None:
            telemetry.append(self._variances(scores.detach(), prepared, prepared.in_tuple))
        return value, torch.cat(telemetry)

    def _variances(self, scores: Tensor, prepared: _Prepared, in_tuple: Tensor) -> Tensor:
        from ntmp_cli.learning.risk import LOSSES, tuple_variances

        phi, first, in_tuple = LOSSES[self.risk.loss], prepared.tuple_instances, in_tuple.to(scores)
        plus, minus, scores = prepared.plus[:first].to(scores), prepared.minus[:first].to(scores), scores[:first]
        weighted = plus * phi(scores) + minus * phi(-scores)
        return tuple_variances(weighted / in_tuple, in_tuple, prepared.sizes)

    @property
    def sets_intercept(self) -> bool:
        return self.risk.intercept == "shares"

    def intercept(self, training: HeldoutScores) -> float:
        from ntmp_cli.learning.intercepts import share_intercept

        return share_intercept(training, self.prior)

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        names = RISK_TERMS[self.risk.clamp_scope]
        terms, weights = telemetry[:, :2], telemetry[:, 2]
        ratio = {}
        if telemetry.shape[1] > 3:
            weighted, equal = telemetry[:, 3].sum(), telemetry[:, 4].sum()
            ratio = {"tuple_weight_variance_ratio": float(weighted / equal) if equal else None}
        return {
            **ratio,
            "risk_terms": dict(zip(names, terms.mean(axis=0).tolist(), strict=True)),
            "negative_rate": dict(zip(names, (terms < 0).mean(axis=0).tolist(), strict=True)),
            "downweighted": int((weights < 1).sum()),
            "mixing": self._mixing,
        }

    def heldout_risk(self, heldout: HeldoutScores) -> HeldoutRisk | None:
        from ntmp_cli.learning.risk import unbiased_risk

        if self._weighted:  # held-out instances have no weights, and without them another prior
            return None
        mixing: Mixing = "stratified" if self._below is not None else self._mixing
        value = unbiased_risk(heldout, self.prior, self.risk.loss, mixing, self._shared_rate, self._expected)
        return None if value is None else HeldoutRisk(value)

    def _share_below(self) -> float | None:
        """Share of batches from below π where `resample` must divide the sides; None where it need not, or cannot."""
        from ntmp_cli.learning.batch_assignment import share_below

        near = abs(self._mean_rate - self.prior)
        if self.risk.margin_policy != "resample" or self._mixing != "pooled" or near >= self.risk.margin:
            return None
        return share_below(self.task.strata, self.prior)

    def _require_identifiable(self) -> None:
        """Raise an error before the first epoch if all rates are equal (D = 0), because no weights exist then."""
        from ntmp_cli.learning.groups import NO_GAP, effective_gap

        task, mixing = self.task, self._mixing
        if mixing in ("pooled", "flat"):
            mean = self._flat_rate if mixing == "flat" else self._mean_rate
            gap = abs(mean - self.prior)
            reason = f"the mean tuple rate ᾱ = {mean:.6g} equals the prior π = {self.prior:.6g}"
            hint = "Use the method ure with stratified mixing if the tuples have several rates, or another prior."
        else:
            sizes = [n * k for n, _, k in task.strata]
            gap = effective_gap([*sizes, task.unlabeled], [*self._rates, self.prior])
            reason = f"every tuple's rate equals the prior π = {self.prior:.6g} (effective gap √D/S₀ = 0)"
            hint = "Mix in tuples of another rate, such as 3:2 beside 3:1, or use another unlabeled pool."
        if gap < NO_GAP:
            raise NotIdentifiableError(f"the risk is not identifiable: {reason}", hint=hint)
