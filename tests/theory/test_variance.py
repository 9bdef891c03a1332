"""Variance and deviation of the risk, held against simulated risks."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest
from design_strategies import designs, fitted_class_means
from hypothesis import assume, given, settings
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.learning.groups import class_weights
from ntmp_cli.theory.strata import Design, Stratum
from ntmp_cli.theory.variance import (
    deviation,
    estimation_term,
    inflation_over_labels,
    inflation_over_unit_gap,
    risk_variance,
    separation_at,
    sizes_for,
)

CASES = {
    "one stratum": Design((Stratum(3, 1, 20),), 80, 0.75),
    "two strata around the prior": Design((Stratum(3, 1, 15), Stratum(3, 2, 15)), 60, 0.5),
    "three lengths": Design((Stratum(2, 1, 12), Stratum(5, 1, 6), Stratum(4, 4, 3)), 40, 0.2),
}


def losses(positives: int, negatives: int, repeats: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """ℓ(g(x), +1) of the sigmoid loss where x is N(±1, 1) and g(x) = 2x: the classes are mirror images."""
    x = np.concatenate([rng.normal(1, 1, (repeats, positives)), rng.normal(-1, 1, (repeats, negatives))], axis=1)
    return expit(-2 * x)


def iid_losses(design: Design, repeats: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """The same of pools whose every label is positive with probability π."""
    shape = repeats, int(design.unlabeled)
    signs = np.where(rng.random(shape) < design.prior, 1.0, -1.0)
    return expit(-2 * (signs + rng.normal(size=shape)))


def simulated_risks(
    design: Design, repeats: int, rng: np.random.Generator, *, is_iid: bool = False
) -> NDArray[np.float64]:
    """Unbiased risks of one fixed scorer on fresh data with these counts, by least squares on group means."""
    groups = design.stratified()
    numbers = [(s.m * s.tuples, (s.n - s.m) * s.tuples) for s in design.strata]
    unlabeled = round(design.prior * design.unlabeled)
    numbers.append((unlabeled, design.unlabeled - unlabeled))
    means = np.stack([losses(int(p), int(q), repeats, rng).mean(axis=1) for p, q in numbers])
    if is_iid:
        means[-1] = iid_losses(design, repeats, rng).mean(axis=1)
    positive, _ = fitted_class_means(groups, means)
    _, negative = fitted_class_means(groups, 1 - means)
    return design.prior * positive + (1 - design.prior) * negative


@pytest.mark.parametrize("name", CASES)
def test_the_variance_is_that_of_simulated_risks(name: str) -> None:
    design, rng = CASES[name], np.random.default_rng(0)
    risks = simulated_risks(design, 6000, rng)
    within = float(losses(200_000, 0, 1, rng).var())
    assert risks.mean() == pytest.approx(expit(-2 * rng.normal(1, 1, 400_000)).mean(), abs=4 * risks.std() / sqrt(6000))
    assert risks.var() == pytest.approx(within * risk_variance(design.stratified()), rel=0.08)


@pytest.mark.parametrize("name", CASES)
def test_the_variance_of_an_iid_pool_is_that_of_simulated_risks(name: str) -> None:
    """Where U has a weight it is larger by more than the Monte-Carlo error; between two strata it has none."""
    design, rng = CASES[name], np.random.default_rng(3)
    risks = simulated_risks(design, 6000, rng, is_iid=True)
    positive, negative = losses(200_000, 0, 1, rng), losses(0, 200_000, 1, rng)
    within, separation = float(positive.var()), float(negative.mean() - positive.mean()) / float(positive.std())
    exact, iid = (within * (risk_variance(design.stratified(), s) or 0.0) for s in (0.0, separation))
    assert risks.var() == pytest.approx(iid, rel=0.08)
    assert name == "two strata around the prior" or risks.var() > 1.2 * exact


def test_the_separation_is_that_of_a_binary_loss() -> None:
    """Errors of 0 or 1 with rate e: the means are e and 1 − e, the variance e(1−e)."""
    assert separation_at(0.1) == pytest.approx(0.8 / 0.3)
    assert separation_at(0.5) == 0


@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_deviation_holds_for_iid_pools_too(confidence: float) -> None:
    design = CASES["one stratum"]
    risks = simulated_risks(design, 4000, np.random.default_rng(4), is_iid=True)
    away = np.abs(risks - risks.mean())
    assert (away <= (deviation(design.stratified(), confidence) or 0.0)).mean() >= confidence


@pytest.mark.parametrize("name", CASES)
def test_labels_would_have_the_variance_that_inflation_is_relative_to(name: str) -> None:
    design, rng = CASES[name], np.random.default_rng(1)
    total = int(design.instances + design.unlabeled)
    positives = round(design.prior * total)
    supervised = losses(positives, 0, 4000, rng).sum(axis=1)
    supervised = (supervised + losses(total - positives, 0, 4000, rng).sum(axis=1)) / total  # by symmetry
    risks = simulated_risks(design, 4000, rng)
    inflation = inflation_over_labels(design, design.stratified())
    assert risks.var() / supervised.var() == pytest.approx(inflation, rel=0.12)
    # By default for a pool of exactly π N_U positives.
    assert inflation == pytest.approx(risk_variance(design.stratified()) * total)


def test_one_stratum_has_the_closed_form() -> None:
    n_t, n_u, a, p = 60.0, 80.0, 1 / 3, 0.75
    expected = (4 * p**2 * (1 - p) ** 2 / n_t + (p * (1 - a) + (1 - p) * a) ** 2 / n_u) / (p - a) ** 2
    assert risk_variance(CASES["one stratum"].stratified()) == pytest.approx(expected, rel=1e-12)
    assert inflation_over_unit_gap(CASES["one stratum"].stratified()) == pytest.approx((p - a) ** -2)


@settings(deadline=None)
@given(designs())
def test_stratified_weights_are_never_noisier_than_pooled_ones(design: Design) -> None:
    """For the class means, which they have the least variance of."""
    stratified, pooled = design.stratified(), design.pooled()
    assume(pooled.spread > 1e-4)
    best, paper = class_weights(stratified.sizes, stratified.rates), class_weights(pooled.sizes, pooled.rates)
    for weights, pooled_weights in zip(best, paper, strict=True):
        assert (weights**2 / stratified.sizes).sum() <= (pooled_weights**2 / pooled.sizes).sum() * (1 + 1e-9)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("confidence", [0.5, 0.95])
def test_the_deviation_holds_as_often_as_it_says(name: str, confidence: float) -> None:
    design = CASES[name]
    risks = simulated_risks(design, 4000, np.random.default_rng(2))
    away = np.abs(risks - risks.mean())
    assert (away <= deviation(design.stratified(), confidence)).mean() >= confidence


def test_the_deviation_of_one_stratum_has_the_closed_form() -> None:
    """Hoeffding's bound with the weights of the paper's four terms."""
    n_t, n_u, a, p = 60.0, 80.0, 1 / 3, 0.75
    of_tuples = (p * (1 - p) + (1 - p) * p) / (p - a)
    of_pool = (p * (1 - a) + (1 - p) * a) / (p - a)
    expected = sqrt(log(2 / 0.1) / 2 * (of_tuples**2 / n_t + of_pool**2 / n_u))
    assert deviation(CASES["one stratum"].stratified(), 0.9) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=50)
@given(designs())
def test_planned_sizes_meet_their_target_and_smaller_ones_do_not(design: Design) -> None:
    assume(design.stratified().spread > 1e-4)

    def value(factor: float, term: object) -> float:
        grown = tuple(replace(s, tuples=s.tuples * factor) for s in design.strata)
        groups = Design(grown, design.unlabeled * factor, design.prior).stratified()
        return deviation(groups, 0.9) if term is deviation else estimation_term(groups)

    for term in (deviation, estimation_term):
        target = value(1, term) / 3.7
        tuples, unlabeled = sizes_for(design, value(1, term), target)
        enough = min(tuples / design.tuples, unlabeled / design.unlabeled)
        assert value(enough, term) <= target * (1 + 1e-9)
        # One tuple and one unlabeled instance fewer are too few, so that the advised sizes are the smallest.
        too_few = max((tuples - 1) / design.tuples, (unlabeled - 1) / design.unlabeled)
        assert value(too_few, term) > target * (1 - 1e-9)


def test_the_papers_term_is_the_papers() -> None:
    design = Design((Stratum(3, 1, 1000),), 5000, 0.5)
    assert estimation_term(design.stratified()) == pytest.approx(6 * (1 / sqrt(3000) + 1 / sqrt(5000)))
    assert estimation_term(design.stratified(), 0.9) == pytest.approx(
        6 * sqrt(log(20)) * (1 / sqrt(3000) + 1 / sqrt(5000))
    )
    mixed = Design((Stratum(3, 1, 1000), Stratum(5, 1, 400)), 5000, 0.5).stratified()
    assert estimation_term(mixed) == pytest.approx((1 / sqrt(5000) + 1 / sqrt(5000)) / mixed.gap)


def test_nothing_is_estimated_where_nothing_is_identified() -> None:
    groups = Design((Stratum(2, 1, 10),), 10, 0.5).stratified()
    assert risk_variance(groups) is deviation(groups, 0.9) is estimation_term(groups) is None
    assert sizes_for(Design((Stratum(2, 1, 10),), 10, 0.5), None, 0.1) is None
