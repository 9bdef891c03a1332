"""The generalisation bound with its constants: Rademacher complexities of linear scores and of ReLU networks.

Given their labels, instances of a group are independent, and counts fix the labels of tuples. Symmetrisation and
contraction, group by group, and McDiarmid's inequality give with probability 1 − δ

    R(ĝ) − R(g*) ≤ 4 L Σ_g a_g ℜ_g + 2 R √(log(2/δ)/2 · Σ_g a_g²/N_g),      a_g = |π w⁺_g| + |(1−π) w⁻_g|,

for the minimiser ĝ of the plain risk in a class 𝒢 of scores, with ℜ_g its Rademacher complexity on N_g instances of
the group, L the Lipschitz constant of the loss and R its range (Eq. 102). With one stratum a_T = 2π(1−π)/|π−α| and
a_U = (π(1−α) + (1−π)α)/|π−α|: the paper's form, with constants.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod, sqrt

import numpy as np

from ntmp_cli.theory.strata import Groups
from ntmp_cli.theory.variance import deviation, risk_weights


@dataclass(frozen=True)
class NormClass:
    """Linear scores, or networks of layers with ReLU between them, whose weights have at most these Frobenius norms."""

    norms: tuple[float, ...]

    def complexity(self, radius: float, instances: float) -> float:
        """ℜ on `instances` instances of root mean square norm `radius`."""
        if len(self.norms) == 1:
            return linear_complexity(self.norms[0], radius, instances)
        return network_complexity(self.norms, radius, instances)

    def largest_score(self, radius: float) -> float:
        """|g(x)| ≤ Π‖W_j‖ · ‖x‖."""
        return prod(self.norms) * radius


@dataclass(frozen=True)
class Radii:
    """Norms of inputs, 1 for the biases included: root mean squares of tuple instances and of U, and the largest.

    Of several strata that of the largest mean square, which bounds each of them. `measured`: on the data themselves.
    """

    tuples: float
    unlabeled: float
    largest: float
    measured: bool


def linear_complexity(norm: float, radius: float, instances: float) -> float:
    """ℜ ≤ W X/√N of {x → w·x, ‖w‖ ≤ W}, X² the mean of ‖x‖² (Eq. 103): E‖Σσx‖ ≤ √(Σ‖x‖²)."""
    return norm * radius / sqrt(instances)


def network_complexity(norms: Sequence[float], radius: float, instances: float) -> float:
    """ℜ ≤ (√(2 log 2 · d) + 1) Π‖W_j‖_F X/√N of d layers with ReLU (Eq. 104; Golowich, Rakhlin and Shamir 2018)."""
    return (sqrt(2 * log(2) * len(norms)) + 1) * prod(norms) * radius / sqrt(instances)


@dataclass(frozen=True)
class ExcessBound:
    """The two terms of the bound on the excess risk, in units of the loss."""

    complexity: float
    deviation: float

    @property
    def total(self) -> float:
        return self.complexity + self.deviation


def excess_bound(
    groups: Groups, complexities: Sequence[float], lipschitz: float, loss_range: float, confidence: float
) -> ExcessBound | None:
    """R(ĝ) − R(g*) ≤ this with probability `confidence` (Eq. 102); None if the risk is not identifiable."""
    away = deviation(groups, confidence)
    if away is None:
        return None
    plus, minus = risk_weights(groups)
    reach = np.abs(plus) + np.abs(minus)
    return ExcessBound(4 * lipschitz * float(reach @ np.asarray(complexities)), 2 * loss_range * away)
