from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm

from ntmp_cli.learning.groups import class_weights
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.methods.ure import RISK_TERMS, Clamp, ClampScope, LossName, Mixing
from ntmp_cli.learning.risk import LOSSES, clamped, coefficients, partial_risks, tuple_weights, unbiased_risk

Floats = NDArray[np.float64]
LOSS_NAMES = get_args(LossName)
MIXINGS = get_args(Mixing)

# ℓ(g, y) = φ(y·g), written again from the literature in numpy.
PHI: dict[str, Callable[[Any], Any]] = {
    "logistic": lambda margin: np.logaddexp(0, -margin),
    "sigmoid": lambda margin: expit(-margin),
    "ramp": lambda margin: np.maximum(0, np.minimum(1, 0.5 - 0.5 * margin)),
    "hinge": lambda margin: np.maximum(0, 1 - margin),
    "clipped-logistic": lambda margin: np.minimum(2, np.logaddexp(0, -margin)),
}


@dataclass(frozen=True)
class Sample:
    """Scores of tuples of one stratum, one row per tuple, and of unlabeled instances."""

    n: int
    m: int
    prior: float
    tuples: Floats
    unlabeled: Floats

    @property
    def alpha(self) -> float:
        return self.m / self.n

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.full(len(self.tuples), self.n)

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.full(len(self.tuples), self.m)

    @property
    def scores(self) -> HeldoutScores:
        return HeldoutScores(self.tuples.ravel(), self.sizes, self.counts, self.unlabeled)

    def risk_terms(self, loss: LossName, mixing: Mixing, scope: ClampScope) -> Floats:
        """The package's two risk terms."""
        weights = coefficients(self.sizes, self.counts, len(self.unlabeled), self.prior, mixing)
        assert weights is not None
        scores = torch.from_numpy(np.concatenate([self.tuples.ravel(), self.unlabeled]))
        plus, minus = torch.from_numpy(weights.plus), torch.from_numpy(weights.minus)
        return partial_risks(scores, plus, minus, self.tuples.size, loss, scope).numpy()


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    n = draw(st.integers(1, 8))
    m = draw(st.integers(0, n))
    priors = [p for p in (0.05, 0.2, 0.35, 0.5, 0.8, 0.95) if abs(p - m / n) > 0.01]
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    tuples = rng.standard_normal((draw(st.integers(1, 12)), n)) * 3
    return Sample(n, m, draw(st.sampled_from(priors)), tuples, rng.standard_normal(draw(st.integers(1, 30))) * 3)


def four_terms(sample: Sample, loss: str) -> dict[tuple[str, str], float]:
    """Eq. (emp-risk) of the paper, term by term: (source, class) to value."""
    phi, pi, alpha = PHI[loss], sample.prior, sample.alpha
    n_tuples, n_unlabeled = len(sample.tuples), len(sample.unlabeled)
    tuple_pos = sum(sum(phi(g) for g in row) / sample.n for row in sample.tuples) / n_tuples
    tuple_neg = sum(phi(-g) for row in sample.tuples for g in row) / (sample.n * n_tuples)
    unlabeled_pos = sum(phi(g) for g in sample.unlabeled) / n_unlabeled
    unlabeled_neg = sum(phi(-g) for g in sample.unlabeled) / n_unlabeled
    return {
        ("unlabeled", "positive"): pi * (1 - alpha) * unlabeled_pos / (pi - alpha),
        ("tuples", "positive"): -pi * (1 - pi) * tuple_pos / (pi - alpha),
        ("unlabeled", "negative"): -(1 - pi) * alpha * unlabeled_neg / (pi - alpha),
        ("tuples", "negative"): (1 - pi) * pi * tuple_neg / (pi - alpha),
    }


@settings(deadline=None, max_examples=60)
@given(samples(), st.sampled_from(LOSS_NAMES), st.sampled_from(MIXINGS))
def test_one_stratum_gives_the_papers_four_terms(sample: Sample, loss: LossName, mixing: Mixing) -> None:
    terms = four_terms(sample, loss)
    tolerance = 1e-12 * max(1.0, *(abs(v) for v in terms.values()))
    risk = unbiased_risk(sample.scores, sample.prior, loss, mixing)
    assert risk == pytest.approx(sum(terms.values()), abs=tolerance)


