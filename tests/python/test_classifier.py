"""The classifier in Python: scikit-learn's own checks, learning, determinism, and files that hold no code."""

from __future__ import annotations

import pickle
import pickletools
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from ntmp_cli import NTMPClassifier
from ntmp_cli.app import run
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.errors import ArtifactError, DataError, NotIdentifiableError, UsageError
from ntmp_cli.python.tuple_rows import TupleRows


class FromLabels(NTMPClassifier):
    """Scikit-learn's checks call fit(X, y): here every row becomes a tuple of one, with y as its count."""

    def fit(self, X, y):
        from sklearn.utils.multiclass import check_classification_targets
        from sklearn.utils.validation import validate_data

        _, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        classes, counts = np.unique(y, return_inverse=True)
        if len(classes) != 2:
            raise ValueError(f"Only binary classification is supported. Classes: {len(classes)} class(es)")
        super().fit(X, np.arange(len(counts)), counts, X, prior=float(counts.mean()))
        self.classes_ = classes
        return self


@parametrize_with_checks([FromLabels(method="discriminant")])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_the_score_of_a_row_does_not_depend_on_the_rows_beside_it():
    """Scikit-learn's own check allows 1e-7, which is the last digit of single precision."""
    rng = np.random.default_rng(0)
    y = np.tile([1, 0], 100)
    x = rng.normal(size=(200, 1000)) + y[:, None]
    model = FromLabels(method="discriminant").fit(x, y)
    alone = [model.decision_function(row[None])[0] for row in x[:20]]
    assert np.allclose(model.decision_function(x)[:20], alone, rtol=1e-12, atol=1e-12)


# --- learning ---------------------------------------------------------------------------------------


def sampled(seed=0, tuples=150, unlabeled=400, prior=0.6):
    """Tuples of three with one positive, two normal classes far apart; new rows with their labels."""
    rng = np.random.default_rng(seed)
    y = np.tile([1, 0, 0], tuples)
    x = rng.normal(size=(len(y), 4)) + 2.5 * y[:, None]
    ids = np.repeat(np.arange(tuples), 3)
    order = rng.permutation(len(y))
    outside = rng.random(unlabeled) < prior
    pool = rng.normal(size=(unlabeled, 4)) + 2.5 * outside[:, None]
    y_new = (rng.random(300) < prior).astype(int)
    return x[order], ids[order], np.ones(len(y), int), pool, rng.normal(size=(300, 4)) + 2.5 * y_new[:, None], y_new


def fast(**more):
    """The linear count likelihood, or a small network by another method."""
    return NTMPClassifier(**{"model": "linear", **more})


NETWORKS = {"count": {"model": "mlp", "epochs": 10}, "ure": {"epochs": 20, "lr": 0.02}, "discriminant": {}}


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "settings",
    [{"model": "auto"}, {"model": "linear"}, *({"method": k, **v} for k, v in NETWORKS.items())],
    ids=str,
)
def test_it_learns_single_items_from_counts(settings):
    x, ids, counts, pool, x_new, y_new = sampled()
    model = fast(**settings).fit(x, ids, counts, unlabeled=pool, prior=0.6)
    assert model.score(x_new, y_new) > 0.95
    p = model.predict_proba(x_new)
    assert np.allclose(p.sum(axis=1), 1)
    assert np.array_equal(model.predict(x_new), model.classes_[p.argmax(axis=1)])


def test_an_unknown_prior_is_estimated():
    x, ids, counts, pool, x_new, y_new = sampled(tuples=400)
    model = fast().fit(x, ids, counts, unlabeled=pool)
    assert model.prior_source_ == "estimated"
    assert model.prior_interval_[0] < 0.6 < model.prior_interval_[1]
    assert abs(model.prior_ - 0.6) < 0.08
    assert model.score(x_new, y_new) > 0.92


