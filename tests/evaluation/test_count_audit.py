"""The audit of counts against simulation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import logit

from ntmp_cli.evaluation.count_audit import audit_counts


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
    "drawn at random": lambda rng, tuples, n: rng.binomial(n, 0.3, tuples),
}


@pytest.mark.parametrize("design", DESIGNS)
def test_the_noise_rate_is_found_whatever_the_design(design):
    z, sizes, recorded, true, rate = simulated(DESIGNS[design])
    found = audit_counts(z, sizes, recorded, rate)
    share = (recorded != true).mean()
    assert found.noise_ci[0] < share < found.noise_ci[1]
    assert abs(found.noise - share) < 0.012
    assert found.noise_ci[1] - found.noise_ci[0] < 0.04


@pytest.mark.parametrize("design", DESIGNS)
def test_the_probability_of_an_error_is_calibrated_and_finds_errors(design):
    z, sizes, recorded, true, rate = simulated(DESIGNS[design])
    found = audit_counts(z, sizes, recorded, rate)
    wrong = recorded != true
    edges = np.array([0, 0.1, 0.5, 0.9, 1.01])
    for low, high in itertools.pairwise(edges):
        inside = (found.wrong >= low) & (found.wrong < high)
        if inside.sum() > 30:
            error = np.sqrt(wrong[inside].mean() * (1 - wrong[inside].mean()) / inside.sum()) + 0.01
            assert abs(wrong[inside].mean() - found.wrong[inside].mean()) < 4 * error
    flagged = found.wrong > 0.5
    assert wrong[flagged].mean() > 0.8
    assert flagged[wrong].mean() > 0.6
    assert (found.likeliest == true).mean() > 0.95


def test_without_noise_the_rate_is_nearly_nothing_and_p_values_are_valid():
    z, sizes, recorded, _, rate = simulated(DESIGNS["drawn at random"], noise=0.0)
    found = audit_counts(z, sizes, recorded, rate)
    assert found.noise_ci[0] == 0.0
    assert found.noise < 0.01
    for level in (0.01, 0.05, 0.2):  # of a discrete law: at most the level, but for chance
        assert (found.p_values <= level).mean() < level + 4 * np.sqrt(level / len(sizes))


def test_tuples_of_several_lengths_are_judged_together():
    parts = [simulated(DESIGNS["drawn at random"], 1500, n, seed=n) for n in (2, 5)]
    z, sizes, recorded, true = (np.concatenate([part[k] for part in parts]) for k in range(4))
    found = audit_counts(z, sizes, recorded, 0.3)
    assert set(found.true_shares) == {2, 5}
    assert found.noise_ci[0] < (recorded != true).mean() < found.noise_ci[1]


def test_scores_without_end_give_no_nan():
    z = np.array([800.0, -800.0, 800.0, 800.0, -800.0, -800.0])
    found = audit_counts(z, np.full(3, 2), np.array([1, 1, 0]), 0.4)
    for values in (found.wrong, found.p_values, found.expected):
        assert np.isfinite(values).all()
