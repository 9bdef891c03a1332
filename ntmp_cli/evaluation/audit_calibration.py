"""Calibration of scores in an audit, under exact counts and under counts that may be off by one.

A confident but wrong score and a count that is off by one have the same effect: the recorded count is one away from
the most probable one. A line a·z + b has no place for confident errors, so that overconfident scores alone would favour
a law of noisy counts. Calibrated probabilities therefore have a floor and a ceiling (Eq. 64),

    P(y=1 | x) = δ₀ + (1 − δ₀ − δ₁) σ(a·z + b),

and natural groups have the random intercept of the training. a, δ₀ and δ₁ maximise

    Σ_t log Σ_k R_ε(recorded | k) ρ_k P(k | x_t) / P(k),

see `count_audit`. b makes the mean probability of members equal to their recorded rate; otherwise P(k) would not be the
distribution of a random tuple's count. Counts are called wrong only if the fit with ε > 0 is significantly better than
the fit with ε = 0. Both fits have their own a, δ₀, δ₁ and ρ (Eq. 65).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from scipy.optimize import brentq, minimize
from scipy.special import chdtri, expit

from ntmp_cli.counting.laws import Exact, Floats, Ints, NoiseLaw, OffByOne
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.evaluation.count_audit import (
    LARGEST,
    Assumed,
    CountAudit,
    audit_counts,
    design_of,
    parameters_of_shares,
)
from ntmp_cli.learning.groups import usable_rate

FLATTEST, STEEPEST = -6.0, 4.0
LARGEST_TAIL = 0.25
# With a floor or a ceiling near the rate, scores would have no effect.
MOST_OF_RATE = 0.9
# Starts of log a and of both tails: nearly as scored, and steeper with a floor and a ceiling.
STARTS = ((0.0, 0.001), (1.0, 0.02))
ROUNDS = 12
SETTLED = 0.01
# Tolerance of the limits of the noise rate.
PRECISION = 1e-3
NEWTON_STEPS = 60
CENTRED = 1e-10
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
    """z → logit(δ₀ + (1 − δ₀ − δ₁) σ(a·z + b)), with the tails (δ₀, δ₁)."""

    slope: float
    intercept: float
    tails: tuple[float, float]

    def probabilities(self, z: Floats) -> Floats:
        low, high = self.tails
        p: Floats = low + (1 - low - high) * expit(self.slope * z + self.intercept)
        return np.clip(p, CERTAIN, 1 - CERTAIN)

    def __call__(self, z: Floats) -> Floats:
        p = self.probabilities(np.asarray(z, dtype=np.float64))
        log_odds: Floats = np.log(p) - np.log1p(-p)
        return log_odds


class Calibrated(NamedTuple):
    """A calibration per fold, with the noise rate and the log-likelihood that they reach together."""

    by_fold: tuple[Calibration, ...]
    noise: float
    log_likelihood: float


def audit_folds(folds: Sequence[CountedScores], spread: float, confidence: float) -> CountAudit:
    """Judge recorded counts; if exact counts explain the scores as well, none is flagged."""
    allowed = float(chdtri(1, 1 - confidence))
    chosen = _comparison(folds, spread)
    gain = chosen.gain
    if chosen.assumed.at_random and gain > allowed:
        # Exact counts may vary more than those of random tuples; estimated shares must not explain this as noise.
        gain = min(gain, _compared(folds, replace(chosen.assumed, at_random=False)).gain)
    is_noisy = gain > allowed
    fitted = chosen.noisy if is_noisy else chosen.exact
    z, sizes, counts = _joined(folds, fitted.by_fold)
    known = replace(chosen.assumed, noise=fitted.noise)
    judged = audit_counts(z, sizes, counts, _rate(sizes, counts), confidence, known)
    low, high = _limits(folds, chosen, allowed)
    return replace(judged, noise_ci=(low if is_noisy else 0.0, high), gain=gain)


def _comparison(folds: Sequence[CountedScores], spread: float) -> _Comparison:
    """Whether tuples are taken as sampled at random, or get estimated shares of true counts.

    The Bayesian information criterion decides: with few tuples of many lengths, estimated shares would fit any counts.
    """
    sizes = np.concatenate([fold.sizes for fold in folds])
    at_random, designed = Assumed(None, spread, at_random=True), Assumed(None, spread)
    simple, free = (_exact(folds, assumed) for assumed in (at_random, designed))
    gain = 2 * (free.log_likelihood - simple.log_likelihood)
    if gain > parameters_of_shares(sizes) * np.log(len(sizes)):
        return _compared(folds, designed, free)
    return _compared(folds, at_random, simple)


class _Comparison(NamedTuple):
    """Maximum-likelihood calibrations with exact counts and with counts that may be off by one."""

    assumed: Assumed
    exact: Calibrated
    noisy: Calibrated

    @property
    def gain(self) -> float:
        """Twice the gain of log-likelihood."""
        return 2 * (self.noisy.log_likelihood - self.exact.log_likelihood)


def _compared(folds: Sequence[CountedScores], assumed: Assumed, exact: Calibrated | None = None) -> _Comparison:
    exact = exact or _exact(folds, assumed)
    noisy = _best(folds, assumed, [_start(folds, *STARTS[0]), exact.by_fold])
    return _Comparison(assumed, exact, max(exact, noisy, key=lambda fitted: fitted.log_likelihood))


def _exact(folds: Sequence[CountedScores], assumed: Assumed) -> Calibrated:
    return _best(folds, replace(assumed, noise=0.0), [_start(folds, *start) for start in STARTS])


def _limits(folds: Sequence[CountedScores], chosen: _Comparison, allowed: float) -> tuple[float, float]:
    """Where twice the loss of log-likelihood, all else fitted anew, passes the quantile of χ²."""
    best = chosen.noisy

    def excess(rate: float) -> float:
        fitted = _fit(folds, replace(chosen.assumed, noise=rate), best.by_fold)
        return 2 * (best.log_likelihood - fitted.log_likelihood) - allowed

    low = brentq(excess, 0.0, best.noise, xtol=PRECISION) if best.noise > 0 and excess(0.0) > 0 else 0.0
    is_bounded = best.noise < LARGEST and excess(LARGEST) > 0
    high = brentq(excess, best.noise, LARGEST, xtol=PRECISION) if is_bounded else LARGEST
    return float(low), float(high)


def _best(folds: Sequence[CountedScores], assumed: Assumed, starts: Sequence[tuple[Calibration, ...]]) -> Calibrated:
    return max((_fit(folds, assumed, start) for start in starts), key=lambda fitted: fitted.log_likelihood)


def _fit(folds: Sequence[CountedScores], assumed: Assumed, start: tuple[Calibration, ...]) -> Calibrated:
    """Alternate between EM for the shares of true counts and the noise rate, and calibration, until convergence."""
    by_fold, best = start, None
    for _ in range(ROUNDS):
        z, sizes, counts = _joined(folds, by_fold)
        design = design_of(z, sizes, counts, _rate(sizes, counts), assumed)
        if best is not None and design.log_likelihood - best.log_likelihood < SETTLED:
            break
        best = Calibrated(by_fold, design.noise, design.log_likelihood)
        # Of exact counts the shares are a factor that no calibration changes.
        law = _DesignLaw(design.noise, design.shares_over_chance) if design.noise else Exact()
        by_fold = tuple(_calibrate(fold, assumed.spread, law, at) for fold, at in zip(folds, by_fold, strict=True))
    assert best is not None, "there is at least one round"
    return best


@dataclass(frozen=True)
class _DesignLaw(NoiseLaw):
    """R_ε(recorded | k) ρ_k / P(k): with it the law of a random tuple's count becomes that of the design."""

    noise: float
    by_length: dict[int, Floats]

    def likelihood(self, recorded: Floats | Ints, k: Ints, n: Ints | int) -> Floats:
        lengths = np.array(sorted(self.by_length))
        table = np.zeros((len(lengths), int(lengths[-1]) + 1))
        for row, length in zip(table, lengths.tolist(), strict=True):
            row[: length + 1] = self.by_length[length]
        inside = np.clip(k, 0, n)
        return OffByOne(self.noise).likelihood(recorded, k, n) * table[np.searchsorted(lengths, n), inside]

    def sample(self, counts: Ints, sizes: Ints, rng: np.random.Generator) -> Ints:
        return OffByOne(self.noise).sample(counts, sizes, rng)

    def support(self, recorded: Floats | Ints, n: Ints) -> tuple[Ints, Ints]:
        return OffByOne(self.noise).support(recorded, n)


