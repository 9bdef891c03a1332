"""All estimators on cross-fitted scores, with bootstrap intervals and what they say of each other (SPEC section 5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.prior.estimator import Floats, ScoredTuples, priors
from ntmp_cli.prior.resampling import Sums
from ntmp_cli.prior.tails import NeymanPearson, neyman_pearson

DEFAULT, CROSS_CHECK = "em-affine", "moments"
# Log-likelihood ratios below this leave the side in doubt: a chance of about e^-4.
CLEAR_NATS = 4.0
# An interval is given when at most this share of its resamples is undefined.
MOST_UNDEFINED = 0.05


@dataclass(frozen=True)
class Estimate:
    """One estimator's answer; None where it is undefined."""

    value: float | None
    ci: tuple[float, float] | None
    resamples: Floats


@dataclass(frozen=True)
class PriorEstimates:
    """Every estimator's answer, the bound, and the doubts."""

    estimates: dict[str, Estimate]
    bound: NeymanPearson
    folds: list[ScoredTuples]  # oriented
    orientation_nats: float | None  # None where the counts cannot tell the sides apart
    warnings: list[str]


def estimate_priors(
    folds: Sequence[ScoredTuples],
    rng: np.random.Generator,
    resamples: int = 1000,
    confidence: float = 0.95,
    below_half: bool | None = None,
) -> PriorEstimates:
    """Every registered estimator on scores of several scorers, each on its own part of the data; means over the parts.

    `below_half` is outside knowledge of the side, for tuples that are half positive throughout.
    """
    _require_information(folds)
    _require_learning(folds)
    oriented, nats = _orient(folds, below_half)
    parts = [Sums(fold) for fold in oriented]
    shares = np.array([len(fold.unlabeled) for fold in oriented], dtype=np.float64)
    shares /= shares.sum()
    samples = [part.sample() for part in parts]
    found = {}
    drawn = [_resampled(part, resamples, rng) for part in parts]
    for name in priors.names():
        values = np.array([priors.get(name)(sample)[0] for sample in samples])
        again = shares @ np.stack([some[name] for some in drawn])
        found[name] = _summary(float(shares @ values), again, confidence)
    bounds = np.array([neyman_pearson(sample, confidence) for sample in samples])
    bound = NeymanPearson(*(float(x) for x in shares @ bounds))
    return PriorEstimates(found, bound, oriented, nats, _doubts(found, bound, oriented, nats, below_half))


def _require_information(folds: Sequence[ScoredTuples]) -> None:
    for fold in folds:
        if not (np.isfinite(fold.scores).all() and np.isfinite(fold.unlabeled).all()):
            raise NotIdentifiableError("the score model diverged", hint="Lower --lr.")
    if not all(0 < fold.rate < 1 for fold in folds):
        raise NotIdentifiableError(
            "all tuple instances are of one class, so nothing tells the classes apart",
            hint="Use tuples with 0 < m < n, or of several rates.",
        )


def _require_learning(folds: Sequence[ScoredTuples]) -> None:
    """Under scores that say something the counts are more probable than under a constant, on either side."""
    gain = 0.0
    for fold in folds:
        constant = recalibrate(np.zeros_like(fold.scores), fold.observed).nll
        other = recalibrate(-fold.scores, fold.observed).nll
        gain += len(fold.sizes) * (constant - min(fold.line.nll, other))
    if gain < CLEAR_NATS:
        raise NotIdentifiableError(
            "the score model has learned nothing: held-out counts are no more probable under it than under a constant",
            hint="Train it longer (--epochs, --lr), with another --model or --encoder, or --warmup discriminant.",
        )


def _orient(folds: Sequence[ScoredTuples], below_half: bool | None) -> tuple[list[ScoredTuples], float | None]:
    """Every part on its right side, and the evidence for that in nats: by how much the counts are more probable."""
    if not all(fold.symmetric for fold in folds):
        oriented = [fold.oriented() for fold in folds]
        nats = sum(len(f.sizes) * (recalibrate(-f.scores, f.observed).nll - f.line.nll) for f in oriented)
        return oriented, float(nats)
    # Which side each scorer ended on is chance: they are put on the same one by what they say of U.
    pointing = [priors.get(DEFAULT)(Sums(fold).sample())[0] < 0.5 for fold in folds]
    if below_half is None:
        low = [f if below else f.mirrored() for f, below in zip(folds, pointing, strict=True)]
        value = float(np.mean([priors.get(DEFAULT)(Sums(fold).sample())[0] for fold in low]))
        raise NotIdentifiableError(
            f"every tuple is half positive: the prior is known only up to its mirror, {value:.3f} or {1 - value:.3f}",
            hint="Say which by --assume 'prior<0.5' or --assume 'prior>0.5', or add tuples of another rate.",
        )
    return [f if below == below_half else f.mirrored() for f, below in zip(folds, pointing, strict=True)], None


def _resampled(part: Sums, number: int, rng: np.random.Generator) -> dict[str, Floats]:
    values: dict[str, list[Floats]] = {name: [] for name in priors.names()}
    for sample in part.resamples(number, rng):
        for name, into in values.items():
            into.append(priors.get(name)(sample))
    return {name: np.concatenate(some) if some else np.empty(0) for name, some in values.items()}


def _summary(value: float, again: Floats, confidence: float) -> Estimate:
    defined = again[np.isfinite(again)]
    ci = None
    if len(defined) and len(defined) >= (1 - MOST_UNDEFINED) * len(again):
        low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
        ci = float(low), float(high)
    return Estimate(value if np.isfinite(value) else None, ci, again)


def _doubts(
    found: dict[str, Estimate],
    bound: NeymanPearson,
    folds: Sequence[ScoredTuples],
    nats: float | None,
    below_half: bool | None,
) -> list[str]:
    """What a careful reader should know before using the number."""
    doubts = []
    value, ci = found[DEFAULT].value, found[DEFAULT].ci
    other = found[CROSS_CHECK].ci
    if nats is not None and nats < CLEAR_NATS:
        doubts.append(
            f"which class is which is in doubt: the counts favour this side by only {nats:.1f} nats; "
            "the other side would give another prior"
        )
    if found[CROSS_CHECK].value is None:
        doubts.append(
            "scores of a tuple's members are not negatively correlated: they carry hardly any class information"
        )
    elif ci and other and (ci[1] < other[0] or other[1] < ci[0]):
        doubts.append(
            f"{DEFAULT} and {CROSS_CHECK} disagree beyond their intervals: the classes may look different in tuples "
            "and in the unlabeled data, or counts may be wrong"
        )
    if ci and ci[0] > 1 - bound.low:
        doubts.append(
            f"the estimate exceeds the upper bound {1 - bound.low:.3f}: the score model is poor, or data shift"
        )
    if value is not None and below_half is not None and nats is not None and (value < 0.5) != below_half:
        doubts.append("the counts themselves tell the side, and contradict --assume")
    return doubts
