"""Any scikit-learn classifier learns from counts; what it is saved as holds no code."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from ntmp_cli import NTMPClassifier
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.learning.tables.estimator_scorer import ESTIMATOR_FILE, dump_estimator, load_estimator, named_estimator

ESTIMATORS = [
    LogisticRegression(),
    make_pipeline(StandardScaler(), LogisticRegression(C=0.5)),
    RandomForestClassifier(20, min_samples_leaf=5),
    pytest.param(HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=8), marks=pytest.mark.slow),
    GaussianNB(),
]


def natural(seed=0, tuples=120):
    """Tuples of 3 to 8 rows whose counts vary; new rows with labels."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(3, 9, tuples)
    y = (rng.random(sizes.sum()) < 0.35).astype(int)
    x = rng.normal(size=(len(y), 3)) + 1.5 * y[:, None]
    ids = np.repeat(np.arange(tuples), sizes)
    y_new = (rng.random(400) < 0.35).astype(int)
    return (
        x,
        ids,
        dict(enumerate(np.bincount(ids, y).astype(int))),
        rng.normal(size=(400, 3)) + 1.5 * y_new[:, None],
        y_new,
    )


@pytest.fixture(scope="module", params=ESTIMATORS, ids=lambda e: type(e).__name__)
def fitted(request):
    """An estimator, and what learned from `natural()` with it."""
    x, ids, counts, *_ = natural()
    return request.param, NTMPClassifier(estimator=request.param).fit(x, ids, counts)


def test_a_scikit_learn_classifier_learns_from_counts(fitted):
    (estimator, model), (*_, x_new, y_new) = fitted, natural()
    assert roc_auc_score(y_new, model.decision_function(x_new)) > 0.9
    assert 1 <= model.history_[0]["learners"][0]["rounds"] <= 6
    assert type(model.estimator_) is type(estimator)
    assert model.estimator_ is not estimator


def test_the_probabilities_are_calibrated_by_counts():
    """Naive Bayes counts a feature that is there eight times as often; counts of other tuples correct that."""
    x, ids, counts, x_new, y_new = natural(tuples=300)
    x, x_new = np.tile(x, 8), np.tile(x_new, 8)
    model = NTMPClassifier(estimator=GaussianNB()).fit(x, ids, counts)

    def loss(p):
        return -np.mean(np.log(np.clip(np.where(y_new == 1, p, 1 - p), 1e-4, 1)))

    assert loss(model.predict_proba(x_new)[:, 1]) < 0.75 * loss(model.estimator_.predict_proba(x_new)[:, 1])


@pytest.mark.slow
def test_equal_seeds_give_equal_classifiers_and_equal_bytes():
    x, ids, counts, *_ = natural()
    a, b, c = (
        NTMPClassifier(estimator=RandomForestClassifier(5), random_state=seed).fit(x, ids, counts).to_bytes()
        for seed in (1, 1, 2)
    )
    assert a == b != c


def test_tuples_of_one_rate_and_a_pool_are_enough():
    rng = np.random.default_rng(0)
    y = np.tile([1, 0, 0], 150)
    x = rng.normal(size=(450, 3)) + 2 * y[:, None]
    pool = rng.normal(size=(300, 3)) + 2 * (rng.random(300) < 0.7)[:, None]
    model = NTMPClassifier(estimator=LogisticRegression()).fit(
        x, np.repeat(np.arange(150), 3), np.ones(450), unlabeled=pool, prior=0.7
    )
    assert roc_auc_score(y, model.decision_function(x)) > 0.95


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"estimator": LinearSVC()},
            "LinearSVC cannot learn from counts: it has no predict_proba",
        ),
        (
            {"estimator": make_pipeline(StandardScaler(), LinearDiscriminantAnalysis())},
            "Pipeline cannot learn from counts: it has no fit(…, sample_weight=…)",
        ),
        ({"estimator": "LogisticRegression"}, "str is not a scikit-learn classifier"),
        ({"estimator": GaussianNB(), "model": "trees"}, "both model 'trees' and an estimator were given"),
        (
            {"estimator": GaussianNB(), "method": "ure"},
            "model sklearn:naive_bayes.GaussianNB needs method count",
        ),
        ({"estimator": {"C": 1}}, "estimator: model auto has no such parameters; sklearn:PACKAGE.CLASS has"),
    ],
    ids=str,
)
def test_what_cannot_learn_from_counts_is_refused(settings, message):
    x, ids, counts, *_ = natural()
    with pytest.raises(UsageError) as error:
        NTMPClassifier(**settings).fit(x, ids, counts)
    assert error.value.message == message


def test_what_scikit_learn_says_of_a_parameter_is_passed_on():
    x, ids, counts, *_ = natural()
    with pytest.raises(UsageError, match="LogisticRegression cannot be fitted: The 'C' parameter"):
        NTMPClassifier(estimator=LogisticRegression(C=-1)).fit(x, ids, counts)


def test_parameters_of_the_estimator_are_parameters():
    model = NTMPClassifier(estimator=LogisticRegression()).set_params(estimator__C=0.5, count_noise=0.1)
    assert model.estimator.C == 0.5
    assert model.get_params().items() >= {"estimator__C": 0.5, "count_noise": 0.1}.items()


# --- keeping ----------------------------------------------------------------------------------------