def test_counts_may_come_by_tuple_in_a_mapping():
    x, ids, counts, pool, x_new, _ = sampled()
    names = [f"t{i}" for i in ids]
    by_row = fast().fit(x, ids, counts, unlabeled=pool, prior=0.6)
    by_name = fast().fit(x, names, dict.fromkeys(names, 1), unlabeled=pool, prior=0.6)
    assert np.array_equal(by_row.predict_proba(x_new), by_name.predict_proba(x_new))


def test_the_same_seed_gives_the_same_classifier_and_another_one_does_not():
    x, ids, counts, pool, x_new, _ = sampled()
    a, b, c = (
        NTMPClassifier(model="mlp", epochs=1, random_state=s)
        .fit(x, ids, counts, unlabeled=pool, prior=0.6)
        .decision_function(x_new)
        for s in (1, 1, 2)
    )
    assert np.array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"tuples": [1, 2]}, DataError, "tuples has 2 ids, but X has 450 rows"),
        ({"counts": np.full(450, 4)}, DataError, "has 3 rows but count 4"),
        ({"counts": {0: 1}}, DataError, "counts has no entry for tuple "),
        ({"counts": np.arange(450)}, DataError, "counts of rows of one tuple differ"),
        ({"prior": 1.5}, UsageError, "prior 1.5: expected a share between 0 and 1"),
        ({"counts": np.full(450, np.nan)}, DataError, "has 3 rows but count nan, which is not 0, 1, 2 …$"),
        (
            {"counts": np.full(450, 0.5)},
            DataError,
            "has 3 rows but count 0.5, which is not 0, 1, 2 …; are these proportions\\? then pass texts such as '25%'$",
        ),
        (
            {"counts": np.full(450, 37.5)},
            DataError,
            "; are these percentages\\? then pass texts such as '25%'; was noise added\\? then set count_law=",
        ),
        (
            {"counts": np.full(450, 67)},
            DataError,
            "has 3 rows but count 67: are these percentages\\? then pass texts such as '25%'$",
        ),
        ({"counts": ["one"] * 450}, DataError, "has 3 rows but count one"),
        ({"tuples": [None] * 450}, DataError, "no row has a tuple id"),
        ({"counts": None}, UsageError, "the counts are missing"),
        ({"unlabeled": np.zeros((3, 2))}, UsageError, "unlabeled is of 2 columns, unlike X with its 4 columns"),
        ({"sample_weight": np.full(450, -1.0)}, DataError, "sample_weight: expected finite numbers from 0 on"),
        ({"sample_weight": np.arange(450)}, DataError, "sample_weight of rows of one tuple differ"),
        ({"blocks": [1, 2]}, DataError, "blocks has 2 values, but X has 450 rows"),
    ],
)
def test_mistakes_are_named(change, error, message):
    x, ids, counts, pool, *_ = sampled()
    with pytest.raises(error, match=message):
        fast().fit(x, **{"tuples": ids, "counts": counts, "unlabeled": pool, "prior": 0.6, **change})


def test_what_cannot_be_told_apart_is_refused():
    x, ids, _, pool, *_ = sampled()
    with pytest.raises(NotIdentifiableError):
        fast(method="ure").fit(x, ids, np.ones(len(x), int), unlabeled=pool, prior=1 / 3)


