"""All estimators on cross-fitted scores, with intervals and a cross-check between them.

The interval of the default estimator covers every prior that the scores do not contradict (Eq. 53,
`prior.score_interval`). The other estimators have bootstrap intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ntmp_cli.counting.recalibration import CLEAR_NATS, recalibrate
from ntmp_cli.counting.recorded import exact_rows
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.prior.binned_sums import BinnedSums
from ntmp_cli.prior.estimator import Floats, ScoredTuples, priors
from ntmp_cli.prior.score_interval import prior_interval
from ntmp_cli.prior.tails import NeymanPearson, neyman_pearson
from ntmp_cli.progress import long_step

DEFAULT, CROSS_CHECK = "em-affine", "moments"
# An interval is given when at most this share of its resamples is undefined.
MOST_UNDEFINED = 0.05


@dataclass(frozen=True)
class Estimate:
    """One estimator's result; None where it is undefined."""

    value: float | None
    ci: tuple[float, float] | None
    resamples: Floats


@dataclass(frozen=True)
class PriorEstimates:
    """Every estimator's result, the bound, and the warnings."""

    estimates: dict[str, Estimate]
    bound: NeymanPearson
    folds: list[ScoredTuples]  # oriented
    orientation_nats: float | None
    """Evidence for the orientation; None where the counts cannot decide it."""
    gain_nats: float
    """Log-likelihood of the counts under the scores minus that under a constant."""
    identified: bool
    """Whether the mirror 1 − π is excluded."""
    warnings: list[str]


def estimate_priors(
    folds: Sequence[ScoredTuples],
    rng: np.random.Generator,
    resamples: int = 1000,
    confidence: float = 0.95,
    below_half: bool | None = None,
) -> PriorEstimates:
    """Every registered estimator on scores of several scorers, each on its own fold; weighted means over the folds.

    `below_half` states whether π < ½. It is needed only if every tuple is half positive.
    """
    _require_information(folds)
    with long_step("recalibrating the scores"):
        gain = _gain(folds)
        oriented, nats, identified = _orient(folds, below_half)
        sums_by_fold = [BinnedSums(fold) for fold in oriented]
    shares = np.array([len(fold.unlabeled) for fold in oriented], dtype=np.float64)
    shares /= shares.sum()
    samples = [sums.sample() for sums in sums_by_fold]
    estimates = {}
    resampled = [_resampled(sums, resamples, rng) for sums in sums_by_fold]
    for name in priors.names():
        values = np.array([priors.get(name)(sample)[0] for sample in samples])
        resampled_means = shares @ np.stack([estimates_by_name[name] for estimates_by_name in resampled])
        estimates[name] = with_percentiles(float(shares @ values), resampled_means, confidence)
    # Tuples of one rate determine only the square of the slope, so its error is not normal near 0.
    with long_step("computing the interval"):
        interval = _interval(oriented, nats, confidence) if gain >= CLEAR_NATS else (0.0, 1.0)
    estimates[DEFAULT] = replace(estimates[DEFAULT], ci=_including(interval, estimates[DEFAULT].value))
    bounds = np.array([neyman_pearson(sample, confidence) for sample in samples])
    bound = NeymanPearson(*(float(x) for x in shares @ bounds))
    result = PriorEstimates(estimates, bound, oriented, nats, gain, identified, [])
    return replace(result, warnings=_warnings(result, below_half))


def _interval(folds: Sequence[ScoredTuples], nats: float | None, confidence: float) -> tuple[float, float]:
    """The interval by the score equation; the union over both orientations if they are about equally probable."""
    low, high = prior_interval(folds, confidence)
    if nats is not None and nats < CLEAR_NATS:
        mirrored = prior_interval([fold.mirrored() for fold in folds], confidence)
        low, high = min(low, mirrored[0]), max(high, mirrored[1])
    return low, high


def _including(interval: tuple[float, float], value: float | None) -> tuple[float, float]:
    low, high = interval
    return interval if value is None else (min(low, value), max(high, value))


def _require_information(folds: Sequence[ScoredTuples]) -> None:
    for fold in folds:
        if not (np.isfinite(fold.scores).all() and np.isfinite(fold.unlabeled).all()):
            raise NotIdentifiableError("the score model diverged", hint="Lower --lr.")
    if not all(0 < fold.rate < 1 for fold in folds):
        raise NotIdentifiableError(
            "all tuple instances are of one class, so the classes cannot be separated",
            hint="Use tuples with 0 < m < n, or of several rates.",
        )


