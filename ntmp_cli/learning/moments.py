"""Moments of counted tuples and unlabeled instances, and the difference of the class means that follows from them.

With δ = μ₊ − μ₋, two orders of moments identify the classes without any training:

- first: group means are a line in the positive rate, μ_g = μ₋ + θ_g δ (Eq. 8), whose slope is δ;
- second: two members of a tuple have E[(h_i−μ)(h_j−μ)ᵀ] = −c δδᵀ with c = α(1−α)/(n−1) (Eq. 5), which gives ±δ.

`Moments` accumulates sums and outer products in one pass over the data, `whiten` moves them to principal components of
unit variance, `first_order` and `second_order` estimate δ and δδᵀ with their variances. `discriminant.py` turns them
into a classifier.

One matrix is enough for all strata: the minimum-variance estimate of second order weights the products of a stratum by
c, which depends only on (n, m). So Σ c_t s_t s_tᵀ − Σ c_i h_i h_iᵀ, with s_t the sum of a tuple, can be accumulated
over strata while reading. Centring it afterwards needs only the sum of each stratum.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
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


# --- sums -------------------------------------------------------------------------------------


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
            # Moments need exact counts: tuples with a range or a noisy count are left out.
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


# --- whitening and the two orders ------------------------------------------------------------


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

    def leading(self, components: int) -> Whitened:
        """The same in the components of largest variance, which are the last ones."""
        some = slice(-components, None)
        basis, means, products = self.basis[:, some], self.means[:, some], self.products[some, some]
        return replace(self, basis=basis, means=means, products=products)

    @property
    def mixing(self) -> float:
        """τ = mean of θ(1−θ): pooled covariance = covariance within classes + τ δδᵀ."""
        return float(self.sizes @ (self.rates * (1 - self.rates)) / self.sizes.sum())

    @property
    def rate(self) -> float:
        """Share of positives in all data, at whose mean the origin lies."""
        return float(self.sizes @ self.rates / self.sizes.sum())


def whiten(moments: Moments, prior: float, components: int) -> Whitened:
    """Centre the moments and move them to the leading principal components, scaled to unit variance.

    Whitening by the pooled covariance Σ + τδδᵀ instead of Σ needs no δ beforehand, and the discriminant keeps its
    direction: (Σ + τδδᵀ)⁻¹δ ∝ Σ⁻¹δ. It also is the covariance that the noise of both orders has.
    """
    return project(moments, prior, _principal(pooled_covariance(moments), components))


def pooled_covariance(moments: Moments) -> Floats:
    """The covariance of all data around the means of their groups."""
    groups = [group for group, _ in _groups(moments, 0.5)]
    totals = np.stack([group.total for group in groups])
    sizes = np.array([float(group.instances) for group in groups])
    # Centring is a correction of rank one per group.
    covariance: Floats = (moments.squares - totals.T @ (totals / sizes[:, None])) / max(sizes.sum() - len(groups), 1.0)
    return covariance


def project(moments: Moments, prior: float, basis: Floats) -> Whitened:
    """The moments along the columns of a basis, in which the data have unit variance."""
    groups = list(_groups(moments, prior))
    sizes, rates = np.array([float(group.instances) for group, _ in groups]), np.array([rate for _, rate in groups])
    totals = np.stack([group.total for group, _ in groups])
    means = totals / sizes[:, None]
    n, m = np.array(list(moments.strata)).T
    c, tuples = pair_weight(n, m), np.array([float(group.tuples) for group in moments.strata.values()])
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
        information=_information(moments),
        deficit=float((c * (n - 1)).sum()),
    )


def _information(moments: Moments) -> float:
    """Σ pairs c² over ordered pairs within tuples."""
    n, m = np.array(list(moments.strata)).T
    tuples = np.array([float(group.tuples) for group in moments.strata.values()])
    return float(tuples @ (n * (n - 1) * pair_weight(n, m) ** 2))


def affordable(moments: Moments, prior: float) -> int:
    """Number of components that the data can distinguish from noise.

    r directions with errors of variance v exceed a δ of unit length once r·v > 1; half of that is allowed. Measured on
    (3,1) MNIST and FashionMNIST: best are 5 to 20 components for 100 tuples, 20 to 50 for 300, 50 for 1,000, 100 from
    3,000 on.
    """
    groups = list(_groups(moments, prior))
    sizes, rates = np.array([float(group.instances) for group, _ in groups]), np.array([rate for _, rate in groups])
    return max(FEWEST_COMPONENTS, int((1 / _slope(sizes, rates)[1] + _information(moments)) / 2))


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


def _groups(moments: Moments, prior: float) -> Iterator[tuple[_GroupSums, float]]:
    """Strata and their rates, U last."""
    if not moments.strata:
        raise ValueError("there are no tuples")
    for (n, m), group in moments.strata.items():
        yield group, m / n
    if moments.unlabeled.instances:
        yield moments.unlabeled, prior


def tuple_rate(moments: Moments) -> float:
    """Share of positives among the instances of tuples."""
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
