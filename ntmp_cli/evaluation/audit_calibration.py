"""How scores become probabilities in an audit, with the recorded counts exact or off by one: which explains more?

A confident score that is wrong and a count that is off by one look alike: either puts the recorded count one away from
the likeliest. A line a·z + b alone cannot say "now and then a confident score is wrong", so that a law of noisy counts
would fit better wherever scores are overconfident. Calibrated probabilities therefore have a floor,

    P(y=1 | x) = δ + (1 − 2δ) σ(a·z + b),

and natural groups the random intercept that the training found. a and δ are those of greatest likelihood of

    Σ_t log Σ_k R_ε(recorded | k) ρ_k P(k | x_t) / P(k),

see `count_audit`; b is such that the mean probability of members is their recorded rate, without which P(k) would not
be the law of a random tuple's count. Counts are called wrong only if ε > 0 gains more than chance does over ε = 0, both
with their own a, δ and ρ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import chdtri, expit

from ntmp_cli.counting.laws import Floats, Ints, NoiseLaw, OffByOne
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.evaluation.count_audit import (
    Assumed,
    CountAudit,
    audit_counts,
    design_of,
)
from ntmp_cli.learning.groups import usable_rate
from ntmp_cli.learning.tables.objective import CountObjective

FLATTEST, STEEPEST = -6.0, 4.0
HIGHEST_FLOOR = 0.25
# A floor near the rate of the rarer class would leave scores no say.
MOST_OF_RATE = 0.9
# Starts of log a and δ: nearly as scored, and steeper with a floor.
STARTS = ((0.0, 0.001), (1.0, 0.02))
ROUNDS = 12
SETTLED = 0.01
NEWTON_STEPS = 30
CERTAIN = 1e-15


class CountedScores(Protocol):
    """Scores of tuples' members in a row, the sizes of the tuples and their recorded counts."""

    @property
    def scores(self) -> Floats: ...
    @property
    def sizes(self) -> Ints: ...
    @property
    def counts(self) -> Ints: ...


@dataclass(frozen=True)
class Calibration:
    """z → logit(δ + (1 − 2δ) σ(a·z + b))."""

    slope: float
    intercept: float
    floor: float

    def __call__(self, z: NDArray[np.floating[np.float64]] | Floats) -> Floats:
        p = np.clip(_floored(self.slope * z + self.intercept, self.floor), CERTAIN, 1 - CERTAIN)
        log_odds: Floats = np.log(p) - np.log1p(-p)
        return log_odds


class Calibrated(NamedTuple):
    """A calibration per fold, with the noise rate and the log-likelihood that they reach together."""

    by_fold: tuple[Calibration, ...]
    noise: float
    log_likelihood: float


class AuditedFolds(NamedTuple):
    """The audit of all folds, and twice the gain of log-likelihood by counts that may be off by one."""

    audit: CountAudit
    gain: float


def audit_folds(folds: Sequence[CountedScores], spread: float, confidence: float) -> AuditedFolds:
    """Judge recorded counts; where exact ones explain the scores as well, no count is called wrong."""
    exact = _best(folds, spread, [_start(folds, spread, *start) for start in STARTS], is_noisy=False)
    noisy = _best(folds, spread, [_start(folds, spread, *STARTS[0]), exact.by_fold], is_noisy=True)
    gain = 2 * (noisy.log_likelihood - exact.log_likelihood)
    judged = _audit(folds, noisy, confidence, Assumed(spread=spread))
    if gain > float(chdtri(1, 1 - confidence)):
        return AuditedFolds(judged, gain)
    blameless = _audit(folds, exact, confidence, Assumed(noise=0.0, spread=spread))
    return AuditedFolds(replace(blameless, noise_ci=(0.0, judged.noise_ci[1])), gain)


def _audit(folds: Sequence[CountedScores], fitted: Calibrated, confidence: float, assumed: Assumed) -> CountAudit:
    z, sizes, counts = _joined(folds, fitted.by_fold)
    return audit_counts(z, sizes, counts, _rate(sizes, counts), confidence, assumed)


def _best(
    folds: Sequence[CountedScores], spread: float, starts: Sequence[tuple[Calibration, ...]], *, is_noisy: bool
) -> Calibrated:
    fits = [_fit(folds, spread, start, is_noisy=is_noisy) for start in starts]
    return max(fits, key=lambda fitted: fitted.log_likelihood)


def _fit(
    folds: Sequence[CountedScores], spread: float, start: tuple[Calibration, ...], *, is_noisy: bool
) -> Calibrated:
    """Shares of true counts and noise rate by EM, then the calibrations given them, until neither gains."""
    assumed = Assumed(noise=None if is_noisy else 0.0, spread=spread)
    fitted = Calibrated(start, 0.0, -np.inf)
    for _ in range(ROUNDS):
        z, sizes, counts = _joined(folds, fitted.by_fold)
        design = design_of(z, sizes, counts, _rate(sizes, counts), assumed)
        if design.log_likelihood - fitted.log_likelihood < SETTLED:
            break
        law = _DesignLaw(design.noise, design.shares_over_chance)
        fitted = Calibrated(fitted.by_fold, design.noise, design.log_likelihood)
        improved = tuple(
            _calibrate(fold, spread, law, before) for fold, before in zip(folds, fitted.by_fold, strict=True)
        )
        last, fitted = fitted, Calibrated(improved, design.noise, design.log_likelihood)
    return fitted if design.log_likelihood >= fitted.log_likelihood else last