def _calibrate(fold: CountedScores, spread: float, law: NoiseLaw, before: Calibration) -> Calibration:
    """The slope and the tails of greatest likelihood, by L-BFGS from those before."""
    objective = CountObjective(CountObservations(fold.sizes, fold.counts, law), spread)
    z, rate = np.asarray(fold.scores, dtype=np.float64), _rate(fold.sizes, fold.counts)
    at_last = before.intercept

    def loss(at: Floats) -> tuple[float, Floats]:
        nonlocal at_last
        slope, low, high = float(np.exp(at[0])), float(at[1]), float(at[2])
        calibration = _centred(z, rate, slope, (low, high), at_last)
        at_last = calibration.intercept
        p, q = expit(slope * z + at_last), calibration.probabilities(z)
        value, by_score = objective.value_and_gradient(np.log(q) - np.log1p(-q))
        by_q, steep = by_score / (q * (1 - q)), (1 - low - high) * p * (1 - p)
        # The intercept follows the others, so that the mean of q stays: db = −(Σ∂q) / (Σ∂q/∂b).
        slopes = np.stack([slope * steep * z, 1 - p, -p])
        by_intercept = float(by_q @ steep) / max(float(steep.sum()), CERTAIN)
        return -value, -(slopes @ by_q - by_intercept * slopes.sum(axis=1))

    highest = _largest_tails(rate)
    start = np.array([np.log(before.slope), *np.minimum(before.tails, highest)])
    bounds = [(FLATTEST, STEEPEST), (0.0, highest[0]), (0.0, highest[1])]
    best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 40})
    if not best.fun <= loss(start)[0]:
        return before
    return _centred(z, rate, float(np.exp(best.x[0])), (float(best.x[1]), float(best.x[2])), at_last)