# --- settings ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Tuples on disk, nothing set aside."""
    out = tmp_path_factory.mktemp("stored") / "tuples"
    data = ("--dataset", "gaussians:dim=3,separation=3,size=600,test=50", "--tuple", "3:1", "--prior", "0.6")
    assert run(["make-tuples", *data, "--heldout-share", "0", "--out", str(out)]) == 0
    return out


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "ure", "clamp": "abs"}, ["--method", "ure", "--clamp", "abs"]),
        ({"clamp": "abs"}, ["--clamp", "abs"]),
        ({"loss": "ramp", "weight_decay": 0.1}, ["--loss", "ramp", "--weight-decay", "0.1"]),
        ({"model": "mlp", "count_noise": 0.1, "warmup": "none"}, ["--count-noise", "0.1", "--warmup", "none"]),
        ({"model": "mlp"}, []),
    ],
    ids=str,
)
def test_settings_train_as_the_options_of_the_command_line(settings, words, stored, tmp_path):
    settings = {"model": "linear", **settings}
    shape = ["--prior", "0.6", "--model", settings["model"], "--epochs", "2", "--seed", "3", "--device", "cpu"]
    assert run(["train", "--tuples", str(stored), *shape, *words, "--out", str(tmp_path / "run")]) == 0
    model = NTMPClassifier(epochs=2, heldout_share=0, random_state=3, **settings)
    trained_as(model, stored, tmp_path / "run")


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, []),
        ({"model": "linear", "count_noise": 0.1}, ["--model", "linear", "--count-noise", "0.1"]),
        (
            {"estimator": LogisticRegression(C=0.1)},
            ["--model", "sklearn:linear_model.LogisticRegression", "--set", "estimator.C=0.1"],
        ),
        (
            {"model": "sklearn:tree.DecisionTreeClassifier", "estimator": {"max_depth": 3}},
            ["--model", "sklearn:tree.DecisionTreeClassifier", "--set", "estimator.max_depth=3"],
        ),
    ],
    ids=str,
)
def test_learners_for_tables_train_as_on_the_command_line(settings, words, stored, tmp_path):
    options = ["--prior", "0.6", "--seed", "3", *words, "--out", str(tmp_path / "run")]
    assert run(["train", "--tuples", str(stored), *options]) == 0
    trained_as(NTMPClassifier(random_state=3, **settings), stored, tmp_path / "run")


def trained_as(model, stored, expected):
    """Fit a classifier to stored tuples; its files are those of a run."""
    source = StoredTuples(open_artifact(stored))
    (shard,) = source.tuple_shards()
    x, sizes, counts = source.read_tuples(shard[0], 0, shard[1])
    pool = [source.read_unlabeled(name, 0, rows) for name, rows in source.unlabeled_shards()]
    ids = np.repeat(np.arange(len(sizes)), sizes)
    model.fit(x, ids, np.repeat(counts, sizes), unlabeled=np.concatenate(pool), prior=0.6)
    for name, content in model._scorer.files().items():
        assert content == (expected / name).read_bytes(), name


def test_settings_are_parameters_like_all_others():
    model = NTMPClassifier(method="ure", clamp="abs", margin=0.1)
    assert model.get_params().items() >= {"method": "ure", "clamp": "abs", "margin": 0.1, "epochs": None}.items()
    assert "settings" not in model.get_params()
    assert model.set_params(clamp="relu", loss="ramp", epochs=4) is model
    assert model.get_params().items() >= {"clamp": "relu", "margin": 0.1, "loss": "ramp", "epochs": 4}.items()
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    twin.set_params(clamp="none")
    assert model.get_params()["clamp"] == "relu"
    assert "clamp='relu'" in repr(model)


def test_a_grid_of_settings_can_be_searched():
    grid = ParameterGrid({"clamp": ["relu", "abs"], "epochs": [1, 2]})
    made = [clone(NTMPClassifier()).set_params(**point).get_params() for point in grid]
    assert [(kept["clamp"], kept["epochs"]) for kept in made] == [
        ("relu", 1),
        ("relu", 2),
        ("abs", 1),
        ("abs", 2),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clmap": "abs"}, "NTMPClassifier: clmap: unknown setting; did you mean 'clamp'?"),
        ({"weight_deacy": 1}, "NTMPClassifier: weight_deacy: unknown setting; did you mean 'weight_decay'?"),
        ({"clamp": "absolute"}, "NTMPClassifier: clamp: input should be 'none', 'relu' or 'abs' (got 'absolute')"),
        ({"method": "cuont"}, "unknown method 'cuont'; did you mean 'count'?"),
        ({"method": "supervised"}, "method supervised needs more than vectors and counts"),
        ({"encoder": "pca"}, "method count needs more than vectors and counts"),
        ({"prior": 0.3}, "prior is not a setting of NTMPClassifier"),
        ({"seed": 3}, "seed is not a setting of NTMPClassifier"),
    ],
)
def test_wrong_settings_are_refused_by_fit_before_anything_is_learned(settings, message):
    x, ids, counts, pool, *_ = sampled()
    with pytest.raises(UsageError) as error:
        NTMPClassifier(**settings).fit(x, ids, counts, unlabeled=pool)
    assert error.value.message == message


