"""Properties of margin losses that the bounds use: bound, Lipschitz constant, range on bounded scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log1p

from ntmp_cli.config import DesignLoss


@dataclass(frozen=True)
class MarginLoss:
    """A falling φ of the margin with |φ(a) − φ(b)| ≤ L|a − b|; `bound` is B, ∞ where there is none."""

    phi: Callable[[float], float]
    bound: float
    lipschitz: float

    def range_on(self, score_bound: float) -> float:
        """R = φ(−G) − φ(G): the range of losses of scores within ±G; at most B, and at most 2LG (Eq. 101)."""
        return self.bound if score_bound == inf else self.phi(-score_bound) - self.phi(score_bound)

    def paper_bound_on(self, score_bound: float) -> float:
        """B in the paper's bounds, or L·G if that is smaller (Eq. 101)."""
        return min(self.bound, self.lipschitz * score_bound)


# Bound of the clipped logistic loss, as in `learning.risk`.
CLIP = 2.0


def _softplus(value: float) -> float:
    return max(value, 0.0) + log1p(exp(-abs(value)))


MARGIN_LOSSES: dict[DesignLoss, MarginLoss] = {
    "sigmoid": MarginLoss(lambda margin: exp(-_softplus(margin)), 1.0, 0.25),
    "ramp": MarginLoss(lambda margin: min(max((1 - margin) / 2, 0.0), 1.0), 1.0, 0.5),
    "logistic": MarginLoss(lambda margin: _softplus(-margin), inf, 1.0),
    "clipped-logistic": MarginLoss(lambda margin: min(_softplus(-margin), CLIP), CLIP, 1 - exp(-CLIP)),
    "hinge": MarginLoss(lambda margin: max(1 - margin, 0.0), inf, 1.0),
}