def _largest_tails(rate: float) -> tuple[float, float]:
    return min(LARGEST_TAIL, MOST_OF_RATE * rate), min(LARGEST_TAIL, MOST_OF_RATE * (1 - rate))


def _start(folds: Sequence[CountedScores], log_slope: float, tail: float) -> tuple[Calibration, ...]:
    calibrations = []
    for fold in folds:
        rate = _rate(fold.sizes, fold.counts)
        low, high = (min(tail, largest) for largest in _largest_tails(rate))
        calibrations.append(_centred(fold.scores, rate, float(np.exp(log_slope)), (low, high), 0.0))
    return tuple(calibrations)


def _centred(z: Floats, rate: float, slope: float, tails: tuple[float, float], start: float) -> Calibration:
    """The intercept at which the mean probability is the rate (Eq. 64): by Newton's method, or bisection."""
    scaled = slope * np.asarray(z, dtype=np.float64)
    target = (rate - tails[0]) / (1 - sum(tails))
    low, high = -50.0 - float(scaled.max()), 50.0 - float(scaled.min())
    at = min(max(start, low), high)
    for _ in range(NEWTON_STEPS):
        p = expit(scaled + at)
        excess = float(p.mean()) - target
        if abs(excess) < CENTRED:
            break
        low, high = (low, at) if excess > 0 else (at, high)
        step = at - excess / max(float((p * (1 - p)).mean()), CERTAIN)
        at = step if low < step < high else (low + high) / 2
    return Calibration(slope, at, tails)


def _joined(folds: Sequence[CountedScores], calibrations: Sequence[Calibration]) -> tuple[Floats, Ints, Ints]:
    z = np.concatenate([calibration(fold.scores) for calibration, fold in zip(calibrations, folds, strict=True)])
    return z, np.concatenate([fold.sizes for fold in folds]), np.concatenate([fold.counts for fold in folds])


def _rate(sizes: Ints, counts: Ints) -> float:
    return usable_rate(CountObservations(sizes, counts).rate, int(sizes.sum()))
