"""The closed-form linear classifier from tuple counts, by the two orders of `moments.py`.

`fit` combines the two orders by their variances and returns the linear discriminant at the deployment prior. If
held-out tuples are given, they decide whether one order alone, or another number of components, separates the classes
better (`orders.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite, log, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from ntmp_cli.learning.moments import (
    Floats,
    Moments,
    Whitened,
    affordable,
    first_order,
    second_order,
    tuple_rate,
    whiten,
)
from ntmp_cli.learning.orders import Blend, blended, choose

# The variance within classes along the discriminant is at least this share of the total.
LEAST_WITHIN = 0.01
# The separation is never shrunk below this share, so that the ranking is kept.
LEAST_SHRINKAGE = 0.1
# The first order decides the orientation if its evidence exceeds this many standard errors.
ORIENTED_Z = 3.0

Source = Literal["first order", "likelihood"]


@dataclass(frozen=True)
class Discriminant:
    """A linear classifier, x·weight + bias = log-odds of the positive class at `prior`, and how it was fitted."""

    weight: Floats
    bias: float
    prior: float
    tuple_rate: float  # share of positives among tuple instances
    level: float  # score of the mean of all data; exchanging the classes mirrors the scores at this point
    separation: float  # Mahalanobis distance of the class means, |Σ^(−½) δ|
    components: int
    first_order_weight: float  # precision of δ across its direction from each order; 0 where an order is absent
    second_order_weight: float
    first_order_z: float  # evidence of the first order for this side and against the mirrored one
    oriented_by: Source | None
    prior_estimate: float | None  # π from tuples' second moments and the mean of U alone

    @property
    def oriented(self) -> bool:
        """Whether the orientation is known."""
        return self.oriented_by is not None

    def scores(self, x: NDArray[np.floating[Any]]) -> Floats:
        """Log-odds of the positive class, one per row."""
        return np.asarray(x @ self.weight + self.bias, dtype=np.float64)

    def flipped(self) -> Discriminant:
        """The flipped classifier, −δ: the classes exchanged, at the same prior and the same rates of the groups.

        Group means stay where they are, so μ₋ = μ − θδ moves as δ changes its sign: scores are mirrored at `level`.
        """
        estimate = self.prior_estimate
        if estimate is not None:
            estimate = 2 * self.tuple_rate - estimate
        return replace(
            self,
            weight=-self.weight,
            bias=2 * self.level - self.bias,
            first_order_z=-self.first_order_z,
            prior_estimate=estimate,
        )

    def decided(self, *, mirrored: bool) -> Discriminant:
        """The classifier in the orientation that the likelihood of the counts chose by the sign test."""
        return replace(self.flipped() if mirrored else self, oriented_by="likelihood")


def fit(moments: Moments, prior: float, components: int = 100, heldout: Moments | None = None) -> Discriminant:
    """The linear discriminant at `prior`, which is also the positive rate of the unlabeled data (Eqs. 34, 35 and 36).

    At most `components` leading principal components are kept, fewer where the data are few. Moments of held-out tuples
    and unlabeled instances may choose more of them, or one order alone. Raises ValueError where the data identify
    nothing.
    """
    if not 0 < prior < 1:
        raise ValueError(f"the prior must lie between 0 and 1, found {prior}")
    usual = Blend(min(components, affordable(moments, prior)))
    blend = usual if heldout is None else choose(moments, heldout, prior, usual)
    white = whiten(moments, prior, blend.components)
    first, first_variance = first_order(white)
    second, second_variance = second_order(white)
    if not isfinite(first_variance) and not isfinite(second_variance):
        raise ValueError(
            "the classes are not identifiable: all groups have the same positive rate, "
            "and no tuple has members of both classes"
        )
    delta = blended(white, blend)
    length = float(np.linalg.norm(delta))
    if length == 0:
        raise ValueError("the two classes have the same mean in these features: no linear classifier separates them")
    weights = blend.first / first_variance, blend.second * 2 * length**2 / second_variance
    noise = (len(delta) - 1) / sum(weights) / length
    along = delta / length
    z = (float(along @ first) - noise) / sqrt(first_variance) if isfinite(first_variance) else 0.0
    # In whitened coordinates the variance along δ is 1, of which τ|δ|² is the distance of the classes.
    distance, within = _distance(white, length, noise)
    gain = distance / within
    level = log(prior / (1 - prior)) - (0.5 - white.rate) * distance * gain
    weight = white.basis @ (along * gain)
    bias = level - float(white.origin @ weight)
    if moments.sketch is not None:
        weight = np.asarray(moments.sketch @ weight, dtype=np.float64)
    assert moments.shift is not None  # whiten refuses empty moments
    return Discriminant(
        weight=weight,
        bias=bias - float(moments.shift.astype(np.float64) @ weight),
        prior=prior,
        tuple_rate=tuple_rate(moments),
        level=level,
        separation=distance / sqrt(within),
        components=len(delta),
        first_order_weight=weights[0],
        second_order_weight=weights[1],
        first_order_z=z,
        oriented_by="first order" if z > ORIENTED_Z else None,
        prior_estimate=_prior_estimate(white, second, second_variance, delta, moments.unlabeled.instances),
    )


def _distance(white: Whitened, length: float, noise: float) -> tuple[float, float]:
    """Distance of the true class means along an estimated δ, and the variance within classes there (Eq. 36).

    The error of δ̂ makes it longer, by the variance of r−1 directions, and rotates it away from δ: along δ̂ the true
    means differ by E[δ·δ̂]/|δ̂| = |δ̂| − (r−1)v/|δ̂|. Taking |δ̂| instead would make the scores overconfident.
    """
    distance = max(length - noise, LEAST_SHRINKAGE * length)
    farthest = sqrt((1 - LEAST_WITHIN) / white.mixing) if white.mixing > 0 else inf
    distance = min(distance, farthest)
    return distance, 1 - white.mixing * distance**2


def _prior_estimate(
    white: Whitened, second: Floats, second_variance: float, delta: Floats, unlabeled: int
) -> float | None:
    """π = (μ_U − μ₋)·w / δ·w with δ and μ₋ of the tuples' second order alone (Eq. 37)."""
    if not unlabeled or not isfinite(second_variance):
        return None
    value, vectors = eigh(second, subset_by_index=[len(second) - 1] * 2)
    if value[0] <= 0:
        return None
    length = sqrt(value[0])
    along = vectors[:, 0] * (1 if vectors[:, 0] @ delta >= 0 else -1)
    distance, _ = _distance(white, length, (len(delta) - 1) * second_variance / (2 * length**3))
    at = white.means @ along
    tuples, last = white.sizes[:-1] / white.sizes[:-1].sum(), len(white.sizes) - 1
    return float(tuples @ white.rates[:-1] + (at[last] - tuples @ at[:-1]) / distance)
