"""Bounds, slopes and ranges of losses, and L·G in place of B: against the losses of training, and populations."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
import torch
from design_strategies import PRIORS
from hypothesis import assume, given
from hypothesis import strategies as st

from ntmp_cli.learning.risk import LOSSES
from ntmp_cli.theory.bias import largest_prior_bias, prior_bound
from ntmp_cli.theory.losses import MARGIN_LOSSES
from ntmp_cli.theory.strata import Design, Stratum

MARGINS = np.linspace(-12, 12, 4801)


@pytest.mark.parametrize("name", MARGIN_LOSSES)
def test_slope_bound_and_range_are_those_of_the_function(name: str) -> None:
    loss = MARGIN_LOSSES[name]
    values = np.array([loss.phi(float(margin)) for margin in MARGINS])
    slopes = np.abs(np.diff(values) / np.diff(MARGINS))
    # Between two margins a slope that jumps is smoothed.
    assert slopes.max() == pytest.approx(loss.lipschitz, rel=2e-3)
    assert slopes.max() <= loss.lipschitz + 1e-9
    assert (np.diff(values) <= 1e-12).all()
    assert values.max() <= loss.bound
    for bound in (0.3, 1.0, 7.0):
        inside = values[np.abs(MARGINS) <= bound + 1e-9]
        assert loss.range_on(bound) == pytest.approx(inside.max() - inside.min())
        assert loss.range_on(bound) <= 2 * loss.lipschitz * bound + 1e-12
    assert loss.range_on(inf) == loss.bound


@pytest.mark.parametrize("name", sorted(set(MARGIN_LOSSES) & set(LOSSES)))
def test_they_are_the_losses_that_training_uses(name: str) -> None:
    trained = LOSSES[name](torch.from_numpy(MARGINS)).numpy()
    assert trained == pytest.approx(np.array([MARGIN_LOSSES[name].phi(float(margin)) for margin in MARGINS]), abs=1e-9)


@given(st.sampled_from(sorted(MARGIN_LOSSES)), st.floats(0.05, 20), PRIORS, st.integers(0, 6), st.integers(0, 2**31))
def test_scores_within_g_have_biases_within_the_bounds_of_lg_and_of_the_range(
    name: str, score_bound: float, prior: float, m: int, seed: int
) -> None:
    rng, alpha = np.random.default_rng(seed), m / 6
    wrong = float(rng.uniform(0.01, 0.99))
    assume(abs(wrong - alpha) > 1e-3)
    loss = MARGIN_LOSSES[name]
    plus, minus = rng.dirichlet(np.full(4, 0.3)), rng.dirichlet(np.full(4, 0.3))
    scores = rng.choice([-1.0, 1.0, rng.uniform(-1, 1)], 4) * score_bound
    positive, negative = (np.array([loss.phi(float(sign * s)) for s in scores]) for sign in (1, -1))
    p_u, p_t = prior * plus + (1 - prior) * minus, alpha * plus + (1 - alpha) * minus
    hat_plus = ((1 - alpha) * p_u - (1 - wrong) * p_t) / (wrong - alpha)
    hat_minus = (-alpha * p_u + wrong * p_t) / (wrong - alpha)
    # The paper's plug-in keeps the true π in front of the wrong class means; training has the wrong one.
    paper = prior * (hat_plus - plus) @ positive + (1 - prior) * (hat_minus - minus) @ negative
    trained = wrong * hat_plus @ positive + (1 - wrong) * hat_minus @ negative
    trained -= prior * plus @ positive + (1 - prior) * minus @ negative
    bound = prior_bound(alpha, prior, wrong - prior)
    assert bound is None or abs(paper) <= bound * loss.paper_bound_on(score_bound) + 1e-9
    largest = largest_prior_bias(Design((Stratum(6, m, 50),), 70, wrong).stratified(), prior - wrong)
    assert abs(trained) <= largest * loss.range_on(score_bound) + 1e-9
