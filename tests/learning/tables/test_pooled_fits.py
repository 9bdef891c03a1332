"""Fits to tuples and a pool whose prior is known: what they add, and when they are not made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

from ntmp_cli.classifier import NTMPClassifier
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.tables import data as table_data
from ntmp_cli.learning.tables import ensemble, fits
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import FittedTable, Split, fit_table

Floats = NDArray[np.float64]
TEST_ROWS = 4000


@pytest.fixture(autouse=True)
def few_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "STAGES", (20, 40, 80))


def rows(labels: NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Normal classes at a distance of 2 in the first feature; the other two say nothing."""
    x: Floats = rng.normal(0, 1, (len(labels), 3)) + 2.0 * labels[:, None] * [1, 0, 0]
    return x


def positives_and_pool(seed: int, prior: float = 0.3, label: int = 1, size: int = 1) -> TableData:
    rng = np.random.default_rng([seed, 46])
    counts = np.full(150, size * label)
    pool = rows(rng.binomial(1, prior, 600), rng)
    x = rows(np.full(150 * size, label), rng)
    return TableData(x, CountObservations(np.full(150, size), counts), pool, prior, pool_prior=prior)


def auroc(fitted: FittedTable, seed: int = 0) -> float:
    rng = np.random.default_rng([seed, 47])
    labels = rng.binomial(1, 0.5, TEST_ROWS)
    return float(roc_auc_score(labels, fitted.scorer.score(rows(labels, rng))))


def best_auroc(seed: int = 0) -> float:
    """Of the feature that alone tells the classes apart."""
    rng = np.random.default_rng([seed, 47])
    labels = rng.binomial(1, 0.5, TEST_ROWS)
    return float(roc_auc_score(labels, rows(labels, rng)[:, 0]))


def fit(data: TableData, model: str = "linear", splits: Sequence[Split] | None = None) -> FittedTable:
    return fit_table(data, model, np.random.default_rng(0), splits)


def shares(fitted: FittedTable) -> dict[str, float]:
    return {learner["learner"]: learner["weight"] for learner in fitted.learners}


@pytest.mark.parametrize("seed", range(10))
def test_positives_and_a_pool_recover_the_classes(seed: int) -> None:
    """Over seeds 100 to 109 the loss to the best line is .002 ± .003, the mean probability .013 ± .011 too small."""
    data = positives_and_pool(seed)
    fitted = fit(data)
    assert auroc(fitted, seed) > best_auroc(seed) - 0.03
    probabilities = expit(fitted.pool_scores + logit(0.3) - logit(data.rate))
    assert abs(probabilities.mean() - 0.3) < 0.12


def test_negatives_and_a_pool_recover_the_classes_too() -> None:
    assert auroc(fit(positives_and_pool(0, label=0))) > best_auroc() - 0.03


def test_whole_tuples_of_positives_are_positives() -> None:
    assert auroc(fit(positives_and_pool(0, size=4))) > best_auroc() - 0.03


def test_a_larger_prior_gives_larger_probabilities() -> None:
    """A pool row that looks like the positives is one of many, or one of few that are all the same."""
    data = positives_and_pool(1)
    means = []
    for prior in (0.1, 0.3, 0.6):
        fitted = fit(replace(data, prior=prior, pool_prior=prior))
        means.append(expit(fitted.pool_scores + logit(prior) - logit(data.rate)).mean())
    assert means == sorted(means)


def test_trees_of_positives_and_a_pool_are_judged_with_the_pool() -> None:
    fitted = fit(positives_and_pool(2), "auto")
    assert [*shares(fitted)] == ["linear+pool", "boosted+pool", "boosted-linear+pool"]
    assert auroc(fitted) > best_auroc() - 0.05
    # A mean over tuples and pool rows: tuples at their rate alone have a loss of nearly 0.
    assert fitted.nll > 0.05


def one_rate_tuples(seed: int, prior: float, moved: float = 0.0) -> TableData:
    """Tuples 3:1 and a pool, whose second feature is `moved`."""
    rng = np.random.default_rng([seed, 48])
    labels = np.concatenate([rng.permutation([1, 0, 0]) for _ in range(150)])
    pool = rows(rng.binomial(1, prior, 800), rng) + moved * np.array([0, 1, 0])
    observed = CountObservations(np.full(150, 3), np.ones(150, int))
    return TableData(rows(labels, rng), observed, pool, prior, pool_prior=prior)


