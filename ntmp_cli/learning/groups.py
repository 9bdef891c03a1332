"""The algebra of groups with known positive rates (SPEC section 2), in plain numpy.

A group is a tuple stratum (rate θ = m/n) or the unlabeled pool (θ = π). Class means are linear in
group means; these are the weights of least variance, and how well conditioned they are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def moments(sizes: ArrayLike, rates: ArrayLike) -> tuple[float, float, float, float]:
    """S₀ = ΣN, S₁ = ΣNθ, S₂ = ΣNθ² and D = S₀S₂ − S₁².

    D is computed as S₀ Σ N (θ − θ̄)², which is the same number without the cancellation.
    """
    n, theta = np.asarray(sizes, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    s0, s1, s2 = float(n.sum()), float(n @ theta), float(n @ theta**2)
    return s0, s1, s2, s0 * float(n @ (theta - s1 / s0) ** 2)


def class_weights(sizes: ArrayLike, rates: ArrayLike) -> tuple[Floats, Floats]:
    """(w⁺, w⁻) with Ê₊[h] = Σ w⁺_g Ê_g[h] and Ê₋[h] = Σ w⁻_g Ê_g[h], of least variance Σ w²/N.

    Raises ZeroDivisionError when all rates are equal (D = 0): nothing is identified then.
    """
    n, theta = np.asarray(sizes, dtype=np.float64), np.asarray(rates, dtype=np.float64)
    s0, s1, s2, d = moments(n, theta)
    if d <= s0 * s0 * 1e-24:
        raise ZeroDivisionError("all groups have the same positive rate")
    return n * ((s2 - s1) + (s0 - s1) * theta) / d, n * (s2 - s1 * theta) / d


def effective_gap(sizes: ArrayLike, rates: ArrayLike) -> float:
    """√D/S₀: the spread of rates over all instances; generalises |π − α| and is 0 iff not identifiable."""
    s0, _, _, d = moments(sizes, rates)
    return float(np.sqrt(max(d, 0.0)) / s0)
