"""The closed-form linear classifier from tuple counts, in one pass over the data.

With δ = μ₊ − μ₋, two orders of moments identify the classes without any training:

- first: group means are a line in the positive rate, μ_g = μ₋ + θ_g δ (Eq. 8), whose slope is δ;
- second: two members of a tuple have E[(h_i−μ)(h_j−μ)ᵀ] = −c δδᵀ with c = α(1−α)/(n−1) (Eq. 5), which gives ±δ.

`Moments` accumulates sums and outer products; `fit` whitens them by their principal components, combines the two orders
by their variances and returns the linear discriminant at the deployment prior.

Why one matrix serves all strata: the second-order estimate of least variance weights a stratum's products by c, and c
follows from (n, m) alone. So Σ c_t s_t s_tᵀ − Σ c_i h_i h_iᵀ, with s_t a tuple's sum, can be summed over strata while
reading; centring it afterwards needs only the sum of each stratum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, isfinite, log, sqrt
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.sparse import csr_array

from ntmp_cli.counting.recorded import Counts, are_records, exact_rows
from ntmp_cli.learning.groups import class_weights

Floats = NDArray[np.float64]
Features = NDArray[np.float32]
Integers = NDArray[np.int64]

# More features than this are sketched down to SKETCH before any k×k matrix is made of them. CIFAR-10 pixels (3072) lose
# nothing by it (test AUC .642 either way), and take a third of the time.
MOST_FEATURES = 2048
SKETCH = 1024
# Rows per single-precision product; the products are added up in double precision.
BLOCK_ROWS = 8192
# Components whose variance is below this share of the largest are rounding errors of single precision.
SMALLEST_COMPONENT = 1e-6
# However few the data, this many components are tried.
FEWEST_COMPONENTS = 5
# The variance within classes along the discriminant is at least this share of the total.
LEAST_WITHIN = 0.01
# However noisy, the separation is not shrunk to less than this share: the ranking must survive.
LEAST_SHRINKAGE = 0.1
# The first order decides which class is which when its evidence exceeds this many standard errors.
ORIENTED_Z = 3.0

Source = Literal["first order", "likelihood"]


# --- moments ----------------------------------------------------------------------------------


@dataclass
class _GroupSums:
    """A sample with one positive rate; `total` is the sum of its instances, relative to the shift."""

    total: Floats
    instances: int = 0
    tuples: int = 0


class Moments:
    """Sums over tuples (by stratum) and unlabeled instances, added piece by piece in any order.

    Everything is kept relative to a shift, the mean of the first piece: covariances do not depend on the origin, and
    near the mean they lose no digits, even in single precision.
    """

    def __init__(self, features: int) -> None:
        self.features = features
        self.sketch = _sketch(features) if features > MOST_FEATURES else None
        k = features if self.sketch is None else SKETCH
        self.shift: Features | None = None
        self.strata: dict[tuple[int, int], _GroupSums] = {}
        self.unlabeled = _GroupSums(np.zeros(k))
        # Σ h hᵀ over all instances, Σ c h hᵀ over those of tuples, Σ c s sᵀ over tuple sums.
        self.squares = np.zeros((k, k))
        self.within = np.zeros((k, k))
        self.between = np.zeros((k, k))

    def add_tuples(self, x: Features, sizes: Integers, counts: Counts) -> None:
        """Add tuples: their instances in a row, (N, k), and their sizes and recorded counts."""
        if are_records(counts):
            # Moments need the count itself: of a range or a noisy one there is none.
            known = exact_rows(counts)
            x, sizes, counts = x[np.repeat(known, sizes)], sizes[known], counts[known]["low"]
        elif (counts := np.asarray(counts)).dtype.kind == "f":
            # Of strata of noisy counts the mean is known, but the count of no tuple.
            known = counts == np.floor(counts)
            x, sizes, counts = x[np.repeat(known, sizes)], sizes[known], counts[known]
        if not len(sizes):
            return
        sizes, counts = np.asarray(sizes, dtype=np.int64), np.asarray(counts, dtype=np.int64)
        self._check(x, int(sizes.sum()))
        if len(sizes) != len(counts) or (sizes < 1).any() or (counts < 0).any() or (counts > sizes).any():
            raise ValueError("every tuple needs a size of at least 1 and a count between 0 and its size")
        ends = np.cumsum(sizes)
        first = 0
        while first < len(sizes):
            # Whole tuples, as many as fit into a block, and at least one.
            start = int(ends[first] - sizes[first])
            last = max(first + 1, int(np.searchsorted(ends, start + BLOCK_ROWS, side="right")))
            self._add_tuple_block(self._near(x[start : ends[last - 1]]), sizes[first:last], counts[first:last])
            first = last

    def add_unlabeled(self, x: Features) -> None:
        """Add unlabeled instances, (N, k)."""
        self._check(x, len(x))
        for start in range(0, len(x), BLOCK_ROWS):
            h = self._near(x[start : start + BLOCK_ROWS])
            self.squares += _gram(h)
            self.unlabeled.total += h.sum(axis=0, dtype=np.float64)
            self.unlabeled.instances += len(h)

    def _add_tuple_block(self, h: Features, sizes: Integers, counts: Integers) -> None:
        sums = np.add.reduceat(h, np.cumsum(sizes) - sizes, axis=0)
        c = pair_weight(sizes, counts)
        squares = _gram(h)
        self.squares += squares
        if (c == c[0]).all():  # the common case, in which no second product of all instances is needed
            self.within += c[0] * squares
            self.between += c[0] * _gram(sums)
        else:
            roots = np.sqrt(c).astype(np.float32)[:, None]
            self.within += _gram(h * np.repeat(roots, sizes, axis=0))
            self.between += _gram(sums * roots)
        kinds, kind = np.unique(np.stack([sizes, counts], axis=1), axis=0, return_inverse=True)
        for number, (n, m) in enumerate(kinds.tolist()):
            at = kind.reshape(-1) == number
            group = self.strata.setdefault((n, m), _GroupSums(np.zeros(h.shape[1])))
            group.total += sums[at].sum(axis=0, dtype=np.float64)
            group.tuples += int(at.sum())
            group.instances += n * int(at.sum())

    def _near(self, x: Features) -> Features:
        """Instances relative to the shift, sketched where there are very many features."""
        x = np.asarray(x, dtype=np.float32)
        if self.shift is None:
            self.shift = x.mean(axis=0, dtype=np.float64).astype(np.float32)
        h: Features = x - self.shift
        return h if self.sketch is None else np.asarray(h @ self.sketch, dtype=np.float32)

    def _check(self, x: Features, rows: int) -> None:
        if x.shape != (rows, self.features):
            raise ValueError(f"expected instances of shape {(rows, self.features)}, found {x.shape}")


def pair_weight(sizes: Integers, counts: Integers) -> Floats:
    """c = α(1−α)/(n−1): minus the covariance of two members of a tuple, in units of δδᵀ (Eq. 5)."""
    alpha = counts / sizes
    return np.asarray(alpha * (1 - alpha) / np.maximum(sizes - 1, 1), dtype=np.float64)


def _gram(h: Features) -> Features:
    # numpy sees that both factors are one array and calls the symmetric product, half the work.
    return h.T @ h


def _sketch(features: int) -> Any:
    """A fixed random projection: every feature is added to, or taken from, four of the SKETCH sums.

    Random signs preserve covariances as Gaussian entries do, and cost four additions per feature, not SKETCH.
    """
    rng = np.random.default_rng(features)
    copies = 4  # sums that a feature enters
    columns = rng.integers(SKETCH, size=(features, copies))
    signs = rng.choice(np.array([-1, 1], dtype=np.float32), size=(features, copies)) / np.float32(sqrt(copies))
    rows = np.repeat(np.arange(features), copies)
    return csr_array((signs.reshape(-1), (rows, columns.reshape(-1))), shape=(features, SKETCH))


# --- fitting ------------------------------------------------------------------------------------


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
        """Whether it is known which class is which."""
        return self.oriented_by is not None

    def scores(self, x: NDArray[np.floating[Any]]) -> Floats:
        """Log-odds of the positive class, one per row."""
        return np.asarray(x @ self.weight + self.bias, dtype=np.float64)

    def flipped(self) -> Discriminant:
        """The other side, −δ: the classes exchanged, at the same prior and the same rates of the groups.

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
        """The side that the likelihood of the counts chose, by the sign test."""
        return replace(self.flipped() if mirrored else self, oriented_by="likelihood")