class Foreign(LogisticRegression):
    """A classifier that is not scikit-learn's own."""


def test_a_classifier_of_another_package_is_pickled_but_not_saved():
    x, ids, counts, x_new, _ = natural()
    model = NTMPClassifier(estimator=Foreign()).fit(x, ids, counts)
    with pytest.raises(UsageError, match=f"Foreign cannot be saved: {__name__}.Foreign is not a type"):
        model.to_bytes()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(x_new), model.predict_proba(x_new))


def test_a_saved_classifier_scores_the_same(fitted):
    (estimator, model), (*_, x_new, _) = fitted, natural()
    again = NTMPClassifier.from_bytes(model.to_bytes())
    assert np.array_equal(again.predict_proba(x_new), model.predict_proba(x_new))
    assert repr(again.estimator) == repr(estimator)


def changed(content, old, new):
    """An archive of skops with one text of its schema replaced."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert old in files["schema.json"].decode()
    files["schema.json"] = files["schema.json"].decode().replace(old, new).encode()
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return result.getvalue()


def test_a_file_that_names_another_type_is_refused_by_that_type():
    content = dump_estimator(LogisticRegression())
    schema = json.dumps({"__class__": "LogisticRegression", "__module__": "sklearn.linear_model._logistic"})[1:-1]
    evil = json.dumps({"__class__": "Popen", "__module__": "subprocess"})[1:-1]
    with pytest.raises(ArtifactError) as error:
        load_estimator(changed(content, schema, evil))
    assert error.value.message == f"{ESTIMATOR_FILE}: holds the type subprocess.Popen, which is not trusted"


@pytest.mark.parametrize(
    "kind",
    [DecisionTreeClassifier(), RandomForestClassifier(3), ExtraTreesClassifier(3), HistGradientBoostingClassifier()],
    ids=lambda kind: type(kind).__name__,
)
@pytest.mark.parametrize("damage", [None, "child", "loop", "feature"])
def test_a_tree_that_leads_outside_is_refused(kind, damage):
    """Scikit-learn would follow it into foreign memory."""
    x, *_ = natural()
    content = dump_estimator(kind.fit(x, x.sum(axis=1) > 1))
    if damage is None:
        assert np.array_equal(load_estimator(content).predict(x), kind.predict(x))
        return
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    left, feature = ("left", "feature_idx") if "Hist" in type(kind).__name__ else ("left_child", "feature")
    damaged = 0
    for name, data in files.items():
        nodes = np.load(io.BytesIO(data)) if name.endswith(".npy") else np.empty(0)
        if nodes.dtype.names and left in nodes.dtype.names and len(nodes) > 1:
            where = {"child": (left, len(nodes)), "loop": (left, 0), "feature": (feature, 3)}[damage]
            nodes[where[0]][0] = where[1]
            stream = io.BytesIO()
            np.save(stream, nodes)
            files[name] = stream.getvalue()
            damaged += 1
            break
    assert damaged
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with pytest.raises(ArtifactError, match="holds a tree whose nodes do not fit together"):
        load_estimator(result.getvalue())


@pytest.mark.parametrize("content", [b"", b"PK", dump_estimator(GaussianNB())[:200]])
def test_a_damaged_file_is_refused(content):
    with pytest.raises(ArtifactError, match="not a classifier that this version of scikit-learn reads"):
        load_estimator(content)


# --- names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("sklearn:linear_model.LogisticRegression", LogisticRegression),
        ("sklearn:sklearn.naive_bayes.GaussianNB", GaussianNB),
        (f"sklearn:{__name__}.Foreign", Foreign),
    ],
)
def test_a_name_finds_its_class(name, kind):
    assert type(named_estimator(name, {})) is kind


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("sklearn:GaussianNB", {}, "model sklearn:GaussianNB: expected sklearn:PACKAGE.CLASS"),
        ("sklearn:no_such.Thing", {}, "there is no module no_such, in sklearn or elsewhere"),
        ("sklearn:naive_bayes.GausianNB", {}, "sklearn.naive_bayes has no classifier GausianNB; did you mean 'Gaus"),
        ("sklearn:ensemble.VotingClassifier", {}, "VotingClassifier cannot be made of its parameters alone"),
        ("sklearn:naive_bayes.GaussianNB", {"var": 1}, "estimator.var: GaussianNB has no such parameter"),
    ],
)
def test_a_wrong_name_is_explained(name, parameters, message):
    with pytest.raises(UsageError) as error:
        named_estimator(name, parameters)
    assert message in error.value.message


@pytest.mark.slow
def test_learners_for_tables_load_no_torch():
    code = (
        "import sys, numpy as np; from ntmp_cli import NTMPClassifier; from sklearn.naive_bayes import GaussianNB\n"
        "x = np.random.default_rng(0).normal(size=(90, 2))\n"
        "y = np.arange(90) // 3, np.repeat(np.arange(30) % 3, 3)\n"
        "model = NTMPClassifier().fit(x, *y)\n"
        "type(model).from_bytes(model.to_bytes()).predict_proba(x)\n"
        # Not its bytes: skops looks through all of scikit-learn, which loads torch where there is one.
        "NTMPClassifier(estimator=GaussianNB()).fit(x, *y).predict_proba(x)\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