def test_a_setting_of_another_method_is_warned_of():
    x, ids, counts, pool, *_ = sampled()
    with pytest.warns(UserWarning, match="method ure does not use self_training, warmup"):
        fast(method="ure", warmup="none", self_training=0, epochs=1).fit(x, ids, counts, unlabeled=pool, prior=0.6)


# --- keeping ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("generator", [False, True])
def test_an_unfitted_classifier_survives_a_pickle_with_its_settings(generator):
    state = np.random.RandomState(3) if generator else 3
    again = pickle.loads(pickle.dumps(NTMPClassifier(clamp="abs", epochs=2, random_state=state)))
    assert again.get_params().items() >= {"clamp": "abs", "epochs": 2}.items()
    if generator:
        assert again.random_state.randint(1000) == np.random.RandomState(3).randint(1000)
    assert not hasattr(again, "classes_")


def test_settings_come_back_with_a_fitted_classifier(tmp_path):
    x, ids, counts, pool, x_new, _ = sampled()
    model = fast(method="ure", clamp="abs", margin=np.float64(0.1), epochs=1).fit(
        x, ids, counts, unlabeled=pool, prior=0.6
    )
    model.save(tmp_path / "model.ntmp")
    for again in (NTMPClassifier.load(tmp_path / "model.ntmp"), pickle.loads(pickle.dumps(model))):
        assert again.get_params() == model.get_params()
        assert np.array_equal(again.predict_proba(x_new), model.predict_proba(x_new))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"model": "mlp", "epochs": 1},
        {"model": "auto"},
        {"estimator": make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=1))},
    ],
    ids=str,
)
def test_files_and_pickles_bring_the_same_classifier_back(settings, tmp_path):
    x, ids, counts, pool, x_new, _ = sampled()
    model = NTMPClassifier(**settings).fit(x, ids, counts, unlabeled=pool, prior=0.6)
    model.save(tmp_path / "model.ntmp")
    expected = model.predict_proba(x_new)
    for again in (NTMPClassifier.load(tmp_path / "model.ntmp"), pickle.loads(pickle.dumps(model))):
        assert np.array_equal(again.predict_proba(x_new), expected)
        assert repr(again.get_params()) == repr(model.get_params())
        assert again.prior_ == 0.6
        learned = {name for name in vars(model) if name.endswith("_")}
        assert {name for name in vars(again) if name.endswith("_")} == learned
        assert (again.count_law_, again.count_law_intervals_) == (model.count_law_, model.count_law_intervals_)
    assert not hasattr(clone(model), "classes_")


def test_a_pickle_names_no_class_but_ours():
    x, ids, counts, pool, *_ = sampled()
    content = pickle.dumps(fast().fit(x, ids, counts, unlabeled=pool, prior=0.6))
    words = {str(argument) for _, argument, _ in pickletools.genops(content) if isinstance(argument, str)}
    assert "NTMPClassifier" in words
    assert not {word for word in words if word.startswith(("torch", "numpy"))}


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"\x02\x00\x00\x00\x00\x00\x00\x00{}"])
def test_a_foreign_file_is_refused(content, tmp_path):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ArtifactError, match=f"{tmp_path}/x: not a classifier that this ntmp has saved"):
        NTMPClassifier.load(tmp_path / "x")


