"""The bootstrap of a prior estimate against a loop over resamples, and its likelihood against QuaPy's EM."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from scipy.special import expit, ndtr

from benchmarks.timing import Ratio, take_turns
from ntmp_cli.prior.binned_sums import BinnedSums
from ntmp_cli.prior.estimator import ScoredTuples, priors
from ntmp_cli.prior.tails import POINTS, QUANTILES, silverman

RESAMPLES, POOL = 1000, 10_000
# The loop takes so long that only some of its resamples are timed; each costs the same.
LOOPED = 10
MANY = 1_000_000


def ratios() -> Iterator[Ratio]:
    yield _bootstrap()
    yield _likelihood()


def scored(tuples: int, pool: int, prior: float = 0.4) -> ScoredTuples:
    """Log-odds at rate 1/3 of two unit Gaussians 3 apart."""
    rng = np.random.default_rng(0)
    positive = np.append(np.tile([True, False, False], tuples), rng.random(pool) < prior)
    z = 3 * (rng.standard_normal(len(positive)) + 3 * (positive - 0.5)) - np.log(2)
    return ScoredTuples(z[: 3 * tuples], np.full(tuples, 3), np.ones(tuples, dtype=np.int64), z[3 * tuples :])


def _bootstrap() -> Ratio:
    data = scored(POOL // 3, POOL)
    estimator = priors.get("tail-ratio")

    def ours() -> np.ndarray:
        blocks = BinnedSums(data).resamples(RESAMPLES, np.random.default_rng(0))
        return np.concatenate([estimator(block) for block in blocks])

    def loop() -> np.ndarray:
        rng, sums = np.random.default_rng(0), BinnedSums(data)
        p = expit(data.line.slope * data.scores + data.line.intercept)
        u = expit(data.line.slope * data.unlabeled + data.line.intercept)
        weights, estimates = sums._posterior(), []
        for _ in range(LOOPED):
            chosen = (3 * rng.integers(len(data.sizes), size=len(data.sizes))[:, None] + np.arange(3)).reshape(-1)
            pool, positives, held = u[rng.integers(len(u), size=len(u))], p[chosen], weights[chosen]
            both = np.argsort(np.concatenate([pool, positives]))
            width = silverman(np.concatenate([pool, positives])[both], np.concatenate([np.ones(len(pool)), held])[both])
            order = np.argsort(positives)
            share = np.cumsum(held[order]) / held.sum()
            grid = np.interp(np.linspace(*QUANTILES, POINTS), share, positives[order])
            tail_u = ndtr((pool[:, None] - grid) / width).mean(axis=0)
            tail_p = held @ ndtr((positives[:, None] - grid) / width) / held.sum()
            estimates.append((tail_u / tail_p).min())
        return np.array(estimates)

    quick, slow = ours(), loop()
    assert abs(quick.mean() - slow.mean()) < 4 * quick.std() / np.sqrt(LOOPED), "both estimate the same"
    seconds, looped = take_turns(ours, loop, 3)
    what = f"bootstrap of the tail ratio, {RESAMPLES:,} resamples of {POOL:,} instances, against a loop"
    return Ratio(what, seconds, looped * RESAMPLES / LOOPED, 0.01)


def _likelihood() -> Ratio:
    with warnings.catch_warnings():  # of packages that QuaPy imports
        warnings.simplefilter("ignore")
        from quapy.method.aggregative import EMQ
    data = scored(1000, MANY)
    posterior = expit(data.unlabeled)
    both = np.column_stack([1 - posterior, posterior])

    def ours() -> float:
        return float(priors.get("em")(BinnedSums(data).sample())[0])

    def quapy() -> float:
        return float(EMQ.EM(np.array([2 / 3, 1 / 3]), both)[0][1])

    assert abs(ours() - quapy()) < 1e-3, "both estimate the same prior"
    return Ratio(f"prior of {MANY:,} scores, against QuaPy's EMQ", *take_turns(ours, quapy, 3), 1.0)