@dataclass(frozen=True)
class Whitened:
    """Moments in coordinates where the pooled covariance of the groups is the identity."""

    basis: Floats  # (k, r): z = (h − origin) basis
    origin: Floats
    sizes: Floats
    rates: Floats
    means: Floats  # of every group, relative to the origin
    products: Floats  # Σ_g c_g Σ_{i≠j} z_i z_jᵀ, centred by stratum
    information: float  # Σ_g pairs_g c_g², ordered pairs
    deficit: float  # Σ_g α(1−α): what centring took from the products, in units of the covariance within classes

    @property
    def mixing(self) -> float:
        """τ = mean of θ(1−θ): pooled covariance = covariance within classes + τ δδᵀ."""
        return float(self.sizes @ (self.rates * (1 - self.rates)) / self.sizes.sum())

    @property
    def rate(self) -> float:
        """Share of positives in all data, at whose mean the origin lies."""
        return float(self.sizes @ self.rates / self.sizes.sum())


def fit(moments: Moments, prior: float, components: int = 100) -> Discriminant:
    """The linear discriminant at `prior`, which is also the positive rate of the unlabeled data (Eqs. 34, 35 and 36).

    At most `components` leading principal components are kept, fewer where the data are few.
    Raises ValueError where the data identify nothing.
    """
    if not 0 < prior < 1:
        raise ValueError(f"the prior must lie between 0 and 1, found {prior}")
    white = whiten(moments, prior, components)
    first, first_variance = first_order(white)
    second, second_variance = second_order(white)
    if not isfinite(first_variance) and not isfinite(second_variance):
        raise ValueError(
            "nothing tells the classes apart: all groups have the same positive rate, "
            "and no tuple holds two instances of which some, but not all, are positive"
        )
    delta = combine(first, first_variance, second, second_variance)
    length = float(np.linalg.norm(delta))
    if length == 0:
        raise ValueError("the two classes have the same mean in these features: no linear classifier separates them")
    weights = 1 / first_variance, 2 * length**2 / second_variance
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
        tuple_rate=_tuple_rate(moments),
        level=level,
        separation=distance / sqrt(within),
        components=len(delta),
        first_order_weight=weights[0],
        second_order_weight=weights[1],
        first_order_z=z,
        oriented_by="first order" if z > ORIENTED_Z else None,
        prior_estimate=_prior_estimate(white, second, second_variance, delta, moments.unlabeled.instances),
    )


