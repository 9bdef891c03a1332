"""Calibration of probabilities: calibration error, Brier score and its decomposition, temperature scaling.

Labels are booleans, p the probabilities of the positive class, weights those of the instances (1 unless given).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import DataError

BINS = 15
# Bins of a reliability diagram: few enough for an interval at each.
DIAGRAM_BINS = 10
# Temperatures outside these limits change no decision, only rounding: p is 0 or 1, or ½, for every score that occurs.
COLDEST, HOTTEST = 0.01, 100.0

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def refuse_nan(scores: NDArray[np.floating[Any]]) -> None:
    """NaN scores mean that the training diverged."""
    bad = int(np.count_nonzero(np.isnan(scores)))
    if bad:
        raise DataError(
            f"{bad} of {scores.size} scores are NaN",
            hint="The training diverged: lower the learning rate, or keep the margin policy on.",
        )


class Bins(NamedTuple):
    """Per bin, as shares of all weight: mass, Σ w·p and Σ w·y. An empty bin holds zeros."""

    mass: Floats
    p: Floats
    positives: Floats

    @property
    def confidence(self) -> Floats:
        """Mean probability per bin; nan where it is empty."""
        return _per(self.p, self.mass)

    @property
    def frequency(self) -> Floats:
        """Share of positives per bin; nan where it is empty."""
        return _per(self.positives, self.mass)


class EqualMassBins(NamedTuple):
    """Per bin mean probability, share of positives, and the effective number of instances (Kish), (Σw)²/Σw²."""

    confidence: Floats
    frequency: Floats
    instances: Floats


class BrierDecomposition(NamedTuple):
    """Brier score = reliability − resolution + uncertainty + within.

    Murphy (1973); `within` is the variation of the forecasts inside bins (Stephenson et al. 2008), 0 when every bin
    holds one value.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within: float


def equal_width_bins(labels: Bools, p: Floats, weights: Floats | None = None, bins: int = BINS) -> Bins:
    """Bins [k/15, (k+1)/15) of p; p = 0 falls into the first and p = 1 into the last."""
    at = np.minimum((p * bins).astype(np.int64), bins - 1)
    weight = np.ones(len(p)) if weights is None else weights
    total = weight.sum()
    mass, confident, positive = (
        np.bincount(at, values, bins) / total for values in (weight, weight * p, weight * labels)
    )
    return Bins(mass, confident, positive)


def calibration_error(labels: Bools, p: Floats, weights: Floats | None = None, bins: int = BINS) -> float:
    """ECE: Σ_b mass_b |frequency_b − confidence_b| over bins of equal width (Eq. 70)."""
    binned = equal_width_bins(labels, p, weights, bins)
    return float(np.abs(binned.positives - binned.p).sum())


def equal_mass_bins(labels: Bools, p: Floats, weights: Floats | None = None, bins: int = DIAGRAM_BINS) -> EqualMassBins:
    """Bins that hold the same weight each, cut along increasing p, for a reliability diagram.

    An instance on a border, and all that share its p, count on both sides in proportion.
    """
    order = np.argsort(p, kind="stable")
    p, y, weight = p[order], labels[order], np.ones(len(p)) if weights is None else weights[order]
    last_of_tie = np.flatnonzero(np.append(p[1:] != p[:-1], True))
    mass = np.concatenate(([0.0], np.cumsum(weight)[last_of_tie]))
    borders = np.linspace(0, mass[-1], bins + 1)

    def sums(values: Floats) -> Floats:
        total = np.concatenate(([0.0], np.cumsum(values)[last_of_tie]))
        return np.diff(np.interp(borders, mass, total))

    held, share = mass[-1] / bins, np.clip(sums(weight * y), 0, None)
    return EqualMassBins(sums(weight * p) / held, np.minimum(share / held, 1.0), held**2 / sums(weight**2))


def equal_mass_calibration_error(
    labels: Bools,
    p: Floats,
    weights: Floats | None = None,
    bins: int = BINS,
    order: NDArray[np.intp] | None = None,
) -> float:
    """ECE over bins that hold the same weight each, cut along increasing p (Eq. 70).

    An instance on a border, and all that share its p, count on both sides in proportion: every bin holds exactly its
    share, and the order of the instances changes nothing. `order` sorts p where that is known already.
    """
    order = np.argsort(p, kind="stable") if order is None else order
    p, weight = p[order], np.ones(len(p)) if weights is None else weights[order]
    last_of_tie = np.flatnonzero(np.append(p[1:] != p[:-1], True))
    mass = np.concatenate(([0.0], np.cumsum(weight)[last_of_tie]))
    excess = np.concatenate(([0.0], np.cumsum(weight * (labels[order] - p))[last_of_tie]))
    at_borders = np.interp(np.linspace(0, mass[-1], bins + 1), mass, excess)
    return float(np.abs(np.diff(at_borders)).sum() / mass[-1])


def brier(labels: Bools, p: Floats, weights: Floats | None = None) -> float:
    """Mean (p − y)² of a binary forecast (Eq. 71)."""
    return float(np.average((p - labels) ** 2, weights=weights))


def brier_decomposition(
    labels: Bools, p: Floats, weights: Floats | None = None, bins: int = BINS
) -> BrierDecomposition:
    """The terms of `brier` over bins of equal width (Eq. 71)."""
    binned = equal_width_bins(labels, p, weights, bins)
    mass = binned.mass
    full = mass > 0
    weight = np.ones(len(p)) if weights is None else weights
    positive, negative = float(weight[labels].sum()), float(weight[~labels].sum())
    share = positive / (positive + negative)  # never above 1, as a sum of rounded shares may be
    gap, spread = (binned.p - binned.positives)[full] / mass[full], binned.frequency[full] - share
    reliability, resolution = (float((mass[full] * deviation**2).sum()) for deviation in (gap, spread))
    uncertainty = share * (1 - share)
    return BrierDecomposition(
        reliability, resolution, uncertainty, brier(labels, p, weights) - (reliability - resolution + uncertainty)
    )


