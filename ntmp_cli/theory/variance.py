"""Noise of the unbiased risk: variance inflation, deviation, generalisation bound, sample sizes (Eqs. 87–92).

All values are in units of the loss. B is its bound: 1 for the sigmoid and ramp losses, none for the logistic loss.
"""

from __future__ import annotations

from math import ceil, log, sqrt

import numpy as np

from ntmp_cli.learning.groups import class_weights
from ntmp_cli.theory.strata import Design, Floats, Groups


def risk_weights(groups: Groups) -> tuple[Floats, Floats]:
    """π w⁺_g and (1−π) w⁻_g: weights of the group means of ℓ(·,+1) and ℓ(·,−1) in the risk (Eq. 13)."""
    plus, minus = class_weights(groups.sizes, groups.rates)
    return groups.prior * plus, (1 - groups.prior) * minus


def risk_variance(groups: Groups, separation: float = 0.0) -> float | None:
    """Var R̂(g) / σ² with σ² the variance of the loss within a class: Σ_g (π w⁺_g − (1−π) w⁻_g)² / N_g (Eq. 87).

    Exact for losses with ℓ(g,+1) + ℓ(g,−1) constant (sigmoid, ramp), if its variance is the same in both classes. With
    one stratum: [4π²(1−π)²/N_T + (π(1−α) + (1−π)α)²/N_U] / (π−α)².

    That is for a pool U of exactly π N_U positives. Of an i.i.d. pool the number of positives is binomial, so that the
    variance of one of its losses is σ² + π(1−π)(μ₊ − μ₋)², with μ± the mean of ℓ(g,+1) in each class; its term of the
    sum grows by the factor 1 + π(1−π) s² (Eq. 88), where `separation` s = |μ₊ − μ₋|/σ. Counts fix the positives of
    tuples.
    """
    if not groups.identifiable:
        return None
    plus, minus = risk_weights(groups)
    terms = (plus - minus) ** 2 / groups.sizes
    return float(terms.sum() + terms[-1] * groups.prior * (1 - groups.prior) * separation**2)


def separation_at(error_rate: float) -> float:
    """|μ₊ − μ₋|/σ of a 0-1 loss whose error rate is the same in both classes: (1 − 2e)/√(e(1−e)) (Eq. 88)."""
    return abs(1 - 2 * error_rate) / sqrt(error_rate * (1 - error_rate))


def inflation_over_labels(design: Design, groups: Groups, separation: float = 0.0) -> float | None:
    """Variance of the risk divided by its variance with a label for each of the same instances, σ²/S₀ (Eq. 89).

    With a `separation` for an i.i.d. pool, see `risk_variance`.
    """
    variance = risk_variance(groups, separation)
    return None if variance is None else variance * (design.instances + design.unlabeled)


def inflation_over_unit_gap(groups: Groups) -> float | None:
    """Δ⁻², the paper's scaling (Eq. 89): relative to one pure positive and one pure negative group."""
    return groups.gap**-2 if groups.identifiable else None


def deviation(groups: Groups, confidence: float) -> float | None:
    """|R̂(g) − R(g)| ≤ this · B for one fixed classifier with this probability (Eq. 90, Hoeffding).

    An instance of group g contributes at most B (|π w⁺_g| + |(1−π) w⁻_g|) / N_g. Given their labels the members of a
    tuple are independent, and their mean given the labels is the expectation, because the count is fixed. Instances of
    an i.i.d. pool are independent without their labels: the bound holds for pools of both kinds.
    """
    if not groups.identifiable:
        return None
    plus, minus = risk_weights(groups)
    reach = (np.abs(plus) + np.abs(minus)) ** 2 / groups.sizes
    return sqrt(log(2 / (1 - confidence)) / 2 * float(reach.sum()))


def estimation_term(groups: Groups, confidence: float | None = None) -> float | None:
    """(1/Δ)(1/√(n_T n) + 1/√n_U), the paper's generalisation bound (Eq. 91) without its constants C₁ρ, C₂C_ℓ.

    With a confidence, its second term: every root also holds log(2/δ).
    """
    if not groups.identifiable:
        return None
    tuples, unlabeled = float(groups.sizes[:-1].sum()), float(groups.sizes[-1])
    factor = 1.0 if confidence is None else sqrt(log(2 / (1 - confidence)))
    return factor / groups.gap * (1 / sqrt(tuples) + 1 / sqrt(unlabeled))


def scale_for(value: float | None, target: float) -> float | None:
    """Factor on all sample sizes with which a term proportional to N^(−1/2) meets `target` (Eq. 92)."""
    return None if value is None else (value / target) ** 2


def sizes_for(design: Design, value: float | None, target: float) -> tuple[int, int] | None:
    """Tuples and unlabeled instances, in the proportions of the design, that meet `target` (Eq. 92)."""
    scale = scale_for(value, target)
    return None if scale is None else (ceil(scale * design.tuples), ceil(scale * design.unlabeled))
