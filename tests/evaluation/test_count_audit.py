"""The audit of counts against simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, logit
from scipy.stats import binom, binomtest, chi2, norm

from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.evaluation.count_audit import PSEUDO_TUPLES, audit_counts


def simulated(design, tuples=4000, n=4, noise=0.08, separation=3.5, seed=0):
    """Tuples of normal classes, whose log-odds at the tuples' rate are exact; recorded and true counts."""
    rng = np.random.default_rng(seed)
    true = design(rng, tuples, n)
    y = np.arange(n) < true[:, None]
    x = rng.normal(size=y.shape) + separation * y
    rate = true.sum() / y.size
    z = separation * x - separation**2 / 2 + logit(rate)
    step = np.where(true == 0, 1, np.where(true == n, -1, rng.choice([-1, 1], tuples)))
    recorded = np.where(rng.random(tuples) < noise, true + step, true)
    return z.reshape(-1), np.full(tuples, n), recorded, true, rate


DESIGNS = {
    "any count": lambda rng, tuples, n: rng.integers(0, n + 1, tuples),
    "one positive each": lambda rng, tuples, n: np.ones(tuples, int),
    "sampled at random": lambda rng, tuples, n: rng.binomial(n, 0.3, tuples),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_the_noise_rate_is_found_whatever_the_design(design):
    z, sizes, recorded, true, rate = simulated(DESIGNS[design])
    audit = audit_counts(z, sizes, recorded, rate)
    share = (recorded != true).mean()
    assert audit.noise_ci[0] < share < audit.noise_ci[1]
    # Over the seeds 0 to 9 and all designs at most 0.0071 away, and intervals of at most 0.0231.
    assert abs(audit.noise - share) < 0.01
    # The interval is hardly narrower than if it were known which counts are wrong.
    known = 2 * norm.ppf(0.975) * np.sqrt(share * (1 - share) / len(true))
    assert 0.95 * known < audit.noise_ci[1] - audit.noise_ci[0] < 0.026


@pytest.mark.thinned(3)
@pytest.mark.parametrize("design", DESIGNS)
def test_intervals_of_the_noise_rate_cover_it_as_often_as_they_say(design):
    """At a confidence of 0.6 an interval too wide is seen as well as one too narrow."""
    covered = 0
    for seed in range(100):
        z, sizes, recorded, _, rate = simulated(DESIGNS[design], tuples=200, n=3, noise=0.1, seed=seed)
        low, high = audit_counts(z, sizes, recorded, rate, confidence=0.6).noise_ci
        covered += low <= 0.1 <= high
    assert binomtest(covered, 100, 0.6).pvalue > 1e-3


def profile_likelihood(z, n, recorded, rate, noise):
    """Greatest log-likelihood over the shares of true counts, penalised towards the binomial: by quasi-Newton."""
    k = np.arange(n + 1)
    binomial = binom.pmf(k, n, rate)
    away = np.abs(k - recorded[:, None])
    flipped = np.where((k == 0) | (k == n), noise, noise / 2)
    given = np.where(away == 0, 1 - noise, np.where(away == 1, flipped, 0.0)) * count_law(z.reshape(-1, n)) / binomial

    def loss(logits):
        log_shares = log_softmax(logits)
        return -np.log(given @ np.exp(log_shares)).sum() - PSEUDO_TUPLES * binomial @ log_shares

    return -minimize(loss, np.log(binomial)).fun


@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("design", DESIGNS)
def test_the_noise_rate_is_the_likeliest_and_its_limits_lose_what_chi_squared_allows(design, confidence):
    """So few tuples that the pseudo-tuples matter."""
    z, sizes, recorded, _, rate = simulated(DESIGNS[design], tuples=150, n=3, noise=0.15)
    audit = audit_counts(z, sizes, recorded, rate, confidence)
    best, below, above, *limits = (
        profile_likelihood(z, 3, recorded, rate, noise)
        for noise in (audit.noise, 0.97 * audit.noise, 1.03 * audit.noise, *audit.noise_ci)
    )
    assert best > max(below, above)
    assert [2 * (best - limit) for limit in limits] == pytest.approx([chi2.ppf(confidence, 1)] * 2, abs=0.01)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_probability_of_an_error_is_calibrated_and_finds_errors(design):
    z, sizes, recorded, true, rate = simulated(DESIGNS[design])
    audit = audit_counts(z, sizes, recorded, rate)
    wrong = recorded != true
    edges = np.array([0, 0.1, 0.5, 0.9, 1.01])
    for low, high in itertools.pairwise(edges):
        inside = (audit.wrong >= low) & (audit.wrong < high)
        if inside.sum() > 30:
            error = np.sqrt(wrong[inside].mean() * (1 - wrong[inside].mean()) / inside.sum()) + 0.01
            assert abs(wrong[inside].mean() - audit.wrong[inside].mean()) < 4 * error
    flagged = audit.wrong > 0.5
    assert wrong[flagged].mean() > 0.8
    assert flagged[wrong].mean() > 0.6
    assert (audit.likeliest == true).mean() > 0.95


def test_without_noise_the_rate_is_nearly_nothing_and_p_values_are_valid():
    z, sizes, recorded, _, rate = simulated(DESIGNS["sampled at random"], noise=0.0)
    audit = audit_counts(z, sizes, recorded, rate)
    assert audit.noise_ci[0] == 0.0
    assert audit.noise < 0.01
    for level in (0.01, 0.05, 0.2):  # of a discrete law: at most the level, but for chance
        assert (audit.p_values <= level).mean() < level + 4 * np.sqrt(level / len(sizes))


def test_tuples_of_several_lengths_are_audited_in_one_fit():
    by_length = [simulated(DESIGNS["sampled at random"], 1500, n, seed=n) for n in (2, 5)]
    z, sizes, recorded, true = (np.concatenate([tuples[k] for tuples in by_length]) for k in range(4))
    audit = audit_counts(z, sizes, recorded, 0.3)
    assert set(audit.true_shares) == {2, 5}
    assert audit.noise_ci[0] < (recorded != true).mean() < audit.noise_ci[1]


def test_scores_without_end_give_no_nan():
    z = np.array([800.0, -800.0, 800.0, 800.0, -800.0, -800.0])
    audit = audit_counts(z, np.full(3, 2), np.array([1, 1, 0]), 0.4)
    for values in (audit.wrong, audit.p_values, audit.expected):
        assert np.isfinite(values).all()
