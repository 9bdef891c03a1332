from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, ndtr
from scipy.stats import binomtest

from ntmp_cli.prior.estimator import ScoredTuples, priors
from ntmp_cli.prior.likelihood import likeliest_prior
from ntmp_cli.prior.resampling import Sums
from ntmp_cli.prior.tails import neyman_pearson, silverman


def value(name: str, data: ScoredTuples) -> float:
    return float(priors.get(name)(Sums(data).sample())[0])


# --- likelihood -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.floats(-40, 40), min_size=2, max_size=30),
    rate=st.floats(0.05, 0.95),
    seed=st.integers(0, 9),
)
def test_no_other_prior_makes_the_pool_more_probable(scores: list[float], rate: float, seed: int) -> None:
    z = np.array(scores)
    weights = np.random.default_rng(seed).integers(1, 5, len(z)).astype(float)
    found = float(likeliest_prior(z[None], weights[None], rate)[0])

    def loss(prior: float) -> float:
        # log(π L + 1 − π), L = odds at the rate over the rate's odds, without overflow
        gain = z - logit(rate)
        return float(-weights @ np.logaddexp(np.log(prior) + gain, np.log1p(-prior)))

    inside = min(max(found, 1e-12), 1 - 1e-12)
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
    alone = [likeliest_prior(z[None], own[None], 0.5)[0] for own in weights]
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


# --- tails ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("prior", [0.2, 0.8])
def test_tail_estimators_come_near_the_prior(simulate, prior) -> None:
    data = simulate(3, 1, prior, tuples=6000, pool=10_000)
    assert value("best-bin", data) == pytest.approx(prior, abs=0.05)
    assert value("tail-ratio", data) == pytest.approx(prior, abs=0.05)


@pytest.mark.parametrize("seed", range(1, 5))
def test_the_papers_estimator_equals_its_formula_instance_by_instance(simulate, seed) -> None:
    data = simulate(3, 1, 0.2, tuples=300, pool=500, seed=seed)
    tuples = data.scores.reshape(-1, 3)
    proxy, pool = tuples.max(axis=1), data.unlabeled

    def width(s: np.ndarray) -> float:
        q = np.quantile(s, [0.25, 0.75], method="hazen")
        return 0.9 * min(s.std(), (q[1] - q[0]) / 1.34) * len(s) ** -0.2

    grid = np.quantile(proxy, np.linspace(0.6, 0.99, 200), method="hazen")
    ratio = [ndtr((pool - t) / width(pool)).mean() / ndtr((proxy - t) / width(proxy)).mean() for t in grid]
    assert max(ratio) < 1  # an estimate that is clipped would equal any other one
    # So many bins that every instance has its own: nothing is merged.
    found = priors.get("paper")(Sums(data, bins=10**6).sample())[0]
    assert found == pytest.approx(max(ratio), rel=1e-9)


def test_silvermans_rule_is_that_of_the_unweighted_sample() -> None:
    values = np.sort(np.random.default_rng(3).gamma(2, size=4000))
    q = np.quantile(values, [0.25, 0.75])
    expected = 0.9 * min(values.std(), (q[1] - q[0]) / 1.34) * 4000**-0.2
    assert silverman(values, np.ones(4000)) == pytest.approx(expected, rel=1e-3)
    assert silverman(np.zeros(5), np.ones(5)) > 0  # constant scores: nothing is divided by 0


def test_the_neyman_pearson_bound_equals_brute_force_with_exact_bands(simulate) -> None:
    data = simulate(3, 1, 0.3, tuples=30, pool=60)  # fewer instances than bins or thresholds: nothing is merged
    proxy = data.scores.reshape(-1, 3).max(axis=1)
    cuts = np.unique(np.concatenate([data.scores, data.unlabeled]))
    gaps = [((proxy >= t).mean() - (data.unlabeled >= t).mean(), t) for t in cuts]
    gap, cut = max(gaps, key=lambda pair: pair[0])
    found = neyman_pearson(Sums(data).sample(), 0.95)
    assert found.value == pytest.approx(gap, abs=1e-12)
    tpr, fpr = (
        binomtest(int((s >= cut).sum()), len(s)).proportion_ci(0.975, method="exact") for s in (proxy, data.unlabeled)
    )
    assert (found.low, found.high) == pytest.approx((max(tpr.low - fpr.high, 0), tpr.high - fpr.low), abs=1e-9)


@pytest.mark.parametrize("prior", [0.2, 0.5, 0.8])
def test_one_minus_the_bound_lies_above_the_prior(simulate, prior) -> None:
    bound = neyman_pearson(Sums(simulate(5, 2, prior)).sample(), 0.95)
    assert 1 - bound.low > prior


# --- sums and bootstrap ---------------------------------------------------------------------------


def test_bins_change_no_estimate(simulate) -> None:
    data = simulate(5, 2, 0.3)
    fine, coarse = Sums(data, bins=10**6).sample(), Sums(data).sample()
    for name in priors.names():
        assert priors.get(name)(coarse)[0] == pytest.approx(priors.get(name)(fine)[0], abs=5e-3), name


def test_resamples_scatter_as_literal_resampling_does(simulate) -> None:
    data = simulate(3, 1, 0.4, tuples=200, pool=400)
    rng = np.random.default_rng(7)
    tuples = data.scores.reshape(-1, 3)
    literal = {name: [] for name in ("em-affine", "moments", "best-bin", "em", "tail-ratio")}
    for _ in range(80):
        t, u = rng.integers(200, size=200), rng.integers(400, size=400)
        again = ScoredTuples(tuples[t].reshape(-1), data.sizes, data.counts, data.unlabeled[u])
        sample = Sums(again).sample()
        for name, into in literal.items():
            into.append(priors.get(name)(sample)[0])
    drawn = list(Sums(data).resamples(600, rng))
    for name, values in literal.items():
        quick = np.concatenate([priors.get(name)(block) for block in drawn])
        assert quick.std() == pytest.approx(np.std(values), rel=0.35), name
        assert quick.mean() == pytest.approx(np.mean(values), abs=0.6 * np.std(values)), name


def test_one_newton_step_finds_the_line_of_a_resample(simulate) -> None:
    data = simulate(3, 1, 0.4, tuples=1500)
    rng = np.random.default_rng(0)
    which = rng.integers(1500, size=1500)
    weights = np.bincount(which, minlength=1500).astype(float)
    sums = Sums(data)
    (line,) = sums._lines(weights[None] @ sums._derivatives)
    again = ScoredTuples(data.scores.reshape(-1, 3)[which].reshape(-1), data.sizes, data.counts, data.unlabeled)
    moved = np.abs(line - np.array(data.line[:2]))
    off = np.abs(line - np.array(again.line[:2]))
    assert (off < 0.15 * moved + 6e-3).all()


def test_constant_scores_leave_every_estimator_standing() -> None:
    data = ScoredTuples(np.zeros(90), np.full(30, 3), np.full(30, 1), np.zeros(50))
    sample = Sums(data).sample()
    assert sample.unlabeled.shape == (1, 1)
    for name in priors.names():
        assert priors.get(name)(sample).shape == (1,)
