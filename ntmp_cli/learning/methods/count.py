"""The exact count likelihood (Eq. 22): alone, and oriented by the unbiased risk (Eq. 31)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.method import GradientMethod, HeldoutRisk, HeldoutScores, Targets, methods
from ntmp_cli.learning.methods.ure import RISK_TERMS, CountNoiseSettings, MarginSettings, counts_behind
from ntmp_cli.tuple_source import Counts, Task

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ntmp_cli.counting.laws import NoiseLaw
    from ntmp_cli.counting.observations import CountObservations
    from ntmp_cli.learning.batches import Batch
    from ntmp_cli.learning.callbacks import Callback
    from ntmp_cli.learning.count_kernel import CountKernel
    from ntmp_cli.learning.orientation_evidence import OrientationTest

# Pseudo-labels are used at every second step, with twice the weight: the same mean gradient at half the cost.
PSEUDO_LABELS_EVERY = 2
# Fraction of training over which the weight of the warm-up objective falls from 1 to 0.
WARMUP_FRACTION = 0.5
# Warm-up objectives that are probabilities of single instances.
TARGET_WARMUPS = ("discriminant", "teacher")
# The risk is the warm-up only if its signal has this many standard errors.
WARMUP_SIGNAL = 2.0
# Mean length above which membership is added: the count of a long tuple has little information about its members.
LONG = 30
# Length of the tuples on which the weight of pseudo-labels was chosen.
USUAL = 3
# The sign test after every epoch needs no more tuples.
SIGN_TEST_TUPLES = 1000


class CountSettings(CountNoiseSettings, MarginSettings):
    """Settings of the count likelihood with warm-up and self-training."""

    warmup: Literal["risk", "discriminant", "teacher", "none"] = Field(
        "risk",
        description="Objective that moves `count` off its plateau: the unbiased risk, the closed form, the scores of "
        "another run (--teacher), or nothing.",
    )
    teacher: str | None = Field(
        None,
        description="Run whose scores a network on pixels learns first, such as one on frozen features; with "
        "--warmup teacher.",
    )
    self_training: float = Field(
        1.0, ge=0, description="Weight of the averaged network's pseudo-labels of unlabeled instances; 0: off."
    )
    mask_rate: float = Field(
        0.3,
        ge=0,
        lt=1,
        description="Share of an unlabeled instance's features that are masked in self-training; 0: none.",
    )
    membership: float | None = Field(
        None,
        ge=0,
        description="Weight of the likelihood that an instance is of a tuple and not of the pool, given the rates of "
        f"both. Default: 1 for tuples of more than {LONG} members on average, else 0. For long tuples it "
        "also raises the weight of pseudo-labels.",
    )
    assume: Literal["prior<0.5", "prior>0.5"] | None = Field(
        None,
        description="Outside knowledge of the pool, for tuples whose orientation is uncertain: prior<0.5 or prior>0.5.",
    )
    trust: Literal["prior", "counts"] | None = Field(
        None,
        description="What decides the orientation where the prior and the counts contradict each other, "
        "or are both uncertain.",
    )


@dataclass(frozen=True)
class _Prepared:
    kernel: CountKernel
    tuple_instances: int
    warmup_weight: float = 0.0
    risk: tuple[Tensor, Tensor] | None = None
    closed_form: Tensor | None = None
    membership_weight: float = 0.0
    pseudo_label_weight: float = 0.0
    teacher: Tensor | None = None


@methods.register("count-plain")
class CountPlain(GradientMethod):
    """Exact likelihood of the counts alone: the ablation that may learn the classes exchanged."""

    settings = CountNoiseSettings
    batch = 256
    counts_needed = "any"

    def __init__(self, config: TrainConfig, task: Task) -> None:
        from ntmp_cli.counting.laws import count_noise
        from ntmp_cli.counting.observations import CountObservations
        from ntmp_cli.learning.caching import cached_by_composition
        from ntmp_cli.learning.count_kernel import CountKernel
        from ntmp_cli.learning.groups import rate_shift

        super().__init__(config, task)
        assert isinstance(config.settings, CountNoiseSettings)
        self.law = law = count_noise(config.settings.count_noise)
        # The network's scores are at the deployment prior; the likelihood needs them at the tuples' rate.
        self.shift = rate_shift(self.prior, task.rate, task.instances)
        self._kernel = cached_by_composition(lambda sizes, counts: CountKernel(CountObservations(sizes, counts, law)))

    def prepare(self, batch: Batch, progress: float) -> Any:
        return _Prepared(self._kernel(batch.sizes, batch.counts), batch.tuple_instances)

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        from ntmp_cli.learning.known_slopes import with_slope

        nll, slope = self.nll(scores.detach(), prepared)
        return with_slope(scores, nll, slope), nll[None]

    def nll(self, scores: Tensor, prepared: _Prepared) -> tuple[Tensor, Tensor]:
        """Mean −log P(count) of the tuples of a batch, and its slope in the scores: 0 for those of U."""
        import torch

        inside, slope = prepared.tuple_instances, torch.zeros_like(scores)
        z = scores[:inside] - self.shift
        log_prob, posterior = prepared.kernel.sweep(z)
        torch.sub(z.sigmoid(), posterior, out=slope[:inside]).div_(len(log_prob))
        return -log_prob.mean().to(scores.dtype), slope

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        return {"nll": float(telemetry[:, 0].mean())}

    def heldout_risk(self, heldout: HeldoutScores) -> HeldoutRisk | None:
        return tuple_nll(heldout, self.shift, self.law)


@methods.register("count")
class Count(CountPlain):
    """Exact likelihood of the counts, with a warm-up that orients it: learns most from tuples.

    The likelihood alone has a mirrored local optimum and a plateau at constant scores. The warm-up objective (the
    class-clamped unbiased risk, or cross-entropy with the probabilities of the closed form or of another run) has a
    first-order signal and one orientation; its weight falls from 1 to 0 over the first half of training. The risk is
    used where its sign is beyond the noise of all data; inside the margin it has less weight. A sign test on held-out
    data flips a network whose classes are certainly exchanged. After a fifth of training, every second step also learns
    the averaged network's pseudo-labels of unlabeled instances (`self_training`); after half of it, with a share of
    their features masked (`mask_rate`). The count of a long tuple has little information about its members: for long
    tuples, the likelihood that an instance belongs to a tuple or to the pool is added (`membership`).
    """

    settings = CountSettings

    def __init__(self, config: TrainConfig, task: Task) -> None:
        from ntmp_cli.learning.groups import normalised_gap, require_orientation, signal_to_noise, usable_rate
        from ntmp_cli.learning.risk import cached_coefficients

        super().__init__(config, task)
        require_orientation(task.symmetric, self.prior)
        assert isinstance(config.settings, CountSettings)
        self.options = config.settings
        require_side(self.options, task, self.prior)
        require_teacher(self.options)
        expected, strata = counts_behind(task, self.options.count_noise), task.rated_strata
        self._coefficients = cached_coefficients(self.prior, expected=expected)
        sizes = [n * k for n, _, k in strata]
        rates = [(m if expected is None else expected.of_stratum(n, m)) / n for n, m, _ in strata]
        groups = [*sizes, task.unlabeled], [*rates, self.prior]
        # An untrusted prior does not decide the orientation.
        by_risk = self.options.warmup == "risk" and self.options.trust != "counts" and bool(strata)
        self._risk_warmup = by_risk and signal_to_noise(*groups) >= WARMUP_SIGNAL
        self._membership = self._membership_weight()
        # Tuples of one class: at a rate of 0 or 1 an instance that is certainly of the other has no likelihood.
        self._usable_rate = usable_rate(task.rate, task.instances)
        # The noise of a batch grows as the gap falls: inside the margin it would outweigh the likelihood.
        margin = self.options.margin
        self._risk_weight = min(1.0, normalised_gap(*groups) / margin) if by_risk and margin > 0 else 1.0

    def _membership_weight(self) -> float:
        """0 if the prior is not trusted, or too near the rate of the tuples for membership to determine a sign."""
        from ntmp_cli.learning.groups import signal_to_noise

        task = self.task
        signal = signal_to_noise([task.instances, task.unlabeled], [task.rate, self.prior])
        if self.options.trust == "counts" or signal < WARMUP_SIGNAL:
            return 0.0
        if self.options.membership is not None:
            return self.options.membership
        return float(self._length > LONG)

    @property
    def _length(self) -> float:
        """Mean number of members."""
        return self.task.instances / sum(tuples for _, _, tuples in self.task.strata)

    def targets(self) -> Targets:
        return self.options.warmup if self.options.warmup in TARGET_WARMUPS else "none"  # type: ignore[return-value]

    def callbacks(self) -> Sequence[Callback]:
        from ntmp_cli.learning.orientation import Orientation
        from ntmp_cli.learning.self_training import SelfTraining

        options = self.options
        # The likelihood is a mean over tuples: of long ones a member has more weight in it, and so have pseudo-labels.
        weight = options.self_training * (self._length / USUAL if self._membership and self._length > LONG else 1.0)
        pseudo_labels = SelfTraining(weight, options.mask_rate, self.config.seed, every=PSEUDO_LABELS_EVERY)
        return [pseudo_labels, Orientation(self.centre_if_flipped)]

    def prepare(self, batch: Batch, progress: float) -> Any:
        plain = super().prepare(batch, progress)
        if self._membership:
            plain = replace(plain, membership_weight=self._membership / len(batch.sizes))
        weight = max(0.0, 1 - progress / WARMUP_FRACTION)
        if self.options.warmup in TARGET_WARMUPS and weight > 0:
            return replace(plain, warmup_weight=weight, closed_form=batch.targets)
        if self._risk_warmup and weight > 0:
            coefficients = self._coefficients(batch.sizes, self._rated(batch), batch.unlabeled)
            return replace(plain, warmup_weight=weight * self._risk_weight, risk=coefficients and coefficients[:2])
        return plain

    def _rated(self, batch: Batch) -> Counts:
        """Counts as the risk takes them: NaN where a tuple's rate is not known."""
        if self.task.knowledge is None:
            return batch.counts
        from ntmp_cli.counting.strata import stratum_counts

        return stratum_counts(batch.sizes, batch.counts, self.task.rated_counts)

    def loss(self, scores: Tensor, prepared: Any) -> tuple[Tensor, Tensor]:
        import torch
        from torch.nn.functional import binary_cross_entropy_with_logits

        from ntmp_cli.learning.known_slopes import (
            clamped_sigmoid_risk,
            confidence_weighted_loss,
            membership_nll,
            with_slope,
        )

        z, inside = scores.detach(), prepared.tuple_instances
        nll, slope = self.nll(z, prepared)
        loss, first, second, pseudo = nll, *3 * [z.new_zeros(())]
        if prepared.risk is not None:
            plus, minus = (weights.to(z) for weights in prepared.risk)
            first, second, term = clamped_sigmoid_risk(z, plus, minus)
            loss = loss + prepared.warmup_weight * (first.relu() + second.relu())
            slope.add_(term, alpha=prepared.warmup_weight)
        if prepared.closed_form is not None:
            # Of tuple instances the closed form gives the probability at the tuples' rate, of U that at the prior.
            at_rate, targets = torch.cat([z[:inside] - self.shift, z[inside:]]), prepared.closed_form.to(z.device)
            first = binary_cross_entropy_with_logits(at_rate, targets)
            loss = loss + prepared.warmup_weight * first
            slope.add_(at_rate.sigmoid() - targets, alpha=prepared.warmup_weight / len(z))
        if prepared.membership_weight:
            value, term = membership_nll(z, inside, self.prior, self._usable_rate)
            loss = loss + prepared.membership_weight * value
            slope.add_(term, alpha=prepared.membership_weight)
        if prepared.pseudo_label_weight:
            teacher = z if prepared.teacher is None else prepared.teacher
            pseudo, term = confidence_weighted_loss(z[inside:], teacher[inside:])
            pseudo = PSEUDO_LABELS_EVERY * pseudo
            loss = loss + prepared.pseudo_label_weight * pseudo
            slope[inside:].add_(term, alpha=PSEUDO_LABELS_EVERY * prepared.pseudo_label_weight)
        return with_slope(scores, loss, slope), torch.stack([nll, first, second, pseudo])

    def summarise(self, telemetry: NDArray[np.float64]) -> dict[str, Any]:
        nll, first, second, pseudo = telemetry.mean(axis=0).tolist()
        fields = {"nll": nll, "self_training": pseudo}
        if self.options.warmup in TARGET_WARMUPS:
            return {**fields, "closed_form" if self.options.warmup == "discriminant" else "teacher": first}
        below = (telemetry[:, 1:3] < 0).mean(axis=0).tolist()
        names = RISK_TERMS["class"]
        return {
            **fields,
            "risk_terms": dict(zip(names, (first, second), strict=True)),
            "negative_rate": dict(zip(names, below, strict=True)),
        }

    def orientation_test(self, *, prior_is_known: bool = True) -> OrientationTest:
        """Evidence for the orientation; a prior that was estimated from the counts is no independent evidence."""
        from ntmp_cli.learning.orientation_evidence import OrientationTest

        known = prior_is_known or self.task.symmetric
        return OrientationTest(self.task, self.prior, self.prior if known else None, self.law)

    def centre_if_flipped(self, heldout: HeldoutScores) -> float | None:
        """The centre of the flip if the classes appear exchanged; else None.

        Counts never flip a network on the plateau: there its sign is random, and so is the sign test. If a warm-up
        objective or the pool determines the orientation, only certain evidence flips the network.
        """
        from ntmp_cli.learning.orientation_evidence import CERTAIN, UNDECIDED

        few = min(len(heldout.sizes), SIGN_TEST_TUPLES)
        inside = int(heldout.sizes[:few].sum())
        judged = replace(
            heldout,
            tuple_scores=heldout.tuple_scores[:inside],
            sizes=heldout.sizes[:few],
            counts=heldout.counts[:few],
        )
        test = self.orientation_test()
        fits = test.count_fits(judged)
        evidence = test.evidence([heldout], fits).trusted(self.options.trust)
        needs_certainty = self.warms_up or self.task.symmetric or fits.on_plateau
        return self.shift if evidence.z < -(CERTAIN if needs_certainty else UNDECIDED) else None

    @property
    def warms_up(self) -> bool:
        """Whether an objective of one orientation starts the training."""
        return self.options.warmup in TARGET_WARMUPS or self._risk_warmup