def label_nll(labels: Bools, scores: Floats, weights: Floats | None = None) -> float:
    """Mean −log P(label) of log-odds; nan where an instance had probability 0."""
    with np.errstate(invalid="ignore"):  # an infinite loss of weight 0
        nll = float(np.average(np.logaddexp(0, np.where(labels, -scores, scores)), weights=weights))
    return nll if math.isfinite(nll) else math.nan


# Temperature ---------------------------------------------------------------------------------------

Fit = Literal["fitted", "undetermined", "uninformative", "no labels", "no held-out data", "too few held-out tuples"]


class Temperature(NamedTuple):
    """T of σ(z/T), the outcome of its fit, and the mean −log-likelihood of the fitting data at T and at 1.

    `fitted`: the minimum. `undetermined`: the likelihood grows as T falls to 0, because the scores make no mistake on
    the fitting data (or are all 0); T = 1 leaves them unchanged. `uninformative`: it grows with T without bound; T is
    the largest allowed, where every p is near ½. Otherwise there was no fitting data, and T is nan.
    """

    value: float
    fit: Fit
    nll: float = math.nan
    nll_at_one: float = math.nan


def temperature_by_labels(scores: Floats, labels: Bools) -> Temperature:
    """argmin_T of the mean −log P(label | σ(z/T)) (Eq. 72).

    With β = 1/T the slope is mean (σ(βz) − y)z, which grows with β: the problem is convex in β, and the root of the
    slope its only minimum. Instances of infinite score are the same at every T and are left out.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    finite = np.isfinite(scores)
    z, y = scores[finite], labels[finite]
    if not len(z):
        return Temperature(math.nan, "no held-out data")

    def slope(beta: float) -> float:
        return float(np.mean((expit(beta * z) - y) * z))

    def nll(beta: float) -> float:
        return label_nll(y, beta * z)

    if slope(1 / COLDEST) <= 0:
        return Temperature(1.0, "undetermined", nll(1.0), nll(1.0))
    if slope(1 / HOTTEST) >= 0:
        return Temperature(HOTTEST, "uninformative", nll(1 / HOTTEST), nll(1.0))
    return _no_worse_than_one(brentq(slope, 1 / HOTTEST, 1 / COLDEST, xtol=1e-10), nll)


def temperature_by_counts(
    scores: Floats,
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    shift: float,
    noise: float = 0.0,
    spread: float = 0.0,
) -> Temperature:
    """argmin_T of the mean −log P(count) of held-out tuples, for data without labels (Eq. 72).

    Scores are log-odds at the deployment prior, and T divides them there: the decision z > 0 is the same at every T,
    and this T means the same as that of labels. Only then are they moved to the rate of the tuples, z/T − shift with
    shift = logit π − logit ᾱ. In β the likelihood of counts is a difference of convex functions, which
    may have several local minima: a grid of starting points brackets the lowest, and Brent's method refines it.

    Where tuples have an intercept b ~ N(0, τ²) of their own, `spread` is τ; σ(z/T) is the probability of an instance of
    any tuple.
    """
    # Only here, so that metrics start without scipy.
    from ntmp_cli.counting.laws import count_noise
    from ntmp_cli.counting.objective import CountObjective, conditional_slope
    from ntmp_cli.counting.observations import CountObservations
    from ntmp_cli.evaluation.bounded_minimum import bounded_minimum

    if not len(sizes):
        return Temperature(math.nan, "no held-out data")
    z = np.clip(scores, -1e6, 1e6)  # keeps arithmetic on infinite scores finite

    objective = CountObjective(CountObservations(sizes, counts, count_noise(noise)), spread)
    steeper = conditional_slope(spread)

    def nll(beta: float) -> float:
        return -float(objective.log_prob(steeper * (beta * z - shift)).mean())

    if objective.observed.rate in (0.0, 1.0):  # tuples of one class agree with any score that is sure of it
        return Temperature(1.0, "undetermined", nll(1.0), nll(1.0))
    starts = np.geomspace(1 / HOTTEST, 1 / COLDEST, 13)  # β = 1 is the seventh
    values = np.array([nll(beta) for beta in starts.tolist()])
    least = int(np.argmin(values))
    if values[-1] <= values[least] + 1e-12:
        return Temperature(1.0, "undetermined", nll(1.0), nll(1.0))
    if least == 0:
        return Temperature(HOTTEST, "uninformative", float(values[0]), nll(1.0))
    low, high = np.log(starts[[least - 1, least + 1]]).tolist()
    log_beta = bounded_minimum(lambda log_beta: nll(math.exp(log_beta)), low, high)
    return _no_worse_than_one(math.exp(log_beta), nll)


def _no_worse_than_one(beta: float, nll: Callable[[float], float]) -> Temperature:
    nll_at_one, nll_at_beta = nll(1.0), nll(beta)
    if nll_at_beta >= nll_at_one:  # the root is only known to its tolerance
        beta, nll_at_beta = 1.0, nll_at_one
    return Temperature(1 / beta, "fitted", nll_at_beta, nll_at_one)


def _per(numerator: Floats, denominator: Floats) -> Floats:
    ratio: Floats = np.divide(numerator, denominator, out=np.full(len(denominator), np.nan), where=denominator > 0)
    return ratio
