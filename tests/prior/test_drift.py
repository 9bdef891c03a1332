"""The drift test: quiet where the pool is a mixture of the tuples' classes, loud where it is not."""

from __future__ import annotations

import numpy as np
from scipy.special import logit

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.prior.drift import drift


def p_value(seed: int, moved: float = 0.0, prior: float = 0.6) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    y = np.arange(3) < 1
    x = rng.normal(size=(600, 3)) + 2 * y
    z = (2 * x - 2 + logit(1 / 3)).reshape(-1)
    sizes, counts = np.full(600, 3), np.ones(600, np.int64)
    positive = rng.random(2000) < prior
    pool = rng.normal(size=2000) + 2 * positive + moved * ~positive
    posterior = count_posterior(z, CountObservations(sizes, counts))
    result = drift(z, sizes, posterior, 2 * pool - 2 + logit(1 / 3), rng, 200)
    return result.p_value, result.prior


def test_no_drift_is_seldom_called_one_and_the_prior_is_found():
    results = np.array([p_value(seed) for seed in range(40)])
    assert (results[:, 0] <= 0.05).mean() <= 0.15  # two of forty are expected
    assert 0.2 < results[:, 0].mean() < 0.8
    assert abs(results[:, 1].mean() - 0.6) < 0.02


def test_negatives_that_look_different_are_noticed():
    assert max(p_value(seed, moved=-1.0)[0] for seed in range(5)) < 0.02