def _gain(folds: Sequence[ScoredTuples]) -> float:
    """Log-likelihood of the counts under recalibrated scores (Eq. 30) of the better sign, minus that of a constant."""
    gain = 0.0
    for fold in folds:
        constant = recalibrate(np.zeros_like(fold.scores), fold.observed, spread=fold.spread).nll
        mirrored = recalibrate(-fold.scores, fold.observed, spread=fold.spread).nll
        gain += len(fold.sizes) * (constant - min(fold.line.nll, mirrored))
    return float(gain)


def _orient(folds: Sequence[ScoredTuples], below_half: bool | None) -> tuple[list[ScoredTuples], float | None, bool]:
    """Every fold in its orientation, the evidence for it in nats, and whether it is determined by data or user.

    If every tuple is half positive, it is not determined; the orientation with a prior below ½ is returned.
    """
    if not all(fold.symmetric for fold in folds):
        oriented = [fold.oriented() for fold in folds]
        nats = sum(len(f.sizes) * (f.mirrored().line.nll - f.line.nll) for f in oriented)
        return oriented, float(nats), True
    # The orientation of each scorer is random; their estimates on U align them.
    pointing = [priors.get(DEFAULT)(BinnedSums(fold).sample())[0] < 0.5 for fold in folds]
    wanted = below_half is not False
    oriented = [f if below == wanted else f.mirrored() for f, below in zip(folds, pointing, strict=True)]
    return oriented, None, below_half is not None


def _has_exact(fold: ScoredTuples) -> bool:
    """Whether any tuple has an exact count, of both classes."""
    likely = fold.observed.likely
    return bool((exact_rows(fold.counts) & (likely > 0) & (likely < fold.sizes)).any())


def _resampled(sums: BinnedSums, number: int, rng: np.random.Generator) -> dict[str, Floats]:
    values: dict[str, list[Floats]] = {name: [] for name in priors.names()}
    with long_step("bootstrapping the prior", number, "resamples") as advance:
        for sample in sums.resamples(number, rng):
            for name, blocks in values.items():
                blocks.append(priors.get(name)(sample))
            advance(len(sample.unlabeled))
    return {name: np.concatenate(blocks) if blocks else np.empty(0) for name, blocks in values.items()}


def with_percentiles(value: float, resampled: Floats, confidence: float) -> Estimate:
    """A value with the percentile interval of its resamples."""
    defined = resampled[np.isfinite(resampled)]
    ci = None
    if len(defined) and len(defined) >= (1 - MOST_UNDEFINED) * len(resampled):
        low, high = np.quantile(defined, [(1 - confidence) / 2, (1 + confidence) / 2])
        ci = float(low), float(high)
    return Estimate(value if np.isfinite(value) else None, ci, resampled)


def _warnings(result: PriorEstimates, below_half: bool | None) -> list[str]:
    """Warnings about the estimate."""
    warnings = []
    used, cross_check, nats = result.estimates[DEFAULT], result.estimates[CROSS_CHECK], result.orientation_nats
    value, ci, cross_check_ci = used.value, used.ci, cross_check.ci
    if result.gain_nats < CLEAR_NATS:
        warnings.append(
            "the scores are almost uninformative: held-out counts are hardly more probable under them than under a "
            "constant; the interval contains every prior that remains possible"
        )
    if not result.identified and value is not None:
        warnings.append(
            f"every tuple is half positive: the prior is known only up to its mirror, {value:.3f} or {1 - value:.3f}; "
            "choose with --assume 'prior<0.5' or --assume 'prior>0.5', or add tuples of another rate"
        )
    if nats is not None and nats < CLEAR_NATS:
        warnings.append(
            f"the orientation is uncertain: the counts favour it by only {nats:.1f} nats; "
            "the interval allows for the opposite one"
        )
    if cross_check.value is None and not any(_has_exact(fold) for fold in result.folds):
        warnings.append(
            f"there is no cross-check by {CROSS_CHECK}, which needs exact counts of tuples with members of both classes"
        )
    elif cross_check.value is None:
        warnings.append(
            "scores of a tuple's members are not negatively correlated: they carry hardly any class information"
        )
    elif ci and cross_check_ci and (ci[1] < cross_check_ci[0] or cross_check_ci[1] < ci[0]):
        warnings.append(
            f"{DEFAULT} and {CROSS_CHECK} disagree beyond their intervals: the classes may look different in tuples "
            "and in the unlabeled data, or counts may be wrong"
        )
    bound = result.bound
    if ci and ci[0] > 1 - bound.low:
        warnings.append(
            f"the estimate exceeds the upper bound {1 - bound.low:.3f}: the score model is poor, or the data shifted"
        )
    if value is not None and below_half is not None and nats is not None and (value < 0.5) != below_half:
        warnings.append("the counts determine the orientation, and it contradicts --assume")
    return warnings