@pytest.mark.slow
def test_the_pool_adds_to_what_tuples_of_one_rate_tell() -> None:
    """Mean over ten seeds; the difference of a seed scatters by .006."""
    gains = []
    for seed in range(10):
        data = one_rate_tuples(seed, 0.8)
        with_pool, without = fit(data), fit(replace(data, pool_prior=None))
        assert [*shares(without)] == ["linear"]
        assert [*shares(with_pool)] == ["linear", "linear+pool"]
        gains.append(auroc(with_pool, seed) - auroc(without, seed))
    assert np.mean(gains) > 0


def test_a_pool_that_has_moved_is_left_out() -> None:
    """Its rows differ from those of tuples by a feature that says nothing of the class."""
    assert shares(fit(one_rate_tuples(0, 0.8, moved=2.0)))["linear+pool"] < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_a_pool_that_has_moved_costs_nothing(seed: int) -> None:
    data = one_rate_tuples(seed, 0.8, moved=2.0)
    fitted = fit(data)
    assert shares(fitted)["linear+pool"] < 0.1
    assert auroc(fitted, seed) > auroc(fit(replace(data, pool_prior=None)), seed) - 0.01


def test_scores_with_the_pool_are_log_odds_at_the_rate_of_the_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    data = one_rate_tuples(3, 0.8)
    monkeypatch.setattr(ensemble, "ensemble_weights", lambda losses, *_: np.array([0.0, 1.0]))
    fitted = fit(data)
    assert abs(expit(fitted.scores).mean() - 1 / 3) < 0.04
    assert abs(expit(fitted.pool_scores + logit(0.8) - logit(1 / 3)).mean() - 0.8) < 0.05


@pytest.mark.parametrize(
    "change",
    [
        {"pool_prior": None},
        {"pool_prior": 1 / 3},  # the rate of the tuples
        {"pool_prior": 0.34},  # within chance of it
        {"unlabeled": None},
    ],
)
def test_fits_without_use_for_the_pool_are_those_of_the_tuples(change: dict[str, Any]) -> None:
    data = replace(one_rate_tuples(4, 0.8), **change)
    assert len(data.pool_rows) == 0
    assert [*shares(fit(data))] == ["linear"]


def test_intercepts_of_tuples_leave_the_pool_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "cross_fitted_spread", lambda *_: 0.5)
    assert [*shares(fit(one_rate_tuples(5, 0.8)))] == ["linear"]


def test_every_pool_row_is_scored_by_a_fit_that_has_not_seen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[int]] = []
    original = ensemble.fits

    def recording(*arguments: Any) -> Iterator[Any]:
        seen.append({*arguments[4].tolist()})
        return original(*arguments)

    monkeypatch.setattr(ensemble, "fits", recording)
    fit(positives_and_pool(6))
    *by_fold, of_all = seen
    assert [{*range(600)} - rows_seen for rows_seen in by_fold] == [{*range(fold, 600, 5)} for fold in range(5)]
    assert of_all == {*range(600)}


def test_one_split_of_tuples_of_one_class_has_folds_of_the_pool() -> None:
    split = Split(np.arange(100), np.arange(100, 150))
    fitted = fit(positives_and_pool(7), "linear", [split])
    assert len(fitted.judged) == len(fitted.scores) == 50
    assert np.isfinite(fitted.pool_scores).all()
    assert auroc(fitted) > best_auroc() - 0.03


def test_one_split_of_other_tuples_leaves_the_pool_out() -> None:
    """Its fit would have to leave all of the pool out to score it."""
    assert [*shares(fit(one_rate_tuples(8, 0.8), "linear", [Split(np.arange(100), np.arange(100, 150))]))] == ["linear"]


def test_large_pools_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_data, "FEWEST_POOL_ROWS", 100)
    data = one_rate_tuples(9, 0.8)
    assert len(data.pool_rows) == data.observed.instances == 450
    assert data.pool_rows[0] == 0
    assert {*np.diff(data.pool_rows).tolist()} == {1, 2}
    assert len(fit(data).pool_scores) == 800


