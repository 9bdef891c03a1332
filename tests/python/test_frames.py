"""DataFrames as features: texts, categories and gaps by one mapping, kept with the classifier."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ntmp_cli import NTMPClassifier
from ntmp_cli.errors import DataError, UsageError

MAKERS = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}


def columns(seed=0, rows=600):
    """Numbers with gaps, texts with marks of missing values, truth values; and which rows are positive."""
    rng = np.random.default_rng(seed)
    y = rng.random(rows) < 0.4
    age = np.where(rng.random(rows) < 0.1, None, 40 + 10 * rng.normal(size=rows) + 15 * y)
    job = np.where(y ^ (rng.random(rows) < 0.1), "nurse", "clerk").astype(object)
    job[::17] = "?"
    return {"age": age.tolist(), "job": job.tolist(), "member": (rng.random(rows) < 0.5).tolist()}, y.astype(int)


def grouped(y, size=5):
    ids = np.repeat(np.arange(len(y) // size), size)
    return ids, dict(enumerate(np.bincount(ids, y).astype(int)))


@pytest.mark.parametrize("kind", MAKERS)
def test_texts_and_gaps_need_no_preparation(kind):
    raw, y = columns()
    new, y_new = columns(seed=1, rows=300)
    model = NTMPClassifier(model="linear").fit(MAKERS[kind](raw), *grouped(y))
    assert model.score(MAKERS[kind](new), y_new) > 0.85
    assert model.feature_names_in_.tolist() == ["age", "job", "member"]
    names = ["age", "age missing", "job=clerk", "job=nurse", "job missing", "member"]
    assert model.get_feature_names_out().tolist() == names
    again = NTMPClassifier.from_bytes(model.to_bytes())
    assert np.array_equal(again.predict_proba(MAKERS[kind](new)), model.predict_proba(MAKERS[kind](new)))


def test_all_kinds_of_frames_give_the_same_classifier():
    raw, y = columns()
    scores = [
        NTMPClassifier(model="linear").fit(make(raw), *grouped(y)).decision_function(other(raw))
        for make, other in zip(MAKERS.values(), [*MAKERS.values()][::-1], strict=True)
    ]
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])


def test_categories_are_known_by_their_texts():
    raw, y = columns()
    frame = pd.DataFrame(raw)
    by_text = NTMPClassifier(model="linear").fit(frame, *grouped(y))
    category = frame.assign(job=pd.Categorical(frame.job, categories=["nurse", "?", "unused", "clerk"]))
    by_category = NTMPClassifier(model="linear").fit(category, *grouped(y))
    assert np.array_equal(by_text.decision_function(frame), by_category.decision_function(category))


def test_sparse_columns_of_pandas_are_numbers():
    rng = np.random.default_rng(0)
    x = np.where(rng.random((200, 3)) < 0.5, 0.0, rng.normal(size=(200, 3)))
    dense = pd.DataFrame(x, columns=list("abc"))
    sparse = dense.astype(pd.SparseDtype(float, 0.0))
    ids, counts = grouped((x[:, 0] > 0).astype(int))
    expected, model = (NTMPClassifier(model="linear").fit(frame, ids, counts) for frame in (dense, sparse))
    assert np.array_equal(model.decision_function(sparse), expected.decision_function(dense))


def test_a_frame_of_numbers_is_the_array_of_its_values():
    rng = np.random.default_rng(0)
    y = rng.random(300) < 0.4
    x = rng.normal(size=(300, 2)) + y[:, None]
    of_frame = NTMPClassifier(model="linear").fit(pd.DataFrame(x, columns=["a", "b"]), *grouped(y))
    of_array = NTMPClassifier(model="linear").fit(x, *grouped(y))
    assert np.array_equal(of_frame.coef_, of_array.coef_)
    assert of_frame.get_feature_names_out().tolist() == ["a", "b"]
    assert of_array.get_feature_names_out().tolist() == ["x0", "x1"]


@pytest.mark.parametrize("kind", MAKERS)
def test_what_training_did_not_have_is_counted_in_a_warning(kind):
    raw, y = columns()
    model = NTMPClassifier(model="linear").fit(MAKERS[kind](raw), *grouped(y))
    new = {name: values[:20] for name, values in raw.items()}
    expected = model.decision_function(MAKERS[kind](new))
    with pytest.warns(UserWarning, match=r"columns that training did not have are left out: 2 \(extra, more\)"):
        scores = model.decision_function(MAKERS[kind]({"extra": [1] * 20, **new, "more": ["x"] * 20}))
    assert np.array_equal(scores, expected)
    new["job"] = ["pilot"] * 3 + new["job"][3:]
    with pytest.warns(UserWarning, match=r"categories that training did not have count as none: job \(rows: 3\)"):
        scores = model.decision_function(MAKERS[kind](new))
    assert np.array_equal(scores[3:], expected[3:])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda d: d.drop(columns="age"), ValueError, "yet now missing:\n- age"),
        (lambda d: d[["job", "age", "member"]], ValueError, "must be in the same order"),
        (lambda d: d.assign(age="old"), DataError, "column 'age': 'old' is not a number, as it was in training"),
        (lambda d: d.assign(age=np.inf), DataError, "column 'age' has infinite values"),
        (lambda d: d.to_numpy(), UsageError, "X is not a DataFrame, but it was in fit"),
    ],
)
def test_rows_that_do_not_fit_are_refused(change, error, message):
    raw, y = columns()
    frame = pd.DataFrame(raw)
    model = NTMPClassifier(model="linear").fit(frame, *grouped(y))
    with pytest.raises(error, match=message):
        model.predict(change(frame))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.assign(day=pd.Timestamp("2020-01-01")), "column 'day' holds Datetime"),
        (lambda d: d.set_axis(["age", "age", "member"], axis=1), "two columns of X have the same name"),
    ],
)
def test_columns_that_are_no_features_are_refused(change, message):
    raw, y = columns()
    with pytest.raises(DataError, match=message):
        NTMPClassifier().fit(change(pd.DataFrame(raw)), *grouped(y))


def test_many_categories_are_hashed():
    raw, y = columns()
    frame = pd.DataFrame({**raw, "town": [f"town {i % 60}" for i in range(600)]})
    model = NTMPClassifier(model="linear").fit(frame, *grouped(y))
    assert len(model.get_feature_names_out()) == 6 + 64
    assert np.isfinite(model.decision_function(frame)).all()


def test_networks_take_mapped_features_as_they_are():
    raw, y = columns()
    frame = pd.DataFrame(raw)
    ids, counts = grouped(y)
    ids = [None if i < 40 else i for i in ids]
    model = NTMPClassifier(model="mlp", epochs=1).fit(frame, ids, counts, prior=0.4)
    again = NTMPClassifier.from_bytes(model.to_bytes())
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))


# --- the pool ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("gap", [None, np.nan, pd.NA, pd.NaT])
def test_rows_without_tuple_id_are_the_pool(gap):
    rng = np.random.default_rng(0)
    y = rng.random(600) < 0.5
    x = rng.normal(size=(600, 2)) + 2 * y[:, None]
    ids, counts = grouped(y)
    apart = NTMPClassifier(model="linear").fit(x[:400], ids[:400], counts, unlabeled=x[400:])
    inside = [*ids[:400].tolist(), *[gap] * 200]
    within = NTMPClassifier(model="linear").fit(x, inside, counts)
    assert within.prior_source_ == "estimated"
    assert np.array_equal(within.decision_function(x), apart.decision_function(x))


def test_a_pipeline_transforms_the_pool_too():
    rng = np.random.default_rng(0)
    y = rng.random(600) < 0.5
    x = 100 + 7 * (rng.normal(size=(600, 2)) + 2 * y[:, None])
    ids, counts = grouped(y)
    gaps = [*ids[:400].tolist(), *[None] * 200]
    pipe = make_pipeline(StandardScaler(), NTMPClassifier(model="linear"))
    pipe.fit(x, gaps, ntmpclassifier__counts=counts)
    direct = NTMPClassifier(model="linear").fit(StandardScaler().fit_transform(x), gaps, counts)
    assert np.allclose(pipe.decision_function(x), direct.decision_function(StandardScaler().fit_transform(x)))


@pytest.mark.parametrize(
    ("x", "unlabeled", "message"),
    [
        (np.ones((4, 3)), np.ones((2, 2)), "unlabeled is of 2 columns, unlike X with its 3 columns"),
        (np.ones((4, 3)), pd.DataFrame(np.ones((2, 3))), "unlabeled is a DataFrame, unlike X with its 3 columns"),
        (pd.DataFrame(np.ones((4, 3))), np.ones((2, 3)), "unlabeled is no DataFrame, unlike X with its 3 columns"),
        (
            pd.DataFrame({"a": [1.0] * 4}),
            pd.DataFrame({"b": [1.0] * 4}),
            "unlabeled is of other columns, unlike X with its 1 columns",
        ),
    ],
)
def test_unlabeled_rows_that_a_pipeline_did_not_transform_are_noticed(x, unlabeled, message):
    with pytest.raises(UsageError) as error:
        NTMPClassifier().fit(x, [0, 0, 1, 1], {0: 1, 1: 0}, unlabeled=unlabeled)
    assert error.value.message == message
    assert "Pipeline" in error.value.hint