@settings(deadline=None, max_examples=60)
@given(samples(), st.sampled_from(LOSS_NAMES), st.sampled_from(MIXINGS), st.sampled_from(get_args(ClampScope)))
def test_the_risk_terms_are_the_papers_sources_and_the_class_risks(
    sample: Sample, loss: LossName, mixing: Mixing, scope: ClampScope
) -> None:
    """By source R_T and R_U of the clamp paragraph; by class πR₊ and (1−π)R₋ of the identification lemma."""
    terms = four_terms(sample, loss)
    tolerance = 1e-12 * max(1.0, *(abs(v) for v in terms.values()))
    expected = [sum(v for key, v in terms.items() if name in key) for name in RISK_TERMS[scope]]
    assert sample.risk_terms(loss, mixing, scope) == pytest.approx(expected, abs=tolerance)


def test_the_risk_terms_are_named_in_the_order_of_their_values() -> None:
    assert RISK_TERMS == {"class": ("positive", "negative"), "source": ("tuples", "unlabeled")}


def uu_risk(first: Floats, second: Floats, theta: float, theta_: float, prior: float, loss: str) -> float:
    """Lu et al. (2018/2019), "On the minimal supervision for training any binary classifier from only
    unlabeled data", theorem 4: ℓ̄₊ = aℓ₊ + bℓ₋ on the set of prior θ, ℓ̄₋ = cℓ₋ + dℓ₊ on that of θ'."""
    phi = PHI[loss]
    a = (1 - theta_) * prior / (theta - theta_)
    b = -theta_ * (1 - prior) / (theta - theta_)
    c = theta * (1 - prior) / (theta - theta_)
    d = -(1 - theta) * prior / (theta - theta_)
    on_first = np.mean(a * phi(first) + b * phi(-first))
    on_second = np.mean(c * phi(-second) + d * phi(second))
    return float(on_first + on_second)


@settings(deadline=None, max_examples=60)
@given(samples(), st.sampled_from(LOSS_NAMES), st.sampled_from(MIXINGS))
def test_for_fixed_tuples_the_risk_is_that_of_uu_learning(sample: Sample, loss: LossName, mixing: Mixing) -> None:
    expected = uu_risk(sample.unlabeled, sample.tuples.ravel(), sample.prior, sample.alpha, sample.prior, loss)
    risk = unbiased_risk(sample.scores, sample.prior, loss, mixing)
    scale = max(1.0, *(abs(v) for v in four_terms(sample, loss).values()))
    assert risk == pytest.approx(expected, abs=1e-12 * scale)


