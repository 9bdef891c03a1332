"""The interval of a prior: coverage by simulation, and its width where scores say little."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, stdtrit

from ntmp_cli.prior import score_interval
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.prior.score_interval import prior_interval


def sample(rng: np.random.Generator, prior: float, distance: float, tuples: int = 60, pool: int = 400) -> ScoredTuples:
    """Two unit Gaussians, tuples of 5 whose members are positive with probability .4, an i.i.d. pool."""
    y = np.concatenate([rng.random(5 * tuples) < 0.4, rng.random(pool) < prior])
    x = rng.standard_normal(len(y)) + distance * (y - 0.5)
    z = 1.5 * (distance * x + np.log(0.4 / 0.6))  # too sure
    counts = y[: 5 * tuples].reshape(-1, 5).sum(axis=1)
    return ScoredTuples(z[: 5 * tuples], np.full(tuples, 5), counts, z[5 * tuples :])


@pytest.mark.thinned(3)
@pytest.mark.parametrize("distance", [0.5, 1.5, 4.0])
@pytest.mark.parametrize("prior", [0.1, 0.6])
def test_the_interval_covers_the_prior_whatever_the_scores_are_worth(distance: float, prior: float) -> None:
    """Of 40 intervals at 95 %, fewer than 31 hits happen once in a thousand times if 93 % cover."""
    rng = np.random.default_rng(round(10 * distance + 100 * prior))
    hits = 0
    for _ in range(40):
        low, high = prior_interval([sample(rng, prior, distance)])
        hits += low <= prior <= high
    assert hits >= 31


def test_better_scores_give_narrower_intervals() -> None:
    rng = np.random.default_rng(0)
    widths = [np.mean([np.diff(prior_interval([sample(rng, 0.3, d)]))[0] for _ in range(10)]) for d in (0.2, 1.5, 4.0)]
    assert widths[0] > 0.7
    assert widths[0] > widths[1] > widths[2]
    assert widths[2] < 0.15


def test_several_folds_tell_more_than_one() -> None:
    rng = np.random.default_rng(1)
    folds = [sample(rng, 0.3, 1.5) for _ in range(4)]
    single, several = (np.diff(prior_interval(these))[0] for these in (folds[:1], folds))
    assert several < 0.8 * single


def test_scores_beyond_all_bounds_leave_the_interval_finite() -> None:
    data = sample(np.random.default_rng(2), 0.3, 4.0)
    low, high = prior_interval([ScoredTuples(1e3 * data.scores, data.sizes, data.counts, 1e3 * data.unlabeled)])
    share = float(expit(1e3 * data.unlabeled).mean())
    assert 0 <= low <= share <= high <= 1


@pytest.mark.parametrize("blocks", [None, 6])
def test_few_blocks_have_the_t_quantile_of_blocks(blocks, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    y = rng.random(360) < 0.4
    z = np.where(y, 1.0, -1.0) + rng.normal(size=360)
    owner = None if blocks is None else np.arange(120) % blocks
    scored = ScoredTuples(z, np.full(120, 3), y.reshape(120, 3).sum(axis=1), rng.normal(size=200), blocks=owner)
    used = []
    monkeypatch.setattr(
        score_interval, "stdtrit", lambda freedom, level: used.append(freedom) or stdtrit(freedom, level)
    )
    score_interval.prior_interval([scored])
    assert used == [117 if blocks is None else 3]