def require_teacher(options: CountSettings) -> None:
    """Refuse a teacher without its warm-up, and the warm-up without a teacher."""
    if options.warmup == "teacher" and options.teacher is None:
        raise UsageError("warmup: teacher needs the run of a teacher", hint="Give it as --teacher DIR.")
    if options.teacher is not None and options.warmup != "teacher":
        raise UsageError(
            f"teacher: has no effect with the warm-up {options.warmup}", hint="Add --warmup teacher, or leave it out."
        )


def require_side(options: CountSettings, task: Task, prior: float | None) -> None:
    """Raise an error for contradictory settings of the orientation."""
    if options.trust == "counts" and task.symmetric:
        raise UsageError(
            "trust: every tuple is half positive, so that the counts do not determine the orientation",
            hint="Trust the prior, or add tuples of another rate.",
        )
    if options.assume is not None and prior is not None and (prior < 0.5) != (options.assume == "prior<0.5"):
        raise UsageError(f"assume: {options.assume}, but the prior is {prior:g}", hint="Leave one of them out.")


def observed_counts(heldout: HeldoutScores, law: NoiseLaw) -> CountObservations:
    """The recorded counts of held-out tuples, under the noise law of the training."""
    from ntmp_cli.counting.observations import CountObservations

    return CountObservations(heldout.sizes, heldout.counts, law)


def tuple_nll(heldout: HeldoutScores, shift: float, law: NoiseLaw) -> HeldoutRisk:
    """−log P(count) of held-out tuples under the best a·z + b with 0 < a ≤ 1.

    Networks become overconfident long before their ranking becomes worse; the slope a corrects for that. It is at most
    1, because otherwise a few tuples that are ranked without error by chance would get probability one.
    """
    from ntmp_cli.counting.poisson_binomial import count_log_prob
    from ntmp_cli.counting.recalibration import recalibrate

    z = heldout.tuple_scores - shift
    observed = observed_counts(heldout, law)
    line = recalibrate(z, observed, steepest=0.0)
    return HeldoutRisk(line.nll, -count_log_prob(line.slope * z + line.intercept, observed))
