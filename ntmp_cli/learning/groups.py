"""The algebra of groups with known positive rates, in plain NumPy.

A group is a tuple stratum (rate θ = m/n) or the unlabeled pool (θ = π). Class means are linear in
group means (Eq. 8); these are the weights of least variance, and how well conditioned they are.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntmp_cli.errors import NotIdentifiableError

Floats = NDArray[np.float64]

# Rates with a smaller mean square deviation are equal up to rounding.
SAME_RATE = 1e-24
# A gap √D/S₀ below this counts as zero: the risk is not identifiable.
NO_GAP = 1e-9


def usable_rate(rate: float, instances: int) -> float:
    """A positive rate with a finite logit: at least half an instance away from 0 and 1."""
    edge = 0.5 / max(instances, 1)
    return min(max(rate, edge), 1 - edge)


def rate_shift(prior: float, rate: float, instances: int) -> float:
    """logit π − logit ᾱ: log-odds at the deployment prior minus log-odds at the tuples' rate (Eq. 7)."""
    at = usable_rate(rate, instances)
    return log(prior / (1 - prior)) - log(at / (1 - at))


def moments(sizes: ArrayLike, rates: ArrayLike) -> tuple[float, float, float, float]:
    """S₀ = ΣN, S₁ = ΣNθ, S₂ = ΣNθ² and D = S₀S₂ − S₁² (Eq. 11).

    D is computed as S₀ Σ N (θ − θ̄)², which is the same number without the cancellation.
    """
    n, theta = np.asarray(sizes, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    _, spread = deviations(n, theta)
    s0 = float(n.sum())
    return s0, float(n @ theta), float(n @ theta**2), s0 * spread


def deviations(sizes: Floats, rates: Floats) -> tuple[Floats, float]:
    """θ − θ̄ and V = Σ N (θ − θ̄)² = D/S₀ (Eq. 11), centred twice: Σ N (θ − θ̄) is 0 to the last digits."""
    total = sizes.sum()
    away = rates - (sizes @ rates) / total
    away = away - (sizes @ away) / total
    return away, float(sizes @ away**2)


def class_weights(sizes: ArrayLike, rates: ArrayLike) -> tuple[Floats, Floats]:
    """(w⁺, w⁻) with Ê₊[h] = Σ w⁺_g Ê_g[h] and Ê₋[h] = Σ w⁻_g Ê_g[h], of least variance Σ w²/N (Eqs. 9 and 10).

    Group means are a line in θ, E₋ + θ(E₊ − E₋): the weights are those of least squares at θ = 1 and θ = 0,
    N[1/S₀ + (1−θ̄)(θ−θ̄)/V] and N[1/S₀ − θ̄(θ−θ̄)/V] (Eq. 12), the same without cancellation.
    Raises ZeroDivisionError when all rates are equal (D = 0): nothing is identified then.
    """
    n, theta = np.asarray(sizes, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    away, spread = deviations(n, theta)
    total = n.sum()
    if spread <= total * SAME_RATE:
        raise ZeroDivisionError("all groups have the same positive rate")
    centre = (n @ theta) / total
    return n * (1 / total + (1 - centre) * away / spread), n * (1 / total - centre * away / spread)


def normalised_gap(sizes: ArrayLike, rates: ArrayLike) -> float:
    """√D/S₀ over its value for a gap of one, the last group U: with one stratum |α − π| itself (Eq. 18)."""
    n = np.asarray(sizes, dtype=np.float64)
    share = n[-1] / n.sum()
    return effective_gap(sizes, rates) / float(np.sqrt(share * (1 - share)))


def effective_gap(sizes: ArrayLike, rates: ArrayLike) -> float:
    """√D/S₀: the spread of rates over all instances; generalises |π − α|, 0 iff not identifiable (Eqs. 11, 18)."""
    s0, _, _, d = moments(sizes, rates)
    return float(np.sqrt(max(d, 0.0)) / s0)


def signal_to_noise(sizes: ArrayLike, rates: ArrayLike) -> float:
    """E₊ − E₋ of a perfect score, over the standard error of its estimate by `class_weights`: √(V / θ̄(1−θ̄)) (Eq. 20).

    The estimate has the variance Σ N (θ − θ̄)²/V² times that of the score, which is at most θ̄(1−θ̄) on average.
    """
    n, theta = np.asarray(sizes, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    _, spread = deviations(n, theta)
    centre = float(n @ theta / n.sum())
    return float(np.sqrt(spread / (centre * (1 - centre)))) if 0 < centre < 1 else 0.0


def require_orientation(symmetric: bool, prior: float) -> None:
    """n = 2m in every stratum and π = ½: exchanging the classes leaves all data unchanged."""
    if symmetric and abs(prior - 0.5) < 1e-9:
        raise NotIdentifiableError(
            "the orientation is not identifiable: every tuple is half positive, and so is the unlabeled pool",
            hint="Add tuples of another rate, or an unlabeled pool whose prior is not 0.5.",
        )