def whiten(moments: Moments, prior: float, components: int) -> Whitened:
    """Centre the moments and move them to the leading principal components, scaled to unit variance.

    Whitening by the pooled covariance Σ + τδδᵀ instead of Σ needs no δ beforehand, and the discriminant keeps its
    direction: (Σ + τδδᵀ)⁻¹δ ∝ Σ⁻¹δ. It also is the covariance that the noise of both orders has.
    """
    if not moments.strata:
        raise ValueError("there are no tuples")
    groups = list(_groups(moments, prior))
    sizes, rates = np.array([float(group.instances) for group, _ in groups]), np.array([rate for _, rate in groups])
    totals = np.stack([group.total for group, _ in groups])
    means = totals / sizes[:, None]
    n, m = np.array(list(moments.strata)).T
    c, tuples = pair_weight(n, m), np.array([float(group.tuples) for group in moments.strata.values()])
    information = float(tuples @ (n * (n - 1) * c**2))
    # Centring is a correction of rank one per group.
    covariance = (moments.squares - totals.T @ means) / max(sizes.sum() - len(groups), 1.0)
    basis = _principal(covariance, min(components, _affordable(sizes, rates, information)))
    # Σ_t (s_t−s̄)(s_t−s̄)ᵀ − Σ_i (h_i−μ)(h_i−μ)ᵀ = Σ s sᵀ − Σ h hᵀ − (1 − 1/n) (Σh)(Σh)ᵀ/T
    sums = totals[: len(tuples)] @ basis
    products = basis.T @ (moments.between - moments.within) @ basis
    products -= sums.T @ (sums * (c * (1 - 1 / n) / tuples)[:, None])
    origin = totals.sum(axis=0) / sizes.sum()
    return Whitened(
        basis=basis,
        origin=origin,
        sizes=sizes,
        rates=rates,
        means=(means - origin) @ basis,
        products=products,
        information=information,
        deficit=float((c * (n - 1)).sum()),
    )


def _affordable(sizes: Floats, rates: Floats, information: float) -> int:
    """How many components the data can tell from noise.

    r directions with errors of variance v exceed a δ of unit length once r·v > 1; half of that is allowed. Measured on
    (3,1) MNIST and FashionMNIST: best are 5 to 20 components for 100 tuples, 20 to 50 for 300, 50 for 1,000, 100 from
    3,000 on.
    """
    return max(FEWEST_COMPONENTS, int((1 / _slope(sizes, rates)[1] + information) / 2))


