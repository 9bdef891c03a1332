from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from single_estimates import value

from ntmp_cli.prior.likelihood import likeliest_prior


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.floats(-40, 40), min_size=2, max_size=30),
    rate=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_no_other_prior_makes_the_pool_more_probable(scores: list[float], rate: float, seed: int) -> None:
    z = np.array(scores)
    weights = np.random.default_rng(seed).integers(1, 5, len(z)).astype(float)
    prior_of_pool = float(likeliest_prior(z[None], weights[None], rate)[0])

    def loss(prior: float) -> float:
        # log(π L + 1 − π), L = odds at the rate over the rate's odds, without overflow
        gain = z - logit(rate)
        return float(-weights @ np.logaddexp(np.log(prior) + gain, np.log1p(-prior)))

    inside = min(max(prior_of_pool, 1e-12), 1 - 1e-12)
    best = minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded", options={"xatol": 1e-10})
    assert loss(inside) <= best.fun + 1e-6 * (1 + abs(best.fun))


def test_the_likeliest_prior_is_where_em_ends() -> None:
    rng = np.random.default_rng(1)
    z = np.append(rng.normal(2, 2, 300), rng.normal(-2, 2, 500))
    rate, prior = 0.3, 0.5
    for _ in range(2000):  # Saerens, Latinne and Decaestecker (2002)
        prior = float(expit(z + logit(prior) - logit(rate)).mean())
    assert likeliest_prior(z[None], np.ones((1, 800)), rate)[0] == pytest.approx(prior, abs=1e-9)


def test_priors_of_many_rows_are_those_of_each_row_alone() -> None:
    """The first row starts at its answer and the second ends at an edge: neither may stop the others' search."""
    rng = np.random.default_rng(2)
    z = np.array([2.0, -2.0, *rng.normal(0, 3, 38)])
    weights = np.zeros((6, 40))
    weights[0, :2] = 1
    weights[1] = z > 0
    weights[2:] = rng.integers(0, 4, (4, 40))
    rows = np.broadcast_to(z, weights.shape)
    alone = [likeliest_prior(z[None], row[None], 0.5)[0] for row in weights]
    assert alone[:2] == pytest.approx([0.5, 1.0], abs=1e-6)
    assert likeliest_prior(rows, weights, 0.5) == pytest.approx(alone, abs=1e-9)


@pytest.mark.parametrize(("z", "answer"), [([5.0, 8.0], 1.0), ([-5.0, -8.0], 0.0)])
def test_a_pool_of_one_class_has_a_prior_at_the_edge(z: list[float], answer: float) -> None:
    assert likeliest_prior(np.array([z]), np.ones((1, 2)), 0.5)[0] == pytest.approx(answer, abs=1e-6)


@pytest.mark.parametrize("prior", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("n", "m"), [(3, 1), (5, 2), (7, 2), (4, 3)])
def test_recalibrated_likelihood_and_moments_find_the_prior_through_a_distortion(simulate, n, m, prior) -> None:
    data = simulate(n, m, prior, tuples=4000, pool=8000)
    # The pool holds the prior exactly; what is left is the recalibration's error and that of scores.
    assert value("em-affine", data) == pytest.approx(prior, abs=0.02)
    assert value("moments", data) == pytest.approx(prior, abs=0.02)
    assert abs(value("em", data) - prior) > 0.008  # taken as they are, distorted scores mislead
