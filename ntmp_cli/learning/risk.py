"""The unbiased estimate (Eq. 13) of the risk (Eq. 3), and its clamps (Eq. 16).

Per instance i of a batch, with rate θ_i (m/n for a tuple instance, π for an unlabeled one), the
minimum-variance weights of `groups.class_weights` (Eq. 10) divided by the group size are

    a⁺(θ) = [(S₂−S₁) + (S₀−S₁)θ]/D        a⁻(θ) = [S₂ − S₁θ]/D

(computed in the centred form of Eq. 12), so that the risk of a batch is
Σ_i π a⁺(θ_i) ℓ(g_i,+1) + (1−π) a⁻(θ_i) ℓ(g_i,−1), for any mixture of tuple lengths and counts. The sums S
run over the batch itself: given its composition, the batch risk is exactly unbiased.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ntmp_cli.learning.caching import cached_by_composition
from ntmp_cli.learning.groups import SAME_RATE, deviations

if TYPE_CHECKING:
    from ntmp_cli.learning.method import HeldoutScores
    from ntmp_cli.learning.methods.ure import Clamp, ClampScope, LossName, Mixing
    from ntmp_cli.learning.noisy_counts import ExpectedCounts


# Bound B of the clipped logistic loss, which it reaches at a margin of −1.85.
CLIP = 2.0
# Margin losses φ with ℓ(g, y) = φ(y·g): the table in section 2 of docs/method.md.
LOSSES: dict[LossName, Callable[[Tensor], Tensor]] = {
    # Beyond its threshold softplus is a line; at 40 that is exact, at the default of 20 it is off by 2e-9.
    "logistic": lambda margin: F.softplus(-margin, threshold=40),
    "sigmoid": lambda margin: torch.sigmoid(-margin),
    "ramp": lambda margin: torch.clamp((1 - margin) / 2, 0, 1),
    "hinge": lambda margin: torch.relu(1 - margin),
    # The paper's bounded surrogate: where a mistake costs as much as it can, its slope is 0.
    "clipped-logistic": lambda margin: F.softplus(-margin, threshold=40).clamp(max=CLIP),
}


@dataclass(frozen=True)
class Coefficients:
    """π a⁺ and (1−π) a⁻ per instance, tuple instances first, and the batch's gap.

    `gap` (Eq. 18) is √D/S₀ divided by its value for a gap of one, √(f(1−f)) with f the unlabeled share: for one
    stratum it is |α − π| itself, and it stays meaningful for several strata.
    """

    plus: NDArray[np.float64]
    minus: NDArray[np.float64]
    gap: float


def coefficients(
    sizes: NDArray[np.int64],
    counts: NDArray[Any],
    unlabeled: int,
    prior: float,
    mixing: Mixing = "stratified",
    shared_rate: float | None = None,
) -> Coefficients | None:
    """Instance coefficients of the risk for tuples (n_t, m_t) and U (Eqs. 12, 13 and 14).

    Members of one tuple weigh the same, which has the least variance (Eq. 15).

    `shared_rate` is the rate that all tuple instances share under `flat` (Σm/Σn) and `pooled` mixing (the mean of m/n;
    default: that of these tuples). Counts may be expected ones.

    None when all rates are equal, so that nothing is identified. A tuple whose count is NaN has no weight.
    """
    if counts.dtype.kind == "f" and not (rated := np.isfinite(counts)).all():
        among = partial(coefficients, unlabeled=unlabeled, prior=prior, mixing=mixing, shared_rate=shared_rate)
        return _of_rated(sizes, counts, rated, among)
    # One group per tuple and one for U; this runs at every step, so it allocates little.
    members = np.empty(len(sizes) + 1, dtype=np.int64)
    members[:-1], members[-1] = sizes, unlabeled
    rates, mass = np.empty(len(members)), np.ones(len(members))
    rates[:-1], rates[-1] = counts / sizes, prior
    if mixing == "pooled":
        # The paper's reading: one rate ᾱ for all tuples, every *tuple* counts once, so an instance 1/n_t.
        rates[:-1] = rates[:-1].mean() if shared_rate is None else shared_rate
        mass[:-1] = sizes.mean() / sizes
    elif mixing == "flat":
        # UU learning: one pool of tuple instances, every instance counts once.
        rates[:-1] = counts.sum() / sizes.sum() if shared_rate is None else shared_rate
    group_sizes = mass * members
    away, spread = deviations(group_sizes, rates)
    s0 = float(group_sizes.sum())
    if spread <= s0 * SAME_RATE:
        return None
    share = unlabeled / s0
    gap = (spread / s0 / (share * (1 - share))) ** 0.5
    centre = float(group_sizes @ rates) / s0
    plus = prior * mass * (1 / s0 + (1 - centre) / spread * away)
    minus = (1 - prior) * mass * (1 / s0 - centre / spread * away)
    return Coefficients(plus.repeat(members), minus.repeat(members), gap)


def _of_rated(
    sizes: NDArray[np.int64],
    counts: NDArray[Any],
    rated: NDArray[np.bool_],
    among: Callable[[NDArray[np.int64], NDArray[Any]], Coefficients | None],
) -> Coefficients | None:
    """The coefficients among tuples whose rate is known; 0 for the members of others."""
    found = among(sizes[rated], counts[rated]) if rated.any() else None
    if found is None:
        return None
    inside, place = int(sizes[rated].sum()), np.repeat(rated, sizes)

    def spread(values: NDArray[np.float64]) -> NDArray[np.float64]:
        all_members = np.zeros(len(place))
        all_members[place] = values[:inside]
        return np.concatenate([all_members, values[inside:]])

    return Coefficients(spread(found.plus), spread(found.minus), found.gap)


# From sizes, counts and the number of unlabeled instances to π a⁺, (1−π) a⁻ per instance and the gap.
BatchCoefficients = Callable[[NDArray[np.int64], NDArray[Any], int], "tuple[Tensor, Tensor, float] | None"]


def cached_coefficients(
    prior: float,
    mixing: Mixing = "stratified",
    shared_rate: float | None = None,
    expected: ExpectedCounts | None = None,
) -> BatchCoefficients:
    """`coefficients` as tensors in single precision, cached by the composition of the batch.

    `expected` turns recorded counts into expected true ones.
    """

    @cached_by_composition
    def tensors(sizes: NDArray[np.int64], counts: NDArray[Any], unlabeled: int) -> tuple[Tensor, Tensor, float] | None:
        true = counts if expected is None else expected(sizes, counts)
        weights = coefficients(sizes, true, unlabeled, prior, mixing, shared_rate)
        return None if weights is None else (_single(weights.plus), _single(weights.minus), weights.gap)

    return tensors


def _single(values: NDArray[np.float64]) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))


def tuple_weights(sizes: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.float64]:
    """n_t a_j per tuple instance, with (a_1 … a_n) uniform on the simplex: random convex in-tuple weights.

    Any convex weights leave the risk unbiased; equal ones, n_t a_j = 1, have the least variance (the paper's lemma on
    in-tuple averaging). Of members with variance σ² and covariance c, E Var Σ a_j h_j = c + (σ² − c) E Σ a_j², where
    E Σ a_j² = 2/(n+1) against 1/n.
    """
    weights = rng.exponential(size=int(sizes.sum()))
    totals = np.add.reduceat(weights, np.cumsum(sizes) - sizes)
    return weights * (sizes / totals).repeat(sizes)


def tuple_variances(terms: Tensor, weights: Tensor, sizes: NDArray[np.int64]) -> Tensor:
    """Variance over tuples of their share in the risk, with these in-tuple weights and with equal ones.

    `terms` are what the tuple instances contribute with equal weights.
    """
    member_of = torch.from_numpy(np.arange(len(sizes)).repeat(sizes)).to(terms.device)
    sums = terms.new_zeros(2, len(sizes)).index_add_(1, member_of, torch.stack([terms * weights, terms]))
    return sums.var(dim=1, correction=0)


def partial_risks(
    scores: Tensor, plus: Tensor, minus: Tensor, tuple_instances: int, loss: LossName, scope: ClampScope
) -> Tensor:
    """The two terms whose sum is the unbiased risk (Eq. 13): by class, or by source (tuples, unlabeled)."""
    phi = LOSSES[loss]
    plus, minus = plus.to(scores), minus.to(scores)
    positive, negative = phi(scores), phi(-scores)
    if scope == "class":
        return torch.stack([plus @ positive, minus @ negative])
    both = plus * positive + minus * negative
    return torch.stack([both[:tuple_instances].sum(), both[tuple_instances:].sum()])


def clamped(terms: Tensor, clamp: Clamp) -> Tensor:
    """f(term) + f(term), with f the identity, max(0, ·) or |·| (Eq. 16)."""
    if clamp == "relu":
        terms = terms.relu()
    elif clamp == "abs":
        terms = terms.abs()
    return terms.sum()


def unbiased_risk(
    heldout: HeldoutScores,
    prior: float,
    loss: LossName,
    mixing: Mixing = "stratified",
    shared_rate: float | None = None,
    expected: ExpectedCounts | None = None,
) -> float | None:
    """The unclamped risk of given scores (Eq. 13): the label-free objective on held-out data."""
    sizes, counts, unlabeled = heldout.sizes, heldout.counts, len(heldout.unlabeled_scores)
    true = counts if expected is None else expected(sizes, counts)
    weights = coefficients(sizes, true, unlabeled, prior, mixing, shared_rate)
    if weights is None:
        return None
    scores = torch.from_numpy(np.concatenate([heldout.tuple_scores, heldout.unlabeled_scores]))
    plus, minus = torch.from_numpy(weights.plus), torch.from_numpy(weights.minus)
    return float(partial_risks(scores, plus, minus, len(heldout.tuple_scores), loss, "class").sum())