def test_the_package_itself_stays_light():
    code = "import sys, ntmp_cli; assert not {'torch', 'sklearn', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def rows_and_counts(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of 120 tuples of five, labels, ids and counts."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(600, 3))
    y = (x[:, 0] + 0.3 * rng.normal(size=600) > 0).astype(int)
    return x, y, np.repeat(np.arange(120), 5), y.reshape(120, 5).sum(axis=1)


@pytest.mark.slow
def test_counts_may_be_pairs_texts_or_noisy() -> None:
    x, y, ids, counts = rows_and_counts()
    exact = NTMPClassifier(model="linear", random_state=0).fit(x, ids, counts)
    pairs = NTMPClassifier(model="linear", random_state=0).fit(x, ids, np.stack([counts, counts], axis=1))
    assert np.array_equal(exact.decision_function(x), pairs.decision_function(x))
    by_row = NTMPClassifier(model="linear", random_state=0).fit(x, ids, np.repeat(counts, 5))
    assert np.array_equal(exact.decision_function(x), by_row.decision_function(x))
    texts = {t: ">=1" if count else "0" for t, count in enumerate(counts)}
    some = NTMPClassifier(model="linear", random_state=0).fit(x, ids, texts)
    assert 0.8 < some.score(x, y) < 1
    noise = np.random.default_rng(1).normal(0, 1.5, 120)
    noisy = NTMPClassifier(model="linear", random_state=0, count_law="gaussian:1.5").fit(x, ids, counts + noise)
    assert noisy.score(x, y) > 0.8
    again = NTMPClassifier.from_bytes(noisy.to_bytes())
    assert np.array_equal(again.decision_function(x), noisy.decision_function(x))
    assert again.tuple_rate_ == noisy.tuple_rate_


def test_noisy_counts_that_look_like_proportions_are_warned_of() -> None:
    x, _, ids, counts = rows_and_counts()
    with pytest.warns(UserWarning, match=r"are these proportions\? then pass texts such as '25%'") as caught:
        NTMPClassifier(model="linear", count_law="gaussian:0.1").fit(x, ids, counts / 5.5)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_few_labels_are_learned_from_beside_counts() -> None:
    x, y, ids, counts = rows_and_counts(2)
    # All tuples half known: counts alone leave the side open, labels tell it.
    labels = [int(label) if row % 10 == 0 else None for row, label in enumerate(y)]
    model = NTMPClassifier(model="linear", random_state=0).fit(x, ids, counts, labels=labels)
    assert model.score(x, y) > 0.85
    assert model.tuple_rate_ == pytest.approx(y.mean())
    with pytest.raises(DataError, match="2 is neither 0 nor 1"):
        NTMPClassifier().fit(x, ids, counts, labels=[2] + [None] * 599)
    with pytest.raises(DataError, match="which its labels contradict"):
        NTMPClassifier().fit(x, ids, np.zeros(120), labels=[1] + [None] * 599)


def test_labels_are_exact_whatever_the_noise_of_counts(monkeypatch) -> None:
    x, y, ids, counts = rows_and_counts(4)
    counts = np.clip(counts + np.where(np.arange(120) % 10 == 0, 1, 0), 0, 5)
    labels = [int(label) if row % 50 == 0 else None for row, label in enumerate(y)]
    seen = []

    def kept(sizes, counts, law=None):
        seen.append(CountObservations(sizes, counts, law))
        return seen[-1]

    monkeypatch.setattr("ntmp_cli.learning.tables.training.CountObservations", kept)
    for noise in ({"count_noise": 0.1}, {"count_law": "off-by-one:0.1"}):
        seen.clear()
        NTMPClassifier(model="linear", **noise).fit(x, ids, counts, labels=labels)
        one = np.flatnonzero(seen[0].sizes == 1)
        assert len(one) == 12
        assert np.array_equal(seen[0].likelihood(np.array([[0], [1]]), one), [1 - y[::50], y[::50]])
        many = np.flatnonzero(seen[0].sizes > 1)
        assert np.allclose(seen[0].likelihood(seen[0].counts["low"][many].astype(int), many), 0.9)


