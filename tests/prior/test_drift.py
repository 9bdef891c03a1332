"""The drift test: quiet where the pool is a mixture of the tuples' classes, loud where it is not."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit

from ntmp_cli.prior import drift as module
from ntmp_cli.prior.drift import drift
from ntmp_cli.prior.estimator import ScoredTuples


def p_value(
    seed: int, moved: float = 0.0, prior: float = 0.6, *, copies: int = 1, in_blocks: bool = False
) -> tuple[float, float]:
    rng = np.random.default_rng(seed)
    y = np.arange(3) < 1
    x = rng.normal(size=(600, 3)) + 2 * y
    z = (2 * x - 2 + logit(1 / 3)).reshape(-1)
    sizes, counts = np.full(600, 3), np.ones(600, np.int64)
    positive = rng.random(2000) < prior
    pool = rng.normal(size=2000) + 2 * positive + moved * ~positive
    if copies > 1:
        z, sizes, counts = (np.tile(values, copies) for values in (z, sizes, counts))
    blocks = np.tile(np.arange(600), copies) if in_blocks else None
    data = ScoredTuples(z, sizes, counts, 2 * pool - 2 + logit(1 / 3), blocks=blocks)
    result = drift(data, rng, 200)
    return result.p_value, result.prior


def test_no_drift_is_seldom_called_one_and_the_prior_is_found():
    results = np.array([p_value(seed) for seed in range(40)])
    assert (results[:, 0] <= 0.05).mean() <= 0.15  # two of forty are expected
    assert 0.2 < results[:, 0].mean() < 0.8
    assert abs(results[:, 1].mean() - 0.6) < 0.02


def test_copies_of_tuples_are_no_evidence_where_they_are_of_one_block():
    alone, in_blocks = (
        np.mean([p_value(seed, copies=4, in_blocks=blocks)[0] for seed in range(10)]) for blocks in (False, True)
    )
    assert alone < 0.2  # .14
    assert in_blocks > 0.3  # .40


def test_negatives_that_look_different_are_noticed():
    assert max(p_value(seed, moved=-1.0)[0] for seed in range(5)) < 0.02


def test_the_size_of_the_blocks_of_resamples_changes_nothing(monkeypatch):
    whole = [p_value(3, copies=2, in_blocks=blocks) for blocks in (False, True)]
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * 1200 * 7)  # seven resamples of 1200 tuples
    np.testing.assert_allclose([p_value(3, copies=2, in_blocks=blocks) for blocks in (False, True)], whole, rtol=1e-12)


def test_intercepts_of_groups_are_no_drift():
    """Told the spread of natural groups, the test finds the prior of their pool."""
    rng = np.random.default_rng(2)
    sizes = rng.integers(10, 60, 300)
    owner = np.repeat(np.arange(300), sizes)
    z = rng.normal(-1, 1.5, len(owner))
    counts = np.bincount(owner, rng.random(len(z)) < expit(z + rng.normal(size=300)[owner])).astype(np.int64)
    others = rng.normal(-1, 1.5, 100_000)
    positive = rng.random(len(others)) < expit(others + rng.normal(size=len(others)))
    pool = np.concatenate([others[positive][:1800], others[~positive][:1200]])
    found = drift(ScoredTuples(z, sizes, counts, pool, spread=1.0), rng, 100)
    assert abs(found.prior - 0.6) < 4 * found.prior_error < 0.2
