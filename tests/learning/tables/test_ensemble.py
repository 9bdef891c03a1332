"""Learners weighted by cross-fitted counts: the weights, the folds, the spread, and what comes of one rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from synthetic import Labelled, natural_groups, one_rate, table

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.learning.tables import fits
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import FittedTable, Split, ensemble_weights, fit_table, folds
from ntmp_cli.learning.tables.linear import constant_model, count_fit
from ntmp_cli.learning.tables.scorer import TableScorer


@pytest.fixture(autouse=True, scope="module")
def few_stages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "STAGES", (25, 50, 100))
        yield


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def area(drawn: Labelled, fitted: FittedTable) -> float:
    return float(roc_auc_score(drawn.test_labels, fitted.scorer.score(drawn.test_x)))


# Weights ------------------------------------------------------------------------------------------


def test_weights_sum_to_one() -> None:
    for tuples in (1, 2, 50):
        weights = ensemble_weights(rng().normal(2, 1, (4, tuples)), rng())
        assert weights.sum() == pytest.approx(1)
        assert (weights >= 0).all()


def test_learners_that_chance_cannot_tell_apart_keep_half_of_an_equal_share() -> None:
    losses = np.repeat(rng().normal(2, 0.5, (1, 50)), 3, axis=0) + rng(1).normal(0, 0.5, (3, 50))
    assert (ensemble_weights(losses - losses.mean(axis=1, keepdims=True), rng()) >= 1 / 6).all()


def test_equal_learners_have_equal_weights() -> None:
    losses = np.tile(rng().normal(2, 1, 30), (3, 1))
    assert ensemble_weights(losses, rng()) == pytest.approx(np.full(3, 1 / 3))


def test_a_clearly_worse_learner_has_no_share() -> None:
    losses = np.repeat(rng().normal(2, 1, (1, 400)), 3, axis=0) + rng(1).normal(0, 0.1, (3, 400))
    losses[1] += 0.3
    weights = ensemble_weights(losses, rng())
    assert weights[1] == pytest.approx(0, abs=1e-6)
    assert weights[[0, 2]].min() > 0.25


def test_tuples_of_one_block_are_one_piece_of_evidence() -> None:
    """Thirty copies of six tuples, by one of which a learner is worse, do not reject it; thirty times six tuples do."""
    losses = np.zeros((2, 180))
    losses[1, ::6] = 0.5
    alone, in_blocks = (ensemble_weights(losses, rng(), blocks) for blocks in (None, np.arange(180) % 6))
    assert alone[1] == pytest.approx(0, abs=1e-3)
    assert in_blocks[1] > 0.2


# Folds --------------------------------------------------------------------------------------------


def test_every_tuple_is_judged_once_by_fits_to_the_others() -> None:
    data = table(np.full(23, 3)).data
    splits = folds(data, rng())
    assert sorted(np.concatenate([split.judged for split in splits]).tolist()) == list(range(23))
    for split in splits:
        assert sorted([*split.training.tolist(), *split.judged.tolist()]) == list(range(23))


def test_blocks_stay_whole_in_folds() -> None:
    blocks = rng(1).integers(0, 9, 40) * 17
    for split in folds(replace(table(np.full(40, 3)).data, blocks=blocks), rng()):
        assert not {*blocks[split.training].tolist()} & {*blocks[split.judged].tolist()}


@pytest.mark.parametrize("tuples", [1, 2, 4])
def test_few_tuples_can_be_fitted(tuples: int) -> None:
    data = table(np.full(tuples, 30)).data
    fitted = fit_table(data, "linear", rng())
    assert np.isfinite(fitted.scorer.score(data.x)).all()
    assert fitted.judged.tolist() == list(range(tuples))


# Fits ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def curved() -> Labelled:
    return table(np.full(160, 5), curved=True)


@pytest.fixture(scope="module")
def fitted(curved: Labelled) -> FittedTable:
    return fit_table(curved.data, "auto", rng())


def test_auto_prefers_trees_where_labels_follow_a_parabola(curved: Labelled, fitted: FittedTable) -> None:
    weights = {learner["learner"]: learner["weight"] for learner in fitted.learners}
    assert list(weights) == ["soft", "linear", "boosted", "boosted-linear"]
    assert sum(weights.values()) == pytest.approx(1)
    assert weights["boosted"] + weights["boosted-linear"] > 0.7
    assert area(curved, fitted) > 0.7


def test_scores_of_tuples_are_out_of_fold(curved: Labelled, fitted: FittedTable) -> None:
    """Scores of members by the final fit, which has seen their counts, predict the counts better."""
    objective = curved.data.objective()
    inside = -objective.log_prob(fitted.scorer.score(curved.data.x)).mean()
    assert fitted.nll == pytest.approx(-objective.log_prob(fitted.scores).mean())
    assert fitted.nll > inside


def test_saved_and_restored_scores_are_exactly_equal(curved: Labelled, fitted: FittedTable) -> None:
    again = TableScorer.from_files(fitted.scorer.files())
    assert (again.score(curved.test_x) == fitted.scorer.score(curved.test_x)).all()


def test_same_seed_same_fit(curved: Labelled, fitted: FittedTable) -> None:
    again = fit_table(curved.data, "auto", rng())
    assert (again.scorer.score(curved.test_x) == fitted.scorer.score(curved.test_x)).all()
    assert again.learners == fitted.learners


def test_the_scale_of_features_does_not_matter_to_linear() -> None:
    drawn = table(np.full(60, 5))
    scaled = replace(drawn.data, x=drawn.data.x * [3, 0.1, 1e4, 7])
    plain, other = fit_table(drawn.data, "linear", rng()), fit_table(scaled, "linear", rng())
    assert plain.scorer.is_linear
    assert other.scorer.score(scaled.x) == pytest.approx(plain.scorer.score(drawn.data.x), abs=1e-6)


def test_given_splits_judge_and_the_fit_sees_training_tuples_only() -> None:
    data, split = table(np.full(60, 5)).data, Split(np.arange(45), np.arange(45, 60))
    fitted = fit_table(data, "linear", rng(), [split])
    assert fitted.judged.tolist() == split.judged.tolist()
    assert fitted.spread == 0
    training = data.subset(split.training)
    x = data.standardisation(training.x)
    penalty = fitted.learners[0]["penalty"]
    expected = count_fit(x, training.objective(), penalty, constant_model(x.shape[1], training.rate))
    scores = fitted.scorer.score(data.x)
    assert scores == pytest.approx(expected.scores(data.standardisation(data.x)), abs=0.01)
    assert fitted.scores == pytest.approx(scores[data.rows(split.judged)], abs=0.01)


def test_tuples_of_weight_zero_are_as_absent() -> None:
    """Half of the counts are those of the other class: with equal weights nothing is learned."""
    drawn = table(np.full(300, 5))
    observed, is_right = drawn.data.observed, np.arange(300) < 150
    mixed = CountObservations(observed.sizes, np.where(is_right, observed.counts, 5 - observed.counts))
    weighted = replace(drawn.data, observed=mixed, weights=is_right.astype(np.float64))
    assert area(drawn, fit_table(weighted, "linear", rng())) > 0.78


def test_noisy_counts_are_learned_from() -> None:
    drawn = table(np.full(200, 5))
    law, observed = count_noise(0.3), drawn.data.observed
    noisy = CountObservations(observed.sizes, law.sample(observed.counts, observed.sizes, rng()), law)
    assert area(drawn, fit_table(replace(drawn.data, observed=noisy), "linear", rng())) > 0.8


# Spread -------------------------------------------------------------------------------------------


def test_random_groups_have_no_spread() -> None:
    assert fit_table(table(np.full(150, 6)).data, "linear", rng()).spread == 0


@pytest.mark.thinned(2)
@pytest.mark.parametrize("spread", [0.8, 1.5])
def test_spread_of_natural_groups_is_estimated(spread: float) -> None:
    fitted = fit_table(natural_groups(400, 10, spread), "linear", rng())
    assert fitted.spread == pytest.approx(spread, abs=0.4)


def test_a_spread_keeps_weights_from_shrinking() -> None:
    """Without an intercept per tuple, log-odds of scattered tuples are fitted closer to 0."""
    data = natural_groups(400, 10, 2.0, seed=2)
    start = constant_model(3, data.rate)
    with_spread, without = (count_fit(data.x, data.objective(spread), 1.0, start).weight for spread in (2.0, 0.0))
    assert with_spread == pytest.approx([1, -1, 0], abs=0.25)
    assert np.abs(without[:2]).max() < 0.75


@pytest.mark.parametrize("seed", [0, 1])
def test_bags_filled_to_different_proportions_have_no_spread(seed: int) -> None:
    """Their counts scatter as well, but their features follow: an intercept would hide the signal."""
    generator = rng(seed)
    n, counts = 32, generator.integers(0, 17, 150)
    labels = np.concatenate([np.repeat([1, 0], [m, n - m]) for m in counts.tolist()])
    x = generator.normal(0, 1, (len(labels), 3)) + labels[:, None] * [1.0, 0.5, 0]
    data = TableData(x, CountObservations(np.full(150, n), counts))
    assert fit_table(data, "linear", rng()).spread == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
def test_few_large_bags_filled_to_different_proportions_have_no_spread(seed: int) -> None:
    """Twelve tuples tell no slope clearly, but a large one is not that of independent intercepts.

    Their features predict the counts poorly: out of fold, a weak signal in many columns shrinks.
    """
    generator = rng(seed)
    n, counts = 256, generator.integers(0, 129, 12)
    labels = np.concatenate([np.repeat([1, 0], [m, n - m]) for m in counts.tolist()])
    x = generator.normal(0, 1, (len(labels), 10)) + labels[:, None] * np.r_[0.6, 0.3, np.zeros(8)]
    data = TableData(x, CountObservations(np.full(12, n), counts))
    assert fit_table(data, "linear", rng()).spread == 0


@pytest.mark.slow
def test_the_spread_of_few_natural_groups_is_kept() -> None:
    spreads = [fit_table(natural_groups(16, 60, 1.5, seed), "linear", rng()).spread for seed in range(4)]
    assert min(spreads) > 0.5


# One rate -----------------------------------------------------------------------------------------


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("m", "prior"), [(1, 0.7), (3, 0.3)])
def test_tuples_of_one_rate_with_a_pool_learn_the_right_orientation(m: int, prior: float) -> None:
    drawn = one_rate(150, 4, m, pool=400, prior=prior)
    fitted = fit_table(drawn.data, "auto", rng())
    assert [learner["learner"] for learner in fitted.learners] == ["linear", "boosted-linear"]
    assert area(drawn, fitted) > 0.9


@pytest.mark.thinned(2)
@pytest.mark.parametrize("m", [1, 4])
def test_tuples_of_one_rate_alone_learn_the_right_orientation(m: int) -> None:
    drawn = one_rate(220, 5, m)
    assert area(drawn, fit_table(drawn.data, "linear", rng())) > 0.9
    assert area(drawn, fit_table(drawn.data, "trees", rng())) > 0.85


def test_every_model_of_tables_has_families() -> None:
    assert {*fits.MODELS} == {"auto", "linear", "trees"}
    assert all({*families} <= {*fits.FAMILIES} for families in fits.MODELS.values())


def test_a_subset_has_the_rows_of_its_tuples() -> None:
    data = TableData(np.arange(9.0)[:, None], CountObservations([2, 3, 4], [1, 0, 2]), weights=np.array([1.0, 2, 3]))
    subset = data.subset(np.array([0, 2]))
    assert subset.x[:, 0].tolist() == [0, 1, 5, 6, 7, 8]
    assert subset.observed.counts.tolist() == [1, 2]
    assert subset.weights is not None
    assert subset.weights.tolist() == [1, 3]


def test_a_subset_keeps_its_blocks_and_weights():
    data = TableData(np.zeros((6, 1)), CountObservations([2, 2, 2], [1, 0, 2]))
    data = replace(data, blocks=np.array([4, 4, 7]), weights=np.array([1.0, 2.0, 3.0]))
    part = data.subset(np.array([1, 2]))
    assert (part.blocks.tolist(), part.weights.tolist()) == ([4, 7], [2.0, 3.0])
