"""Which recorded counts are probably wrong: the distribution of every count, its p-value, the posterior of an error.

With calibrated log-odds z at the tuples' rate ᾱ, the number of positives of a tuple would be Poisson-binomial if
tuples were sampled at random. They seldom are: a user may choose groups with one positive each. But given its count k,
a tuple is a random tuple with k positives, so that p(x | k) ∝ PB_k(z) / Binomial(k; n, ᾱ) in every design.
With ρ_k the share of tuples of this length that truly have k positives (Eqs. 61 and 62),

    P(k | x) ∝ ρ_k PB_k(z) / Binomial(k; n, ᾱ),        P(recorded, x) ∝ Σ_k R_ε(recorded | k) ρ_k PB_k(z) / Binomial(k),

where R_ε moves a count to a neighbour with probability ε. EM estimates ρ and ε by maximum likelihood: both updates are
means of the posterior of k.

Members of natural groups have a random intercept b ~ N(0, τ²) in common: PB is then a mean over b, by Gauss–Hermite
quadrature. Their features are alike too, so that the law of a random group's count is no binomial: the mean of P(k | x)
over the groups stands in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import chdtri

from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.counting.normal_nodes import normal_nodes
from ntmp_cli.counting.poisson_binomial import count_law

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# ρ is shrunk towards the binomial with the weight of this many tuples, because rare lengths have little data.
PSEUDO_TUPLES = 10.0
MOST_ROUNDS = 500
SETTLED = 1e-7
SMALLEST, LARGEST = 1e-6, 0.5
TINY = 1e-300
# Largest size of the distributions of one length, at all nodes, that are in memory at a time.
LAW_BYTES = 8 * 2**20
NODES = 11
INTERCEPTS, NODE_WEIGHTS = normal_nodes(NODES)


@dataclass(frozen=True)
class Assumed:
    """Assumptions: the noise rate (None: estimated) and the standard deviation τ of intercepts.

    If tuples were sampled at random, ρ is the distribution of a random tuple's count and is not estimated.
    """

    noise: float | None = None
    spread: float = 0.0
    at_random: bool = False


NOTHING = Assumed()


@dataclass(frozen=True)
class _Length:
    """Tuples of one length: their indices, their counts, p(x | k) up to a factor, and the law of a random tuple."""

    n: int
    indices: Ints
    counts: Ints
    evidence: Floats
    binomial: Floats

    def recorded(self, rate: float) -> Floats:
        """(T, n+1): P(recorded | k)."""
        return OffByOne(rate).likelihood(self.counts[:, None], np.arange(self.n + 1), self.n)


@dataclass(frozen=True)
class CountAudit:
    """Recorded counts judged by scores, tuple by tuple."""

    noise: float
    noise_ci: tuple[float, float]
    true_shares: dict[int, list[float]]
    """By length n, the estimated share of tuples with k = 0 … n positives."""
    wrong: Floats
    """P(the recorded count is wrong | scores, recorded count)."""
    p_values: Floats
    """P(a count at most as probable as the recorded one | scores), were all recorded counts right."""
    expected: Floats
    """Mean of the true count given the scores alone."""
    likeliest: Ints
    """The likeliest true count given scores and recorded count."""
    ratio: Floats
    """Likelihood ratio of the recorded count: off by one against exact."""
    gain: float | None = None
    """Likelihood-ratio statistic of counts off by one against exact counts; None if not computed."""


class CountDesign(NamedTuple):
    """The noise rate, the shares of true counts over those of random tuples, and the log-likelihood."""

    noise: float
    shares_over_chance: dict[int, Floats]
    log_likelihood: float


def design_of(z: Floats, sizes: Ints, counts: Ints, rate: float, assumed: Assumed) -> CountDesign:
    """Maximum-likelihood noise rate and shares of true counts, given log-odds at `rate`."""
    lengths = _by_length(z, sizes, counts, rate, assumed.spread)
    noise, shares, likelihood = _fit(lengths, len(sizes), assumed)
    over = {length.n: share / length.binomial for length, share in zip(lengths, shares, strict=True)}
    return CountDesign(noise, over, likelihood)


def parameters_of_shares(sizes: Ints) -> int:
    """Number of free parameters of ρ: n for every length n."""
    return int(np.unique(sizes).sum())


def audit_counts(
    z: Floats, sizes: Ints, counts: Ints, rate: float, confidence: float = 0.95, assumed: Assumed = NOTHING
) -> CountAudit:
    """Judge recorded counts of tuples whose members' log-odds `z`, at `rate`, are concatenated (Eq. 63)."""
    lengths = _by_length(z, sizes, counts, rate, assumed.spread)
    noise, shares, best = _fit(lengths, len(sizes), assumed)
    ci = (noise, noise) if assumed.noise is not None else _profile(lengths, len(sizes), noise, best, confidence)
    wrong, p, expected, ratio = (np.empty(len(sizes)) for _ in range(4))
    likeliest = np.empty(len(sizes), dtype=np.int64)
    for length, share in zip(lengths, shares, strict=True):
        law = _normalised(share * length.evidence)
        posterior = _normalised(length.recorded(noise) * share * length.evidence)
        rows = np.arange(len(length.indices))
        recorded_probability = law[rows, length.counts]
        # Equal probabilities may differ in their last digits.
        as_rare = law <= recorded_probability[:, None] * (1 + 1e-9)
        wrong[length.indices] = 1 - posterior[rows, length.counts]
        p[length.indices] = np.minimum((law * as_rare).sum(axis=1), 1.0)
        expected[length.indices] = law @ np.arange(length.n + 1)
        likeliest[length.indices] = posterior.argmax(axis=1)
        # The most powerful order in which to check counts, whatever the noise rate is, 0 included.
        off_by_one = (length.recorded(1.0) * law).sum(axis=1)
        ratio[length.indices] = off_by_one / np.maximum(recorded_probability, TINY)
    named = {length.n: share.tolist() for length, share in zip(lengths, shares, strict=True)}
    return CountAudit(noise, ci, named, np.clip(wrong, 0, 1), p, expected, likeliest, ratio)