def test_for_tuples_of_several_lengths_the_pooled_risk_is_not_that_of_uu_learning() -> None:
    """UU counts every instance once, the paper's pooled estimator every tuple once."""
    rng = np.random.default_rng(0)
    sizes, counts = np.array([2, 6, 6]), np.array([1, 1, 2])
    tuples, unlabeled = rng.standard_normal(14), rng.standard_normal(9)
    risk = unbiased_risk(HeldoutScores(tuples, sizes, counts, unlabeled), 0.8, "sigmoid", "pooled")
    assert risk != pytest.approx(uu_risk(unlabeled, tuples, 0.8, 4 / 14, 0.8, "sigmoid"), abs=1e-3)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.sampled_from([(2, 0), (2, 1), (3, 1), (3, 2), (5, 2), (6, 2)]), min_size=1, max_size=9),
    st.integers(1, 20),
    st.integers(0, 2**32),
)
def test_stratified_weights_are_those_of_the_groups(pairs: list[tuple[int, int]], unlabeled: int, seed: int) -> None:
    """Instance by instance: π w⁺_g / N_g and (1−π) w⁻_g / N_g, with one group per (n, m)."""
    prior = 0.45
    sizes, counts = (np.array(column) for column in zip(*pairs, strict=True))
    strata = sorted(set(pairs))
    totals = np.array([sum(n for n, m in pairs if (n, m) == s) for s in strata] + [unlabeled])
    plus, minus = class_weights(totals, [m / n for n, m in strata] + [prior])
    group = [strata.index(pair) for pair in pairs for _ in range(pair[0])] + [len(strata)] * unlabeled
    weights = coefficients(sizes, counts, unlabeled, prior)
    assert weights is not None
    assert np.allclose(weights.plus, prior * (plus / totals)[group], rtol=1e-10, atol=1e-13)
    assert np.allclose(weights.minus, (1 - prior) * (minus / totals)[group], rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("mixing", ["stratified", "pooled", "flat"])
def test_tuples_without_a_count_have_no_weight_and_the_others_keep_theirs(mixing: Mixing) -> None:
    sizes, counts = np.array([3, 5, 2, 3]), np.array([1.0, np.nan, 2.0, np.nan])
    weights, rated = (
        coefficients(sizes, counts, 7, 0.7, mixing),
        coefficients(sizes[[0, 2]], counts[[0, 2]], 7, 0.7, mixing),
    )
    assert weights is not None
    assert rated is not None
    kept = np.repeat([True, False, True, False, True], [*sizes, 7])
    for own, others in ((weights.plus, rated.plus), (weights.minus, rated.minus)):
        assert own[kept] == pytest.approx(others)
        assert (own[~kept] == 0).all()


@pytest.mark.parametrize(
    ("loss", "bound"), [("sigmoid", 1.0), ("ramp", 1.0), ("clipped-logistic", 2.0), ("logistic", None), ("hinge", None)]
)
def test_losses_equal_their_definition_and_keep_their_bound(loss: LossName, bound: float | None) -> None:
    margins = np.concatenate([np.linspace(-60, 60, 4001), [-1.0, 0.0, 1.0]])
    values = LOSSES[loss](torch.from_numpy(margins)).numpy()
    assert np.allclose(values, PHI[loss](margins), rtol=1e-12, atol=1e-15)
    assert (values >= 0).all()
    assert bound is None or values.max() <= bound
    if bound is None:
        assert values.max() > 50


@pytest.mark.parametrize(
    ("clamp", "expected"),
    [("none", [3.0, -1.5, 1.5, -3.0, 0.0]), ("relu", [3.0, 1.0, 2.0, 0.0, 0.0]), ("abs", [3.0, 3.5, 2.5, 3.0, 0.0])],
)
def test_clamps_act_on_each_risk_term_before_the_sum(clamp: Clamp, expected: list[float]) -> None:
    terms = [[1.0, 2.0], [1.0, -2.5], [-0.5, 2.0], [-1.0, -2.0], [0.0, 0.0]]
    assert [float(clamped(torch.tensor(p), clamp)) for p in terms] == expected


@pytest.mark.parametrize("scope", get_args(ClampScope))
@pytest.mark.parametrize("clamp", get_args(Clamp))
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_the_gradient_of_the_clamped_risk_is_right_away_from_kinks(
    loss: LossName, clamp: Clamp, scope: ClampScope
) -> None:
    rng = np.random.default_rng(3)
    # The small gap makes negative risk terms common.
    weights = coefficients(np.array([3, 3, 4, 2]), np.array([1, 1, 2, 1]), 7, 0.38)
    assert weights is not None
    plus, minus = torch.from_numpy(weights.plus), torch.from_numpy(weights.minus)
    signs = set()
    for _ in range(6):
        scores = torch.from_numpy(rng.standard_normal(19) * 2).requires_grad_()
        terms = partial_risks(scores, plus, minus, 12, loss, scope)
        assert terms.abs().min() > 1e-3
        assert (scores.detach().abs() - 1).abs().min() > 1e-5
        signs |= set((terms < 0).tolist())
        assert torch.autograd.gradcheck(
            lambda s: clamped(partial_risks(s, plus, minus, 12, loss, scope), clamp), (scores,), eps=1e-6
        )
    assert signs == {True, False}


RATES = st.lists(st.sampled_from([(1, 0), (1, 1), (2, 1), (4, 2), (3, 1), (6, 2), (5, 2)]), min_size=1, max_size=6)


@settings(deadline=None, max_examples=80)
@given(RATES, st.sampled_from([0.5, 1 / 3, 0.4, 0.37, 2 / 6]), st.integers(1, 40))
def test_there_are_no_coefficients_exactly_when_all_rates_are_equal(
    pairs: list[tuple[int, int]], prior: float, unlabeled: int
) -> None:
    sizes, counts = (np.array(column) for column in zip(*pairs, strict=True))
    rates = counts / sizes
    equal = {
        "stratified": (rates == prior).all(),
        "pooled": abs(rates.mean() - prior) < 1e-12,
        "flat": abs(counts.sum() / sizes.sum() - prior) < 1e-12,
    }
    for mixing in MIXINGS:
        weights = coefficients(sizes, counts, unlabeled, prior, mixing)
        assert (weights is None) == equal[mixing]
        scores = np.zeros(sizes.sum()), np.zeros(unlabeled)
        risk = unbiased_risk(HeldoutScores(scores[0], sizes, counts, scores[1]), prior, "sigmoid", mixing)
        assert (risk is None) == equal[mixing]


@settings(deadline=None, max_examples=60)
@given(samples(), st.sampled_from(MIXINGS))
def test_the_gap_of_one_stratum_is_the_papers(sample: Sample, mixing: Mixing) -> None:
    weights = coefficients(sample.sizes, sample.counts, len(sample.unlabeled), sample.prior, mixing)
    assert weights is not None
    assert weights.gap == pytest.approx(abs(sample.alpha - sample.prior), rel=1e-10)


def test_the_gap_of_several_strata_is_pooled_or_spread() -> None:
    sizes, counts = np.array([3, 3]), np.array([1, 2])
    pooled = coefficients(sizes, counts, 6, 0.6, "pooled")
    assert pooled is not None
    assert pooled.gap == pytest.approx(0.1, rel=1e-12)
    stratified = coefficients(sizes, counts, 6, 0.5)
    assert stratified is not None
    # Rates 1/3, 2/3 and ½ over 3, 3 and 6 instances: spread √(1/72), divided by √(½·½).
    assert stratified.gap == pytest.approx(2 * np.sqrt(1 / 72), rel=1e-12)


# Unbiasedness. Instances are Gaussian in one dimension, the scorer is linear: scores given the class are Gaussian.
SEPARATION, SLOPE, OFFSET = 1.5, 1.3, 0.4


def class_risk(loss: str, label: int) -> float:
    """E[ℓ(g, y) | y] by numerical integration."""
    mean = SLOPE * label * SEPARATION / 2 + OFFSET
    value, _ = quad(
        lambda g: PHI[loss](label * g) * norm.pdf(g, mean, SLOPE), mean - 12, mean + 12, points=[-1, 1], limit=200
    )
    return float(value)


def true_risk(loss: str, prior: float) -> float:
    return prior * class_risk(loss, 1) + (1 - prior) * class_risk(loss, -1)


def test_the_integrated_ramp_risk_agrees_with_its_closed_form() -> None:
    """E clip((1−m)/2, 0, 1) = ½ ∫_{−1}^{1} P(m ≤ t) dt for the margin m."""
    for label in (1, -1):
        mean = label * (SLOPE * label * SEPARATION / 2 + OFFSET)
        lower, upper = (-1 - mean) / SLOPE, (1 - mean) / SLOPE
        closed = SLOPE / 2 * (upper * norm.cdf(upper) + norm.pdf(upper) - lower * norm.cdf(lower) - norm.pdf(lower))
        assert class_risk("ramp", label) == pytest.approx(closed, abs=1e-10)


@dataclass(frozen=True)
class Setting:
    """How tuples vary; the rates keep away from the prior, so that a batch has a bounded weight."""

    prior: float
    sizes: Callable[[np.random.Generator, int], tuple[NDArray[np.int64], NDArray[np.int64]]]


def _fixed(rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.full(count, 3), np.full(count, 1)


def _variable_n(rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return rng.integers(2, 7, count), np.full(count, 1)


def _variable_m(rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.full(count, 4), rng.integers(0, 3, count)


def _both(rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    n = rng.integers(2, 7, count)
    return n, rng.integers(0, 1 + n // 2)


def _opposed(rng: np.random.Generator, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Long tuples have the higher rate: the means of the rate over tuples and over instances differ."""
    n = rng.choice([2, 8], count)
    return n, np.where(n == 8, 5, 0)


VARYING = {
    "fixed": Setting(0.75, _fixed),
    "variable-n": Setting(0.8, _variable_n),
    "variable-m": Setting(0.75, _variable_m),
    "both": Setting(0.8, _both),
    "opposed": Setting(0.85, _opposed),
}


@dataclass(frozen=True)
class Batches:
    """Many independent small batches of scores, in a row: tuples of a batch, then its unlabeled instances."""

    scores: Floats
    starts: NDArray[np.int64]
    sizes: list[NDArray[np.int64]]
    counts: list[NDArray[np.int64]]


UNLABELED = 10


@cache
def batches(name: str, repeats: int = 1500, seed: int = 7) -> Batches:
    setting, rng = VARYING[name], np.random.default_rng(seed)
    pieces, sizes, counts = [], [], []
    for _ in range(repeats):
        n, m = setting.sizes(rng, 8)
        within = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
        pieces.append(np.append(within < np.repeat(m, n), rng.random(UNLABELED) < setting.prior))
        sizes.append(n)
        counts.append(m)
    lengths = np.array([len(piece) for piece in pieces])
    positive = np.concatenate(pieces)
    x = rng.standard_normal(len(positive)) + SEPARATION * (positive - 0.5)
    return Batches(SLOPE * x + OFFSET, np.cumsum(lengths) - lengths, sizes, counts)


@cache
def batch_risks(name: str, mixing: Mixing, assumed_prior: float) -> dict[str, Floats]:
    """The risk of every batch, for every loss."""
    data = batches(name)
    weights = [
        coefficients(n, m, UNLABELED, assumed_prior, mixing) for n, m in zip(data.sizes, data.counts, strict=True)
    ]
    plus, minus = (np.concatenate([getattr(c, key) for c in weights]) for key in ("plus", "minus"))
    return {
        loss: np.add.reduceat(plus * PHI[loss](data.scores) + minus * PHI[loss](-data.scores), data.starts)
        for loss in LOSS_NAMES
    }


def deviation(values: Floats, truth: float) -> float:
    """Distance of the mean from the truth, in standard errors."""
    return float(abs(values.mean() - truth) / (values.std(ddof=1) / np.sqrt(len(values))))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("name", VARYING)
def test_the_mean_over_batches_is_the_closed_form_risk(name: str, mixing: Mixing) -> None:
    """Pooled too, with n and m varying jointly: given the batch, its tuples' mean rate is ᾱ of the batch."""
    prior = VARYING[name].prior
    for loss, values in batch_risks(name, mixing, prior).items():
        assert deviation(values, true_risk(loss, prior)) < 4, loss


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("name", ["fixed", "variable-n", "variable-m", "both"])
def test_a_wrong_prior_biases_the_risk(name: str, mixing: Mixing) -> None:
    prior = VARYING[name].prior
    assumed = prior - 0.15
    for loss, values in batch_risks(name, mixing, assumed).items():
        assert deviation(values, true_risk(loss, prior)) > 4, loss
        assert deviation(values, true_risk(loss, assumed)) > 4, loss


@pytest.mark.parametrize("mixing", MIXINGS)
@pytest.mark.parametrize("name", VARYING)
def test_the_risk_of_scores_is_the_sum_over_instances(name: str, mixing: Mixing) -> None:
    """What the tests above add up is what `unbiased_risk` and the loss compute, for any mixture."""
    data, prior = batches(name), VARYING[name].prior
    for loss in LOSS_NAMES:
        for b, start in list(enumerate(data.starts))[:5]:
            middle = start + data.sizes[b].sum()
            tuples, unlabeled = data.scores[start:middle], data.scores[middle : middle + UNLABELED]
            scores = HeldoutScores(tuples, data.sizes[b], data.counts[b], unlabeled)
            risk = unbiased_risk(scores, prior, loss, mixing)
            assert risk == pytest.approx(batch_risks(name, mixing, prior)[loss][b], rel=1e-12)


def test_the_mean_rate_over_instances_would_bias_the_pooled_risk() -> None:
    """Why ᾱ is the mean of m_t/n_t: where rates grow with length Σm/Σn is another number and misses the truth."""
    data, pi, phi = batches("opposed"), VARYING["opposed"].prior, PHI["sigmoid"]
    values: dict[str, list[float]] = {"tuples": [], "instances": []}
    for b, start in enumerate(data.starts):
        sizes, counts = data.sizes[b], data.counts[b]
        tuples, unlabeled = np.split(data.scores[start : start + sizes.sum() + UNLABELED], [sizes.sum()])
        weights = np.repeat(1 / sizes, sizes) / len(sizes)
        for key, alpha in (("tuples", np.mean(counts / sizes)), ("instances", counts.sum() / sizes.sum())):
            total = pi * (1 - alpha) * phi(unlabeled).mean() - pi * (1 - pi) * (weights @ phi(tuples))
            total += -(1 - pi) * alpha * phi(-unlabeled).mean() + (1 - pi) * pi * (weights @ phi(-tuples))
            values[key].append(total / (pi - alpha))
    assert values["tuples"] == pytest.approx(batch_risks("opposed", "pooled", pi)["sigmoid"].tolist(), rel=1e-9)
    assert deviation(np.array(values["instances"]), true_risk("sigmoid", pi)) > 4


@pytest.mark.parametrize("name", ["variable-n", "variable-m", "both", "opposed"])
def test_stratified_weights_vary_no_more_than_pooled_ones(name: str) -> None:
    stratified, pooled = (batch_risks(name, mixing, VARYING[name].prior) for mixing in ("stratified", "pooled"))
    for loss in LOSS_NAMES:
        assert stratified[loss].var() < pooled[loss].var() * 1.02, loss


def test_random_weights_of_a_tuple_are_uniform_on_the_simplex() -> None:
    sizes = np.tile([1, 4, 7], 4000)
    weights = np.split(tuple_weights(sizes, np.random.default_rng(0)), np.cumsum(sizes)[:-1])
    for n in (1, 4, 7):
        shares = np.stack([w for w in weights if len(w) == n]) / n
        assert shares.sum(axis=1) == pytest.approx(1.0)
        # E Σ a_j² = 2/(n+1) of the flat Dirichlet law.
        squares = (shares**2).sum(axis=1)
        assert squares.mean() == pytest.approx(2 / (n + 1), abs=5 * squares.std() / np.sqrt(len(squares)) + 1e-12)