def test_two_laws_of_noise_are_refused() -> None:
    x, _, ids, counts = rows_and_counts(4)
    with pytest.raises(UsageError, match="count_law and count_noise are two laws of noise: give one of them"):
        NTMPClassifier(count_law="round:2", count_noise=0.1).fit(x, ids, counts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "linear", "heldout_share": 0.2}, "model linear does not use heldout_share: settings of networks"),
        ({"method": "discriminant", "epochs": 3, "ema": 0.5}, "method discriminant does not use ema, epochs: "),
    ],
)
def test_settings_without_effect_are_named(settings, message) -> None:
    x, _, ids, counts = rows_and_counts(4)
    with pytest.warns(UserWarning, match=message):
        NTMPClassifier(**settings).fit(x, ids, counts, unlabeled=x[::2], prior=0.4)


@pytest.mark.parametrize(
    "settings", [{"model": "mlp", "epochs": 1}, {"estimator": DecisionTreeClassifier(max_depth=2)}]
)
def test_columns_whose_digits_are_lost_in_32_bits_are_named(settings) -> None:
    x, _, ids, counts = rows_and_counts(4)
    model = NTMPClassifier(**settings)
    with pytest.warns(
        UserWarning, match="lose the digits of columns 1 of X: subtract their means, or scale X"
    ) as caught:
        model.fit(x + np.array([100.0, 1.7e9, 0.0]), ids, counts, unlabeled=x[::2], prior=0.4)
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.parametrize("model", ["linear", *(pytest.param(m, marks=pytest.mark.slow) for m in ("trees", "auto"))])
def test_learners_for_tables_keep_the_digits_of_time_stamps(model) -> None:
    """Multiples of 2⁻²⁰ are exact in 64 bits after 10⁹ is added, and not in 32."""
    x, _, ids, counts = rows_and_counts(4)
    x = np.round(x * 2**20) / 2**20
    moved = x + 1e9
    near, far = (NTMPClassifier(model=model).fit(rows, ids, counts) for rows in (x, moved))
    z = near.decision_function(x), far.decision_function(moved)
    if model == "linear":
        np.testing.assert_allclose(*z, atol=1e-3 * np.ptp(z[0]))
    assert np.corrcoef(*z)[0, 1] > 0.97  # LightGBM has a bin of its own for 0


def test_rows_in_32_bits_give_what_the_same_rows_in_64_bits_give() -> None:
    x, _, ids, counts = rows_and_counts(4)
    single = x.astype(np.float32)
    fitted = [NTMPClassifier(model="linear").fit(rows, ids, counts) for rows in (single, single.astype(np.float64))]
    assert fitted[0].to_bytes() == fitted[1].to_bytes()


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_numbers_beyond_the_range_of_32_bits_are_refused(model) -> None:
    with pytest.raises(DataError, match="X has numbers beyond the range of 32-bit floats"):
        NTMPClassifier(model=model).fit(np.array([[1e39], [0.0]]), [0, 1], [0, 1])


def test_counts_of_several_classes_are_refused() -> None:
    x, _, ids, counts = rows_and_counts(3)
    with pytest.raises(DataError) as error:
        NTMPClassifier().fit(x, ids, np.stack([counts, 5 - counts, 0 * counts], axis=1))
    assert error.value.hint is not None
    assert error.value.hint.startswith("ntmp is binary: one count per tuple")


