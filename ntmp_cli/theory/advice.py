"""How to reach the operating margin ε₀: tuples to add, and priors of U to avoid."""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from ntmp_cli.learning.groups import moments
from ntmp_cli.theory.strata import Design, Stratum

# Number of tuple lengths to try, most frequent first, and number of strata of each kind to recommend.
LENGTHS = 3
ADVISED = 2


def tuples_to_add(design: Design, n: int, m: int, margin: float) -> int | None:
    """The fewest tuples (n, m) beside the present ones that lift the gap to ε₀; None where no number does.

    x instances of rate θ change D to D + x b with b = Σ_g N_g (θ_g − θ)², so gap² = (D + b x) / (N_U (N_T + x))
    (Eq. 93), which grows towards b/N_U.
    """
    groups = design.stratified()
    d = moments(groups.sizes, groups.rates)[3]
    inside, unlabeled = design.instances, design.unlabeled
    if d >= margin**2 * unlabeled * inside:
        return 0
    grows = float(groups.sizes @ (groups.rates - m / n) ** 2)
    if grows <= margin**2 * unlabeled:
        return None
    # Rounding may leave the number one too low.
    needed = ceil((margin**2 * unlabeled * inside - d) / (grows - margin**2 * unlabeled) / n)
    return needed if design.with_added(Stratum(n, m, needed)).stratified().gap >= margin else needed + 1


def additions(design: Design, margin: float) -> list[Stratum]:
    """Strata that would reach ε₀, cheapest first: of the commonest lengths, a few of one class only and a few mixed."""
    lengths = np.unique([s.n for s in design.strata])
    share = {int(n): sum(s.instances for s in design.strata if s.n == n) for n in lengths}
    candidates = []
    for n in sorted(share, key=lambda n: -share[n])[:LENGTHS]:
        for m in range(n + 1):
            needed = tuples_to_add(design, n, m, margin)
            if needed:
                candidates.append(Stratum(n, m, needed))
    candidates.sort(key=lambda s: (s.instances, s.n, s.m))
    pure, mixed = [s for s in candidates if s.m in (0, s.n)], [s for s in candidates if 0 < s.m < s.n]
    return [s for s in candidates if s in pure[:ADVISED] or s in mixed[:ADVISED]]


def priors_to_avoid(design: Design, margin: float) -> tuple[float, float] | None:
    """The open interval of priors of U whose gap is below ε₀ with these tuples; None where there is none.

    gap² = (α − π)² + V/f (Eq. 94) with α = Σm/Σn, V the variance of rates over tuple instances and f the share of U.
    """
    share = design.unlabeled / (design.unlabeled + design.instances)
    alpha = design.flat_rate
    spread = sum(s.instances * (s.rate - alpha) ** 2 for s in design.strata) / design.instances
    short = margin**2 - spread / share
    return (alpha - sqrt(short), alpha + sqrt(short)) if short > 0 else None
