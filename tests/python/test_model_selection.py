"""scikit-learn's tools over tuples: folds, a score of counts, searches; weights, blocks and coefficients."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import binom
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ntmp_cli import NTMPClassifier, TupleKFold, count_labels, count_likelihood_score
from ntmp_cli.errors import DataError, UsageError


def sampled(seed=0, tuples=100, features=3):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 8, tuples)
    y = rng.random(sizes.sum()) < 0.4
    x = rng.normal(size=(len(y), features))
    x[:, 0] += 2 * y
    ids = np.repeat(np.arange(tuples), sizes)
    return x, ids, np.bincount(ids, y).astype(int)[ids], y.astype(int)


# --- labels and folds -------------------------------------------------------------------------------


def test_labels_of_counts_hold_numbers_of_tuples_counts_and_blocks():
    y = count_labels(["b", "a", None, "b"], {"a": 0, "b": 2}, {"a": "north", "b": "south"})
    assert np.array_equal(y, [[0, 2, 0], [1, 0, 1], [np.nan] * 3, [0, 2, 0]], equal_nan=True)


def test_fit_takes_labels_of_counts_as_it_takes_ids_and_counts():
    x, ids, counts, _ = sampled()
    a = NTMPClassifier(model="linear").fit(x, ids, counts)
    b = NTMPClassifier(model="linear").fit(x, count_labels(ids, counts))
    assert np.array_equal(a.decision_function(x), b.decision_function(x))


def test_folds_divide_no_tuple_and_test_every_tuple_once():
    x, ids, counts, _ = sampled()
    some = [None if i < 10 else i for i in ids]
    y = count_labels(some, counts)
    pool = np.flatnonzero(ids < 10)
    tested = []
    for training, test in TupleKFold(4).split(x, y):
        assert not set(ids[training]) & set(ids[test])
        assert np.isin(pool, training).all()
        assert sorted([*training, *test]) == list(range(len(x)))
        tested += test.tolist()
    assert sorted(tested) == np.flatnonzero(ids >= 10).tolist()


@pytest.mark.parametrize("as_groups", [True, False])
def test_folds_divide_no_block(as_groups):
    x, ids, counts, _ = sampled()
    blocks = ids // 7
    y = count_labels(ids, counts, None if as_groups else blocks)
    folds = list(TupleKFold(3).split(x, y, blocks if as_groups else None))
    assert len(folds) == 3
    assert all(not set(blocks[training]) & set(blocks[test]) for training, test in folds)


def test_folds_follow_their_seed():
    x, ids, counts, _ = sampled()
    y = count_labels(ids, counts)
    a, b, c = (np.concatenate([test for _, test in TupleKFold(random_state=s).split(x, y)]) for s in (0, 0, 1))
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("folds", "y", "message"),
    [
        (TupleKFold(3), count_labels([0, 0, 1], [1, 1, 0]), "n_splits 3: expected 2 to 2, the number of tuples"),
        (TupleKFold(2), np.array([1, 0, 1]), "the counts are missing"),
        (TupleKFold(2), None, "TupleKFold needs the tuples of the rows"),
    ],
)
def test_wrong_folds_are_refused(folds, y, message):
    with pytest.raises(UsageError) as error:
        next(folds.split(np.zeros((3, 1)), y))
    assert error.value.message == message


# --- the score --------------------------------------------------------------------------------------


def test_the_score_is_the_mean_log_probability_of_the_counts():
    """A classifier that gives every row the probability p makes every count binomial."""
    x, ids, counts, y = sampled()
    constant = DummyClassifier().fit(x, y)
    sizes, first = np.bincount(ids), np.unique(ids, return_index=True)[1]
    expected = binom.logpmf(counts[first], sizes, y.mean()).mean()
    assert np.isclose(count_likelihood_score(constant, x, count_labels(ids, counts)), expected)


def test_the_score_does_not_depend_on_the_prior_of_the_pool():
    """Counts are judged at the rate of the tuples, whatever prior the probabilities are for."""
    x, ids, counts, _ = sampled()
    labels = count_labels(ids, counts)
    few = NTMPClassifier(model="linear", random_state=0)
    scores = [count_likelihood_score(few.fit(x, ids, counts, prior=p), x, labels) for p in (0.1, 0.4, 0.9)]
    assert np.ptp(scores) < 0.02
    assert min(scores) > count_likelihood_score(DummyClassifier().fit(x, np.arange(len(x)) % 5 < 2), x, labels)


def test_accuracy_of_counts_is_refused():
    x, ids, counts, _ = sampled()
    model = NTMPClassifier(model="linear").fit(x, ids, counts)
    with pytest.raises(UsageError, match="y holds counts, and accuracy needs labels"):
        model.score(x, count_labels(ids, counts))


# --- searches ---------------------------------------------------------------------------------------


def test_cross_validation_prefers_the_classifier_that_saw_the_feature():
    x, ids, counts, _ = sampled()
    y = count_labels(ids, counts)
    how = {"cv": TupleKFold(3), "scoring": count_likelihood_score}
    good = cross_val_score(NTMPClassifier(model="linear"), x, y, **how)
    blind = cross_val_score(NTMPClassifier(model="linear"), x[:, 1:], y, **how)
    assert good.shape == (3,)
    assert good.mean() > blind.mean() + 0.1


@pytest.mark.slow
def test_a_grid_search_over_a_pipeline_chooses_parameters_of_the_estimator():
    x, ids, counts, labels = sampled()
    pipe = make_pipeline(StandardScaler(), NTMPClassifier(estimator=LogisticRegression()))
    name = "ntmpclassifier__estimator__C"
    search = GridSearchCV(pipe, {name: [1e-6, 1.0]}, cv=TupleKFold(3), scoring=count_likelihood_score)
    search.fit(x, count_labels(ids, counts))
    assert search.best_params_ == {name: 1.0}
    assert search.score(x, count_labels(ids, counts)) > -2
    assert (search.predict(x) == labels).mean() > 0.8


@pytest.mark.slow
def test_a_grid_search_respects_the_pool_and_blocks():
    x, ids, counts, _ = sampled()
    some = [None if i < 20 else i for i in ids]
    y = count_labels(some, counts, ids // 5)
    search = GridSearchCV(
        NTMPClassifier(), {"model": ["linear", "trees"]}, cv=TupleKFold(2), scoring=count_likelihood_score
    )
    search.fit(x, y)
    assert search.best_estimator_.prior_source_ in ("estimated", "tuples")
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


# --- weights, blocks, coefficients ------------------------------------------------------------------


def test_a_tuple_of_weight_two_counts_as_two_tuples():
    x, ids, counts, _ = sampled(tuples=60)
    heavy = ids < 20
    x_twice = np.concatenate([x, x[heavy]])
    ids_twice = np.concatenate([ids, ids[heavy] + 1000])
    counts_twice = np.concatenate([counts, counts[heavy]])
    # Two copies of a tuple are one block: no fold is judged by what it has seen.
    twice = NTMPClassifier(estimator=LogisticRegression()).fit(
        x_twice, ids_twice, counts_twice, blocks=ids_twice % 1000
    )
    weighted = NTMPClassifier(estimator=LogisticRegression()).fit(x, ids, counts, sample_weight=1.0 + heavy)
    plain = NTMPClassifier(estimator=LogisticRegression()).fit(x, ids, counts)
    near = np.abs(weighted.estimator_.coef_ - twice.estimator_.coef_).max()
    assert near < 0.2 * np.abs(weighted.estimator_.coef_ - plain.estimator_.coef_).max()


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("model", ["linear", *(pytest.param(m, marks=pytest.mark.slow) for m in ("trees", "auto"))])
def test_tuples_of_weight_zero_are_absent(model, pooled):
    """Far away and miscounted, they change no bit; what remains may have weights or none."""
    x, ids, counts, _ = sampled(tuples=80)
    absent = ids < 25
    far = np.where(absent[:, None], x + 50, x)
    mistaken = np.where(absent, np.bincount(ids)[ids] - counts, counts)
    rows = np.random.default_rng(5).normal(size=(200, 3)) + np.where(np.arange(200) < 140, 2, 0)[:, None] * [1, 0, 0]
    pool = {"unlabeled": rows, "prior": 0.7} if pooled else {}
    weight = 1.0 + ids % 2
    for ones in (True, False):
        weights = np.ones(len(x)) if ones else weight
        given = {"sample_weight": np.where(absent, 0.0, weights), "blocks": ids // 2, **pool}
        rest = {"sample_weight": None if ones else weight[~absent], "blocks": ids[~absent] // 2, **pool}
        without = NTMPClassifier(model=model).fit(x[~absent], ids[~absent], counts[~absent], **rest)
        assert NTMPClassifier(model=model).fit(far, ids, mistaken, **given).to_bytes() == without.to_bytes()


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_rows_of_weight_zero_do_not_enter_the_mapping_of_a_frame(library):
    module = pytest.importorskip(library)
    x, ids, counts, _ = sampled(tuples=60)
    names = np.array([f"t{i}" for i in ids])
    kept = ids % 3 > 0
    text = np.where(kept, np.where(x[:, 1] > 0, "a", "b"), "never")
    columns = [x[:, 0].astype(float), text]
    make = module.table if library == "pyarrow" else module.DataFrame
    frame, rest = (
        make({"x": columns[0][rows].tolist(), "text": columns[1][rows].tolist()}) for rows in (slice(None), kept)
    )
    by_tuple = {f"t{i}": float(i % 3 > 0) for i in ids}
    y = count_labels(names, counts)
    model = NTMPClassifier(model="linear").fit(frame, y, sample_weight=[by_tuple[f"t{i}"] for i in ids])
    alone = NTMPClassifier(model="linear").fit(rest, names[kept], counts[kept])
    assert model.get_feature_names_out().tolist() == alone.get_feature_names_out().tolist()
    assert model.to_bytes() == alone.to_bytes()


def test_networks_refuse_weights():
    x, ids, counts, _ = sampled()
    with pytest.raises(UsageError, match="method count with model mlp does not use sample_weight"):
        NTMPClassifier(model="mlp", epochs=1).fit(x, ids, counts, unlabeled=x, sample_weight=np.ones(len(x)))


def test_weights_are_numbers():
    x, ids, counts, _ = sampled()
    with pytest.raises(DataError, match="sample_weight: expected finite numbers"):
        NTMPClassifier().fit(x, ids, counts, sample_weight=np.zeros(len(x)))


def test_networks_set_whole_blocks_aside():
    x, ids, counts, _ = sampled()
    settings = {"model": "mlp", "epochs": 1, "heldout_share": 0.5}
    together = NTMPClassifier(**settings).fit(x, ids, counts, unlabeled=x, prior=0.4, blocks=np.zeros(len(x)))
    # One block cannot be divided, so nothing is set aside and no epoch has a held-out risk.
    assert together.history_[0]["heldout_risk"] is None
    apart = NTMPClassifier(**settings).fit(x, ids, counts, unlabeled=x, prior=0.4)
    assert apart.history_[0]["heldout_risk"] is not None


def test_coefficients_are_those_of_the_score():
    x, ids, counts, _ = sampled()
    model = NTMPClassifier(model="linear").fit(100 * x + 7, ids, counts, prior=0.2)
    assert model.coef_.shape == (1, 3)
    assert model.intercept_.shape == (1,)
    new = 100 * sampled(seed=1)[0] + 7
    expected = model.decision_function(new)
    assert np.allclose(new.astype(np.float32) @ model.coef_[0] + model.intercept_, expected)
    assert np.allclose(logit(model.predict_proba(new)[:, 1]), expected)
    few = ids < 30
    others = NTMPClassifier(model="trees").fit(x[few], ids[few], counts[few])
    assert not hasattr(others, "coef_")
    assert not hasattr(others, "estimator_")
    assert not hasattr(NTMPClassifier(model="linear"), "coef_")


def test_the_score_knows_the_law_of_the_classifier():
    """Counts that miss three of ten positives: under their law they are likelier than under an exact one."""
    rng = np.random.default_rng(0)
    sizes = np.full(150, 6)
    y = rng.random(sizes.sum()) < 0.5
    x = np.column_stack([y + rng.normal(0, 0.5, len(y)), rng.normal(size=len(y))])
    ids = np.repeat(np.arange(len(sizes)), sizes)
    recorded = np.bincount(ids, weights=y & (rng.random(len(y)) < 0.7)).astype(int)
    labels = count_labels(ids, recorded)
    plain, aware = (NTMPClassifier(model="linear", count_law=law).fit(x, labels) for law in (None, "detect:0.7,1.0"))
    assert count_likelihood_score(aware, x, labels) > count_likelihood_score(plain, x, labels) - 0.05