# Laws of noise --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [0, pytest.param(60, marks=pytest.mark.slow)])
def test_a_law_of_noise_is_estimated_beside_exact_labels(labelled: int) -> None:
    """Labelled rows are exact: taken for noisy counts without noise, they would pull the estimate down."""
    rng, n = np.random.default_rng(3), 10
    x = rng.normal(size=(300 * n, 3))
    y = rng.random(len(x)) < 1 / (1 + np.exp(0.5 - 2.5 * x[:, 0] + 1.5 * x[:, 1]))
    counts = y.reshape(-1, n).sum(axis=1) + rng.normal(0, 2, 300)
    labels = np.where(np.arange(len(x)) < labelled, y, np.nan)
    model = NTMPClassifier(model="linear", count_law="gaussian:auto")
    model.fit(x, np.repeat(np.arange(300), n), counts, labels=labels if labelled else None)
    low, high = model.count_law_intervals_["sd"]
    assert low < float(model.count_law_.removeprefix("gaussian:")) < high
    assert 1.5 < low < 2.3
    assert 1.7 < high < 2.7


def test_a_parameter_that_is_not_estimated_is_named() -> None:
    with pytest.raises(UsageError, match=r"count law 'round:auto': step is not estimated"):
        NTMPClassifier(count_law="round:auto").fit(np.zeros((4, 1)), [0, 0, 1, 1], [0, 2])


def grouped(rng, rates, size=5):
    """Rows of tuples with these rates, their labels, and one id per row."""
    y = np.concatenate([np.arange(size) < round(size * rate) for rate in rates])
    x = np.column_stack([y + rng.normal(0, 0.8, len(y)), rng.normal(size=len(y))])
    return x, y, np.repeat(np.arange(len(rates)), size)


@pytest.mark.parametrize("model", ["linear", "trees"])
def test_weights_of_tuples_do_not_move_the_prior(model):
    """Tuples of a low rate count ten times: probabilities are still those at the prior of the pool."""
    rng = np.random.default_rng(0)
    rates = np.tile([0.2, 0.8], 100)
    x, _, ids = grouped(rng, rates)
    pool, _, _ = grouped(rng, np.full(200, 0.4))
    model = NTMPClassifier(model=model, random_state=0)
    model.fit(x, ids, rates * 5, unlabeled=pool, prior=0.4, sample_weight=np.where(rates < 0.5, 10.0, 1.0))
    assert model.predict_proba(pool)[:, 1].mean() == pytest.approx(0.4, abs=0.05)


def test_a_series_by_tuple_is_read_by_its_index():
    pandas = pytest.importorskip("pandas")
    x, y, ids = grouped(np.random.default_rng(1), np.tile([0.2, 0.8, 0.4], 30))
    order = np.random.default_rng(2).permutation(90)
    rows = np.concatenate([np.flatnonzero(ids == t) for t in order])
    x, y, names = x[rows], y[rows], np.array([f"t{t:03d}" for t in ids[rows]])
    by_id = pandas.Series(y.astype(int)).groupby(names).sum()  # sorted by id, not in order of appearance
    coef = [NTMPClassifier(model="linear").fit(x, names, counts).coef_ for counts in (by_id, by_id.to_dict())]
    np.testing.assert_array_equal(*coef)
    with pytest.raises(DataError, match="its index does not hold the ids"):
        NTMPClassifier(model="linear").fit(x, names, by_id.rename(index=lambda name: f"{name}?"))


def test_a_pair_of_equal_ends_keeps_its_digits_and_zeros_do_not_depend_on_the_order():
    groups = TupleRows.of(["a", "a", "b", "b"], 4)
    recorded = groups.counts([(1.23456789, 1.23456789), (0.5, 0.5)], "gaussian:2")
    assert recorded["low"].tolist() == [1.23456789, 0.5]
    sizes = ["a"] * 9 + ["b"] * 9
    one, other = (TupleRows.of(ids, 18).counts({"a": 0, "b": "<5"}, "suppress:5") for ids in (sizes, sizes[::-1]))
    assert sorted(one.tolist()) == sorted(other.tolist())
