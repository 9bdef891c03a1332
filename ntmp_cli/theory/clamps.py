"""Whether a clamp by source leaves the best classifier alone (SPEC section 3)."""

from __future__ import annotations

from ntmp_cli.learning.groups import class_weights
from ntmp_cli.theory.strata import Groups


def source_parts(groups: Groups) -> tuple[float, float] | None:
    """(tuple part, unlabeled part) of the risk at a perfect classifier, in units of B; None without weights.

    There ℓ(g,+1) is B on negatives, ℓ(g,−1) is B on positives, and the risk is 0: the parts are −R_U and R_U with
    R_U = π(1−π)(w⁺_U + w⁻_U), for one stratum π(1−π)(1−2α)/(π−α). Both are nonnegative only where they are 0.
    """
    if not groups.identifiable:
        return None
    plus, minus = class_weights(groups.sizes, groups.rates)
    unlabeled = groups.prior * (1 - groups.prior) * float(plus[-1] + minus[-1])
    return -unlabeled, unlabeled
