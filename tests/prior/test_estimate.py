from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.prior.estimate import estimate_priors
from ntmp_cli.prior.estimator import ScoredTuples, priors


def estimate(*folds: ScoredTuples, **more):
    return estimate_priors(list(folds), np.random.default_rng(0), resamples=120, **more)


def test_every_estimator_is_reported_with_an_interval_around_its_value(simulate) -> None:
    result = estimate(simulate(3, 1, 0.3))
    assert set(result.estimates) == set(priors.names())
    for name in ("em-affine", "em", "moments", "tail-ratio"):
        single = result.estimates[name]
        assert single.ci[0] < single.value < single.ci[1]
    assert result.warnings == []


@pytest.mark.slow
def test_intervals_cover_the_truth_as_often_as_they_say(simulate) -> None:
    """Of 24 intervals at 90 %, fewer than 17 hits would happen once in a thousand times."""
    rng = np.random.default_rng(5)
    hits = {"em-affine": 0, "moments": 0}
    for seed in range(24):
        # A pool that is itself sampled: its share of positives scatters, as the bootstrap assumes.
        pool = 800
        share = rng.binomial(pool, 0.3) / pool
        result = estimate(simulate(3, 1, share, tuples=300, pool=pool, seed=seed), confidence=0.9)
        for name in hits:
            low, high = result.estimates[name].ci
            hits[name] += low <= 0.3 <= high
    assert min(hits.values()) >= 17


def test_intervals_of_blocks_are_those_of_so_many_tuples(simulate) -> None:
    """Four copies of every tuple hold the evidence of one: the interval must not be half as wide."""
    once = simulate(3, 1, 0.3, tuples=150, pool=20_000)
    copies = np.tile(np.arange(150), 4)
    fourfold = ScoredTuples(np.tile(once.scores, 4), np.tile(once.sizes, 4), np.tile(once.counts, 4), once.unlabeled)
    blocks = ScoredTuples(fourfold.scores, fourfold.sizes, fourfold.counts, once.unlabeled, blocks=copies)

    def width(data: ScoredTuples) -> float:
        return float(np.ptp(estimate(data).estimates["em-affine"].ci))

    assert width(blocks) == pytest.approx(width(once), rel=0.25)
    assert width(fourfold) < 0.7 * width(once)


@pytest.mark.parametrize("prior", [0.2, 0.8])
def test_mirrored_folds_are_flipped_by_their_counts(simulate, prior) -> None:
    first, second = simulate(3, 1, prior, seed=1), simulate(3, 1, prior, seed=2)
    right = estimate(first, second)
    flipped = estimate(first.mirrored(), second)
    assert flipped.estimates["em-affine"].value == pytest.approx(right.estimates["em-affine"].value, abs=1e-6)
    assert flipped.orientation_nats > 100


def test_half_positive_tuples_leave_two_answers_until_one_is_assumed(simulate) -> None:
    folds = simulate(2, 1, 0.3, seed=1), simulate(2, 1, 0.3, seed=2).mirrored()
    both = estimate(*folds)
    assert not both.identified
    assert both.estimates["em-affine"].value == pytest.approx(0.3, abs=0.03)
    assert any("--assume" in text for text in both.warnings)
    low, high = (estimate(*folds, below_half=below).estimates["em-affine"].value for below in (True, False))
    assert low == pytest.approx(0.3, abs=0.03)
    assert low + high == pytest.approx(1, abs=1e-6)


def test_an_assumption_against_the_counts_is_a_warning_not_an_answer(simulate) -> None:
    result = estimate(simulate(3, 1, 0.2), below_half=False)
    assert result.estimates["em-affine"].value == pytest.approx(0.2, abs=0.03)
    assert any("contradicts --assume" in text for text in result.warnings)


def test_classes_that_look_different_in_the_pool_are_a_warning(simulate) -> None:
    data = simulate(3, 1, 0.5, tuples=4000, pool=8000)
    shifted = ScoredTuples(data.scores, data.sizes, data.counts, 0.1 * data.unlabeled)
    assert any("disagree" in text for text in estimate(shifted).warnings)


@pytest.mark.parametrize("seed", range(5))
def test_scores_without_information_give_a_wide_interval_and_a_warning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    noise = ScoredTuples(rng.standard_normal(900), np.full(300, 3), np.full(300, 1), rng.standard_normal(400))
    result = estimate(noise)
    assert result.estimates["em-affine"].ci == (0.0, 1.0)
    assert any("almost uninformative" in text for text in result.warnings)


@pytest.mark.parametrize("count", [0, 3])
def test_tuples_of_one_class_are_refused(count: int) -> None:
    with pytest.raises(NotIdentifiableError, match="one class"):
        estimate(ScoredTuples(np.arange(9.0), np.full(3, 3), np.full(3, count), np.arange(4.0)))


def test_scores_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(NotIdentifiableError, match="diverged"):
        estimate(ScoredTuples(np.array([np.nan, 0.0, 1.0]), np.array([3]), np.array([1]), np.arange(4.0)))


@pytest.mark.parametrize("name", ["em-affine", "tail-ratio"])
def test_groups_that_differ_beyond_their_scores_have_the_prior_of_their_pool(name: str) -> None:
    """Counts scatter by the intercepts of groups, too: that is no reason to take scores for uninformative."""
    rng = np.random.default_rng(4)
    sizes = rng.integers(10, 60, 400)
    owner = np.repeat(np.arange(400), sizes)
    z = rng.normal(-1, 1.5, len(owner))
    counts = np.bincount(owner, rng.random(len(z)) < expit(z + rng.normal(size=400)[owner])).astype(np.int64)
    others = rng.normal(-1, 1.5, 100_000)
    positive = rng.random(len(others)) < expit(others + rng.normal(size=len(others)))
    pool = np.concatenate([others[positive][:1800], others[~positive][:1200]])
    found = estimate(ScoredTuples(z, sizes, counts, pool, spread=1.0)).estimates[name]
    assert found.value == pytest.approx(0.6, abs=0.08)