def _by_length(z: Floats, sizes: Ints, counts: Ints, rate: float, spread: float = 0.0) -> list[_Length]:
    from scipy.stats import binom

    starts = np.cumsum(sizes) - sizes
    intercepts, weights = (spread * INTERCEPTS, NODE_WEIGHTS) if spread else (np.zeros(1), np.ones(1))
    lengths = []
    for n in np.unique(sizes).tolist():
        indices = np.flatnonzero(sizes == n)
        law = np.empty((len(indices), n + 1))
        step = max(1, LAW_BYTES // (8 * len(weights) * (n + 1)))
        for first in range(0, len(indices), step):
            block = slice(first, first + step)
            members = z[starts[indices[block]][:, None] + np.arange(n)]
            # Extreme scores leave counts without probability; the noise model needs some.
            law[block] = np.maximum(np.tensordot(weights, count_law(members + intercepts[:, None, None]), 1), 1e-15)
        at_random = law.mean(axis=0) if spread else binom.pmf(np.arange(n + 1), n, rate)
        binomial = np.maximum(at_random, TINY)
        lengths.append(_Length(n, indices, counts[indices], law / binomial, binomial))
    return lengths


def _fit(lengths: list[_Length], tuples: int, assumed: Assumed) -> tuple[float, list[Floats], float]:
    """(ε, ρ by length, log-likelihood) by EM, of what is not assumed (Eq. 62)."""
    fixed = assumed.noise
    noise = 0.05 if fixed is None else fixed
    shares = [length.binomial / length.binomial.sum() for length in lengths]
    before = -np.inf
    for _ in range(MOST_ROUNDS):
        likelihood, wrong, after = 0.0, 0.0, []
        for length, share in zip(lengths, shares, strict=True):
            joint = length.recorded(noise) * share * length.evidence
            total = np.maximum(joint.sum(axis=1, keepdims=True), TINY)
            posterior = joint / total
            prior = PSEUDO_TUPLES * length.binomial / length.binomial.sum()
            likelihood += float(np.log(total).sum() + (prior * np.log(np.maximum(share, TINY))).sum())
            wrong += float((1 - posterior[np.arange(len(joint)), length.counts]).sum())
            after.append((posterior.sum(axis=0) + prior) / (len(joint) + PSEUDO_TUPLES))
        shares = shares if assumed.at_random else after
        if fixed is None:
            noise = min(max(wrong / tuples, SMALLEST), LARGEST)
        if likelihood - before < SETTLED * tuples:
            break
        before = likelihood
    return noise, shares, likelihood


def _profile(lengths: list[_Length], tuples: int, noise: float, best: float, confidence: float) -> tuple[float, float]:
    """Where twice the loss of log-likelihood, ρ fitted anew, passes the quantile of χ²."""
    allowed = float(chdtri(1, 1 - confidence)) / 2

    def excess(rate: float) -> float:
        return best - _fit(lengths, tuples, Assumed(rate))[2] - allowed

    low = brentq(excess, SMALLEST, noise, xtol=1e-5) if excess(SMALLEST) > 0 and noise > SMALLEST else 0.0
    high = brentq(excess, noise, LARGEST, xtol=1e-5) if excess(LARGEST) > 0 and noise < LARGEST else LARGEST
    return float(low), float(high)


def _normalised(weights: Floats) -> Floats:
    probabilities: Floats = weights / np.maximum(weights.sum(axis=1, keepdims=True), TINY)
    return probabilities
