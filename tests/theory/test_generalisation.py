"""Complexities against all signs of small samples, and the bound against simulated minimisers."""

from __future__ import annotations

from itertools import product
from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.theory.generalisation import NormClass, excess_bound, linear_complexity, network_complexity
from ntmp_cli.theory.strata import Design, Stratum
from ntmp_cli.theory.variance import deviation, risk_weights

Floats = NDArray[np.float64]
SIGNS = np.array(list(product([-1.0, 1.0], repeat=8)))


def radius(x: Floats) -> float:
    return sqrt(float((x**2).sum(axis=1).mean()))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**31), st.integers(1, 6), st.floats(0.1, 10))
def test_linear_scores_have_the_complexity_of_all_their_signs(seed: int, features: int, norm: float) -> None:
    """sup_{‖w‖ ≤ W} Σσ w·x = W‖Σσx‖; by Khintchine and Kahane its mean is at least 1/√2 of the bound."""
    x = np.random.default_rng(seed).normal(size=(8, features))
    exact = norm * float(np.linalg.norm(SIGNS @ x, axis=1).mean()) / 8
    bound = linear_complexity(norm, radius(x), 8)
    assert bound / sqrt(2) * (1 - 1e-9) <= exact <= bound * (1 + 1e-9)
    assert NormClass((norm,)).complexity(radius(x), 8) == bound


@pytest.mark.parametrize("seed", range(5))
def test_two_layers_have_at_most_the_complexity_of_the_bound(seed: int) -> None:
    """Frobenius balls: sup Σσ v·relu(Wx) = ‖v‖‖W‖ max_u |Σσ relu(u·x)| over unit u, here on a circle."""
    rng = np.random.default_rng(seed)
    x, norms = rng.normal(size=(8, 2)), rng.uniform(0.5, 3, 2)
    angle = np.linspace(0, 2 * np.pi, 720, endpoint=False)
    neurons = np.maximum(x @ np.stack([np.cos(angle), np.sin(angle)]), 0)
    exact = float(norms.prod() * np.abs(SIGNS @ neurons).max(axis=1).mean()) / 8
    bound = network_complexity(norms, radius(x), 8)
    assert bound / 6 < exact <= bound


@pytest.mark.parametrize("depth", [2, 3, 5])
def test_no_network_that_is_found_exceeds_the_bound(depth: int) -> None:
    rng = np.random.default_rng(depth)
    x = rng.normal(size=(8, 3))
    widths = [3, *[4] * (depth - 1), 1]
    norms = rng.uniform(0.5, 2, depth)
    scores = []
    for _ in range(4000):
        h = x
        for layer, norm in enumerate(norms):
            w = rng.normal(size=(widths[layer], widths[layer + 1]))
            h = h @ (w * norm / np.linalg.norm(w))
            if layer < depth - 1:
                h = np.maximum(h, 0)
        scores.append(h[:, 0])
    best = (SIGNS @ np.array(scores).T).max(axis=1).mean() / 8
    assert 0 < best <= network_complexity(norms, radius(x), 8)
    assert np.abs(scores).max() <= NormClass(tuple(norms)).largest_score(float(np.linalg.norm(x, axis=1).max()))


# --- the bound ------------------------------------------------------------------------------------

DESIGN = Design((Stratum(3, 1, 60), Stratum(5, 1, 20)), 150, 0.7)
NORM = 3.0
ANGLES = np.linspace(0, 2 * np.pi, 60, endpoint=False)
# Scores w·x of the class {‖w‖ ≤ NORM} on a grid of w.
CLASS = np.concatenate([s * np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1) for s in (0.3, 1.0, NORM)])


def instances(labels: Floats, rng: np.random.Generator) -> Floats:
    return rng.normal(size=(*labels.shape, 2)) + labels[..., None] * np.array([0.6, 0.3])


def risks_on(positive: Floats, negative: Floats) -> tuple[Floats, Floats]:
    """Means of the sigmoid losses ℓ(g,+1) on the first and of both on the second sample, by classifier."""
    return expit(-positive @ CLASS.T).mean(axis=0), expit(negative @ CLASS.T).mean(axis=0)


def simulated(repeats: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """Estimated risks (repeats, classifiers), true ones, and mean squares of norms (repeats, groups)."""
    rng = np.random.default_rng(seed)
    positive, negative = (instances(np.full(40_000, y), rng) for y in (1.0, -1.0))
    r_plus, r_minus = risks_on(positive, negative)
    true = DESIGN.prior * r_plus + (1 - DESIGN.prior) * r_minus
    plus, minus = risk_weights(DESIGN.stratified())
    rows, norms = [], []
    for _ in range(repeats):
        groups = [np.tile(np.repeat([1.0, -1.0], [s.m, s.n - s.m]), int(s.tuples)) for s in DESIGN.strata]
        groups.append(np.where(rng.random(int(DESIGN.unlabeled)) < DESIGN.prior, 1.0, -1.0))
        x = [instances(labels, rng) for labels in groups]
        means = [(expit(-h @ CLASS.T).mean(axis=0), expit(h @ CLASS.T).mean(axis=0)) for h in x]
        rows.append(sum(p * a + q * b for p, q, (a, b) in zip(plus, minus, means, strict=True)))
        norms.append([float((h**2).sum(axis=1).mean()) for h in x])
    return np.array(rows), true, np.array(norms)


@pytest.mark.slow
def test_the_bound_holds_for_simulated_minimisers_and_its_complexity_term_for_the_mean_supremum() -> None:
    estimated, true, squares = simulated(150, seed=0)
    groups = DESIGN.stratified()
    sizes = groups.sizes.tolist()
    complexities = [linear_complexity(NORM, sqrt(s), n) for s, n in zip(squares.mean(axis=0), sizes, strict=True)]
    bound = excess_bound(groups, complexities, 0.25, 1.0, 0.9)
    assert bound.deviation == pytest.approx(2 * deviation(groups, 0.9))
    excess = true[estimated.argmin(axis=1)] - true.min()
    assert (excess <= bound.total).mean() >= 0.9
    # Symmetrisation and contraction alone: E sup (R − R̂) ≤ 2 L Σ a ℜ, half of the term.
    supremum = (true - estimated).max(axis=1)
    error = 4 * supremum.std() / sqrt(len(supremum))
    assert supremum.mean() + error <= bound.complexity / 2
    assert supremum.mean() >= bound.complexity / 40


def test_one_stratum_has_the_papers_form() -> None:
    prior, alpha, rho = 0.6, 1 / 3, 0.25
    groups = Design((Stratum(3, 1, 100),), 200, prior).stratified()
    bound = excess_bound(groups, [0.2, 0.1], rho, 1.0, 0.95)
    of_tuples, of_pool = 2 * prior * (1 - prior), prior * (1 - alpha) + (1 - prior) * alpha
    assert bound.complexity == pytest.approx(4 * rho * (of_tuples * 0.2 + of_pool * 0.1) / (prior - alpha))


def test_there_is_no_bound_without_a_risk() -> None:
    assert excess_bound(Design((Stratum(2, 1, 10),), 10, 0.5).stratified(), [1.0, 1.0], 0.25, 1.0, 0.9) is None
