"""Which quantities tuples and U identify, and how well conditioned the problem is.

The unbiased risk and the likelihood of the counts use different information. The risk knows only the group means:
it needs two different rates (Eq. 8). The likelihood also knows that members of one tuple belong together: their
covariance, −α(1−α)/(n−1) δδᵀ (Eq. 5), identifies the classes at α = π too, up to their names. Of three members

    E[(y_i−α)(y_j−α)(y_k−α)] = 2α(1−α)(1−2α) / ((n−1)(n−2)),

which is 0 only for α = ½ (Eq. 6): elsewhere third moments determine which class is positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import sqrt
from typing import Literal

from ntmp_cli.theory.strata import Design, Groups, Stratum

Signal = Literal["within tuples", "between strata", "both", "none"]
Names = Literal["first order", "third order", "none"]
PriorVerdict = Literal["identified", "up to exchange", "not identified"]


def condition_number(groups: Groups) -> float | None:
    """Of the weighted system √(N_g/S₀) (θ_g, 1−θ_g) whose unknowns are the class means; None where it is singular.

    Its 2×2 normal matrix M has determinant D/S₀², so κ = √(λ₁/λ₂) = λ₁/√det M (Eq. 86). Two groups of equal size give κ
    of the paper's system (Theorem on heterogeneous tuples).
    """
    if not groups.identifiable:
        return None
    share = groups.sizes / groups.sizes.sum()
    trace = float(share @ (groups.rates**2 + (1 - groups.rates) ** 2))
    return (trace + sqrt(max(trace**2 - 4 * groups.spread**2, 0.0))) / 2 / groups.spread


def is_mirror_symmetric(strata: Sequence[Stratum]) -> bool:
    """Whether n = 2m in every tuple: then exchanging the classes does not change the density of a tuple (Eq. 1)."""
    return all(s.n == 2 * s.m for s in strata)


def count_signal(strata: Sequence[Stratum]) -> Signal:
    """The source of information about single instances in the likelihood of the counts.

    Either differences within tuples that have members of both classes, or differences between strata of different
    rates. A constant score explains tuples of one class.
    """
    within = any(0 < s.m < s.n for s in strata)
    between = len({Fraction(s.m) / s.n for s in strata}) > 1
    if within and between:
        return "both"
    return "within tuples" if within else "between strata" if between else "none"


def class_names(design: Design) -> Names:
    """The information that determines the orientation (which class is positive), given U of known prior."""
    if design.stratified().identifiable:
        return "first order"
    return "none" if is_mirror_symmetric(design.strata) else "third order"


def count_identifies(design: Design) -> bool:
    """Whether the likelihood of the counts, with U for its sign, identifies an instance classifier."""
    return count_signal(design.strata) != "none" and class_names(design) != "none"


def prior_verdict(strata: Sequence[Stratum]) -> PriorVerdict:
    """Whether tuples and U identify π where it is unknown."""
    if count_signal(strata) == "none":
        return "not identified"
    return "up to exchange" if is_mirror_symmetric(strata) else "identified"
