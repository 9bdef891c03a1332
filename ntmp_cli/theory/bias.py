"""Bias of the risk caused by a wrong prior or wrong counts: the paper's bounds, and the largest possible bias.

All in units of B, the bound of the loss. The paper's bounds divide by the square of a gap and are far from tight; the
largest bias is exact. With weights from rates θ̂ where the groups really have θ, and π̂ for π,

    Ê₊ = E₊ + s⁺ (E₊ − E₋),  Ê₋ = E₋ + s⁻ (E₊ − E₋),  s^± = Σ_g w^±_g (θ_g − θ̂_g),

so that the bias of π̂ Ê₊[ℓ₊] + (1−π̂) Ê₋[ℓ₋] is linear in ℓ₊ and ℓ₋ on either class, which lie in [0, B]: its largest
value adds up the coefficients of one sign (Eq. 99). It is reached when the classes do not overlap (test_bias.py).
"""

from __future__ import annotations

from math import log, sqrt
from typing import NamedTuple

import numpy as np

from ntmp_cli.learning.groups import class_weights
from ntmp_cli.theory.recorded_counts import RecordedStratum
from ntmp_cli.theory.strata import Design, Floats, Groups

# Grid size of the priors between an estimate and the end of its range, and their least distance from 0 and 1.
MOVES = 201
SMALLEST_SHARE = 1e-3


def largest_bias(groups: Groups, rate_errors: Floats) -> float | None:
    """sup_g |R̃(g) − R(g)| / B of the risk with the weights of `groups`, with rates really θ + `rate_errors` (Eq. 99).

    The last error is that of π̂ itself. None where the weights do not exist.
    """
    if not groups.identifiable:
        return None
    plus, minus = class_weights(groups.sizes, groups.rates)
    on_plus, on_minus = float(plus @ rate_errors), float(minus @ rate_errors)
    prior, error = groups.prior, float(rate_errors[-1])
    coefficients = np.array(
        [
            prior * on_plus - error,  # E₊ ℓ₊
            (1 - prior) * on_minus,  # E₊ ℓ₋
            -prior * on_plus,  # E₋ ℓ₊
            error - (1 - prior) * on_minus,  # E₋ ℓ₋
        ]
    )
    # They sum to 0, so that the negative ones sum to as much.
    return float(coefficients[coefficients > 0].sum())


# --- the prior ----------------------------------------------------------------------------------


def prior_bound(rate: float, prior: float, error: float) -> float | None:
    """2|δ|/γ² of training with π + δ, with γ the least distance of α to the priors between (Eq. 95).

    None (no bound) where they include α. An error that points away from α has γ = |π − α|.
    """
    nearer = abs(error) if (rate - prior) * error > 0 else 0.0
    return _over_square(abs(error), abs(prior - rate) - nearer)


def largest_prior_bias(groups: Groups, error: float) -> float | None:
    """The largest bias of training with π̂ where U has π̂ ± error; one stratum: |δ| (π̂(1−α) + (1−π̂)α)/|π̂−α| (Eq. 99)."""
    errors = np.zeros(len(groups.rates))
    errors[-1] = error
    return largest_bias(groups, errors)


class ShrunkPrior(NamedTuple):
    """A prior to train with instead of an estimate, and the largest bias of both over all possible priors."""

    prior: float
    worst_bias: float
    worst_bias_of_estimate: float


def shrunk_prior(design: Design, error: float) -> ShrunkPrior | None:
    """The minimax prior on the estimate's side of α, if the prior is within ± `error` of the design's (Eq. 105).

    A prior farther from α lowers the bias per unit of error but raises the largest error. It helps only if the range of
    possible priors reaches α. None if moving away from α does not help, or if the estimate is α itself.
    """
    estimate, side = design.prior, np.sign(design.prior - design.flat_rate)
    if side == 0:
        return None
    edge = min(error, (1 - estimate if side > 0 else estimate) - SMALLEST_SHARE)
    moves = np.linspace(0.0, max(edge, 0.0), MOVES)
    biases = [largest_prior_bias(design.at(float(estimate + side * t)).stratified(), error + t) for t in moves]
    worst = [np.inf if bias is None else bias for bias in biases]
    best = int(np.argmin(worst))
    if best == 0 or not np.isfinite(worst[0]):
        return None
    return ShrunkPrior(float(estimate + side * moves[best]), worst[best], worst[0])


# --- the counts ---------------------------------------------------------------------------------


def count_bound(rate: float, prior: float, away: float, expected: float | None = None) -> float | None:
    """2|α̂−α|/η² with η the least distance of π to the rates within `away` (Eq. 96).

    With `expected`, its mean form: that in the numerator, E|α̂−α| or σ_α, and `away` the reach of α̂ (Corollary).
    """
    return _over_square(away if expected is None else expected, abs(prior - rate) - away)


def sub_gaussian_reach(design: Design, confidence: float) -> float:
    """A bound on |ᾱ̂ − E ᾱ̂| that holds with probability 1 − δ if every count of the K tuples is off by at most one.

    Independent errors within ±1/n_t make the mean sub-Gaussian with v² = Σ(1/n_t)²/K². v √(2 log(2/δ)): for both tails,
    where the Corollary writes log(1/δ) (Eq. 97).
    """
    v = sqrt(sum(s.tuples / s.n**2 for s in design.strata)) / design.tuples
    return reach_of_proxy(v, confidence)


def reach_of_proxy(v: float, confidence: float) -> float:
    """|α̂ − α| stays below v √(2 log(2/δ)) with this probability if it is sub-Gaussian of variance proxy v² (Eq. 97)."""
    return v * sqrt(2 * log(2 / (1 - confidence)))


def misfiled_bias(recorded: tuple[RecordedStratum, ...], unlabeled: float, prior: float) -> float | None:
    """Largest bias of stratified training on noisy counts, where tuples are in strata of wrong rates (Eq. 99)."""
    sizes = np.array([*(s.instances for s in recorded), unlabeled])
    rates = np.array([*(s.m / s.n for s in recorded), prior])
    errors = np.array([*(s.true_rate - s.m / s.n for s in recorded), 0.0])
    return largest_bias(Groups(sizes, rates), errors)


def shifted_bias(recorded: tuple[RecordedStratum, ...], unlabeled: float, prior: float) -> float | None:
    """Largest bias of pooled training on noisy counts: errors cancel in ᾱ, except those of pure tuples (Eq. 99)."""
    tuples = sum(s.tuples for s in recorded)
    noisy = sum(s.tuples * s.m / s.n for s in recorded) / tuples
    shift = sum(s.tuples * s.true_rate for s in recorded) / tuples - noisy
    # The weights of two groups depend on their rates alone, not on their sizes.
    return largest_bias(Groups(np.array([tuples, unlabeled]), np.array([noisy, prior])), np.array([shift, 0.0]))


def _over_square(away: float, distance: float) -> float | None:
    return 2 * away / distance**2 if distance > 0 else None