def _slope(sizes: Floats, rates: Floats) -> tuple[Floats, float]:
    """w⁺ − w⁻, which give δ from the group means, and the variance Σ(w⁺−w⁻)²/N of that (Eq. 32)."""
    try:
        plus, minus = class_weights(sizes, rates)
    except ZeroDivisionError:
        return np.zeros_like(sizes), inf
    slope = plus - minus
    return slope, float((slope**2 / sizes).sum())


def first_order(white: Whitened) -> tuple[Floats, float]:
    """δ from the group means, by least squares on the rates, and its variance per direction (Eq. 32), maybe ∞."""
    slope, variance = _slope(white.sizes, white.rates)
    return slope @ white.means, variance


def second_order(white: Whitened) -> tuple[Floats, float]:
    """M, an unbiased estimate of δδᵀ, and V with −log likelihood ‖M − δδᵀ‖²_F / 2V (Eq. 33).

    M = −Σ pairs_g c_g C_g / Σ pairs_g c_g². Centring a stratum by its mean takes (n−1)/n Var(s) from its products,
    and a tuple's sum has Var(s) = nΣ, as the number of its positives is fixed; with Σ = I − τδδᵀ that is undone here.
    Without it every stratum would add its variance, and many small strata would dominate δ.

    Off the diagonal the two orders of a pair are different products, so the sum over ordered pairs has variance 1 per
    pair; on it they are the same product twice, variance 2 per pair. ‖·‖_F counts an element off the diagonal twice,
    so one V fits both: V = 2 / Σ pairs_g c_g².
    """
    r = len(white.products)
    expected = white.information - white.mixing * white.deficit
    if white.information == 0 or expected <= 0:  # no pairs, or so few tuples that centring leaves nothing of them
        return np.zeros((r, r)), inf
    return -(white.products + white.deficit * np.eye(r)) / expected, 2 * white.information / expected**2


def combine(first: Floats, first_variance: float, second: Floats, second_variance: float) -> Floats:
    """argmin |δ−δ₁|²/2V₁ + ‖M−δδᵀ‖²_F/2V: both orders by their variances; the first has the sign (Eq. 34)."""
    if not isfinite(second_variance):
        return first
    values, vectors = eigh(second)
    # Along the leading eigenvector; where even that is not positive, the second order says that δ is 0.
    root = sqrt(max(values[-1], 0.0)) * vectors[:, -1]
    if not isfinite(first_variance):
        return np.asarray(root, dtype=np.float64)
    ratio = second_variance / first_variance

    def objective(delta: Floats) -> tuple[float, Floats]:
        """The sum times V, up to a constant, and its slope."""
        away, image, square = delta - first, second @ delta, float(delta @ delta)
        value = ratio * float(away @ away) / 2 - float(delta @ image) + square**2 / 2
        return value, ratio * away - 2 * image + 2 * square * delta

    options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9}
    starts = (root, -root, first)
    ends = [minimize(objective, start, jac=True, method="L-BFGS-B", options=options) for start in starts]
    return np.asarray(min(ends, key=lambda end: float(end.fun)).x, dtype=np.float64)


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


def _groups(moments: Moments, prior: float) -> Iterator[tuple[_GroupSums, float]]:
    """Strata and their rates, U last."""
    for (n, m), group in moments.strata.items():
        yield group, m / n
    if moments.unlabeled.instances:
        yield moments.unlabeled, prior


def _tuple_rate(moments: Moments) -> float:
    positives = sum(m * group.tuples for (_, m), group in moments.strata.items())
    return positives / sum(group.instances for group in moments.strata.values())


def _principal(covariance: Floats, components: int) -> Floats:
    """Leading eigenvectors, scaled so that the data have unit variance along them; constant features have none."""
    k = len(covariance)
    covariance = (covariance + covariance.T) / 2
    number = min(components, k)
    values, vectors = eigh(covariance, subset_by_index=[k - number, k - 1])
    kept = values > SMALLEST_COMPONENT * max(values.max(), 0.0)
    if not kept.any():
        raise ValueError("all instances are the same")
    return np.asarray(vectors[:, kept] / np.sqrt(values[kept]), dtype=np.float64)