def test_weighted_tuples_are_worth_their_weight() -> None:
    data = one_rate_tuples(3, 0.8)
    observed = CountObservations(np.array([*([3] * 149), 3]), np.array([*([1] * 149), 2]))
    weighted = replace(data, observed=observed, weights=np.array([*([1.0] * 149), 50.0]))
    assert weighted.weighted_rate == pytest.approx((149 + 100) / (3 * 199))
    assert weighted.pooled_objective(800).rate == pytest.approx((249 + 640) / (597 + 800))
    assert np.isfinite(fit(weighted).scores).all()


def classifier(data: TableData, **given: Any) -> NTMPClassifier:
    model = NTMPClassifier(model=given.pop("model", "linear"))
    ids = np.repeat(np.arange(len(data.observed)), data.observed.sizes)
    return model.fit(data.x, ids, data.observed.counts, **given)


def test_the_classifier_learns_from_positives_and_a_pool_with_its_prior() -> None:
    data = positives_and_pool(0)
    model = classifier(data, unlabeled=data.unlabeled, prior=0.3)
    rng = np.random.default_rng(5)
    labels = rng.binomial(1, 0.3, TEST_ROWS)
    p = model.predict_proba(rows(labels, rng))[:, 1]
    assert roc_auc_score(labels, p) > 0.89
    assert abs(p.mean() - 0.3) < 0.1


@pytest.mark.parametrize("with_pool", [True, False])
def test_positives_without_a_prior_are_refused(with_pool: bool) -> None:
    data = positives_and_pool(0)
    with pytest.raises(NotIdentifiableError, match="of one class") as caught:
        classifier(data, **({"unlabeled": data.unlabeled} if with_pool else {"prior": 0.3}))
    assert "an unlabeled pool and its class prior" in str(caught.value.hint)


def test_other_classifiers_refuse_tuples_of_one_class() -> None:
    from sklearn.linear_model import LogisticRegression

    data = positives_and_pool(0)
    ids = np.arange(len(data.x))
    with pytest.raises(NotIdentifiableError, match="of one class") as caught:
        NTMPClassifier(estimator=LogisticRegression()).fit(
            data.x, ids, data.observed.counts, unlabeled=data.unlabeled, prior=0.3
        )
    assert "auto, linear or trees" in str(caught.value.hint)


def test_a_fold_of_one_class_is_fitted() -> None:
    """One negative among a hundred labels: the fold that it judges is of positives alone."""
    rng = np.random.default_rng(5)
    labels = np.array([0] + [1] * 99)
    fitted = fit(TableData(rows(labels, rng), CountObservations(np.ones(100, int), labels)))
    assert np.isfinite(fitted.scores).all()


def test_folds_of_a_thinned_pool_have_as_many_rows_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every fifth row of the pool is learned from; five folds by position would put all of them into one."""
    data = positives_and_pool(0)
    monkeypatch.setattr(table_data, "MOST_POOL_ROWS", 120)
    fitted = fit(data)
    assert len(data.pool_rows) == 120
    assert np.isfinite(fitted.pool_scores).all()
    assert np.isfinite(fitted.scorer.weight).all()


@pytest.mark.parametrize("prior", [None, 0.3])
def test_records_that_all_allow_one_class_are_refused(prior: float | None) -> None:
    rng = np.random.default_rng(6)
    at_least_one = np.repeat([[1, 2]], 100, axis=0)
    with pytest.raises(NotIdentifiableError, match="likeliest if all their instances are of one class"):
        NTMPClassifier(model="linear").fit(
            rows(rng.binomial(1, 0.5, 200), rng),
            np.repeat(np.arange(100), 2),
            np.repeat(at_least_one, 2, axis=0),
            unlabeled=rows(rng.binomial(1, 0.3, 300), rng),
            prior=prior,
        )


def test_the_pool_helps_ranges_as_it_helps_counts() -> None:
    """Over ten seeds the mean probability of the pool is .788 to .815. Taken at the rate of both, ranges gave .85."""
    rng = np.random.default_rng(7)
    labels, pool = rng.binomial(1, 0.4, 2400), rows(rng.binomial(1, 0.8, 3000), rng)
    many = labels.reshape(-1, 4).sum(axis=1) > 2
    ranges = np.stack([np.where(many, 3, 0), np.where(many, 4, 2)], axis=1)
    model = NTMPClassifier(model="linear").fit(
        rows(labels, rng), np.repeat(np.arange(600), 4), np.repeat(ranges, 4, axis=0), unlabeled=pool, prior=0.8
    )
    assert model.predict_proba(pool)[:, 1].mean() == pytest.approx(0.8, abs=0.03)