@dataclass(frozen=True)
class _DesignLaw(NoiseLaw):
    """R_ε(recorded | k) ρ_k / P(k): with it the law of a random tuple's count becomes that of the design."""

    noise: float
    by_length: dict[int, Floats]

    def likelihood(self, recorded: Ints, k: Ints, n: Ints | int) -> Floats:
        lengths = np.array(sorted(self.by_length))
        table = np.zeros((len(lengths), int(lengths[-1]) + 1))
        for row, length in zip(table, lengths.tolist(), strict=True):
            row[: length + 1] = self.by_length[length]
        inside = np.clip(k, 0, n)
        return OffByOne(self.noise).likelihood(recorded, k, n) * table[np.searchsorted(lengths, n), inside]

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        return OffByOne(self.noise).sample(counts, sizes, rng)

    def support(self, recorded: Ints, n: Ints) -> tuple[Ints, Ints]:
        return (recorded, recorded) if self.noise == 0 else OffByOne(self.noise).support(recorded, n)


def _calibrate(fold: CountedScores, spread: float, law: NoiseLaw, before: Calibration) -> Calibration:
    """The slope and floor of greatest likelihood, by L-BFGS from those before."""
    objective = CountObjective(CountObservations(fold.sizes, fold.counts, law), spread)
    z, rate = np.asarray(fold.scores, dtype=np.float64), _rate(fold.sizes, fold.counts)
    intercept = before.intercept

    def loss(at: Floats) -> tuple[float, Floats]:
        nonlocal intercept
        slope, floor = float(np.exp(at[0])), float(at[1])
        calibration = _centred(z, slope, floor, rate, spread, intercept)
        intercept = calibration.intercept
        p = expit(slope * z + intercept)
        q = np.clip(_floored(slope * z + intercept, floor), CERTAIN, 1 - CERTAIN)
        value, by_score = objective.value_and_gradient(np.log(q) - np.log1p(-q))
        by_q = by_score / (q * (1 - q))
        steep = (1 - 2 * floor) * p * (1 - p)
        # The intercept follows slope and floor, so that the mean of q stays: db = −(Σ∂q) / (Σ∂q/∂b).
        total = max(float(steep.sum()), CERTAIN)
        by_intercept = float(by_q @ steep)
        by_slope = slope * (float(by_q @ (steep * z)) - by_intercept * float(steep @ z) / total)
        by_floor = float(by_q @ (1 - 2 * p)) - by_intercept * float((1 - 2 * p).sum()) / total
        return -value, -np.array([by_slope, by_floor])

    highest = min(HIGHEST_FLOOR, MOST_OF_RATE * min(rate, 1 - rate))
    start = np.array([np.log(before.slope), min(before.floor, highest)])
    bounds = [(FLATTEST, STEEPEST), (0.0, highest)]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30})
    if not best.fun <= loss(start)[0]:
        return before
    return _centred(z, float(np.exp(best.x[0])), float(best.x[1]), rate, spread, intercept)


def _start(folds: Sequence[CountedScores], spread: float, log_slope: float, floor: float) -> tuple[Calibration, ...]:
    calibrations = []
    for fold in folds:
        rate = _rate(fold.sizes, fold.counts)
        usable = min(floor, MOST_OF_RATE * min(rate, 1 - rate))
        calibrations.append(_centred(fold.scores, float(np.exp(log_slope)), usable, rate, spread, 0.0))
    return tuple(calibrations)


def _centred(z: Floats, slope: float, floor: float, rate: float, spread: float, start: float) -> Calibration:
    """The intercept at which the mean probability is the rate: by Newton's method, halved where it overshoots."""
    scaled = slope * np.asarray(z, dtype=np.float64)
    target = (rate - floor) / (1 - 2 * floor)
    low, high = -50.0 - float(scaled.max()), 50.0 - float(scaled.min())
    at = min(max(start, low), high)
    for _ in range(NEWTON_STEPS):
        p = expit(scaled + at)
        excess = float(p.mean()) - target
        if abs(excess) < 1e-9:
            break
        low, high = (low, at) if excess > 0 else (at, high)
        step = at - excess / max(float((p * (1 - p)).mean()), CERTAIN)
        at = step if low < step < high else (low + high) / 2
    return Calibration(slope, at, floor)


def _floored(scaled: Floats, floor: float) -> Floats:
    probability: Floats = floor + (1 - 2 * floor) * expit(scaled)
    return probability


def _joined(folds: Sequence[CountedScores], calibrations: Sequence[Calibration]) -> tuple[Floats, Ints, Ints]:
    z = np.concatenate([calibration(fold.scores) for calibration, fold in zip(calibrations, folds, strict=True)])
    return z, np.concatenate([fold.sizes for fold in folds]), np.concatenate([fold.counts for fold in folds])


def _rate(sizes: Ints, counts: Ints) -> float:
    return usable_rate(float(counts.sum() / sizes.sum()))
