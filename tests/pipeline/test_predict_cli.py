"""New rows through a run: scores in order, probabilities at a prior, posteriors given counts, and what is refused."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import own_data
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from scipy.special import expit, logit
from sklearn.metrics import log_loss

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import PredictConfig
from ntmp_cli.stages.predict import PredictOptions, predict_rows

LINEAR = ("--model", "linear", "--epochs", 2, "--select", "last")


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done) -> Path:
    """A folder of tables and a run trained on them, whose test rows the training has scored itself."""
    folder = own_data.write_csv(own_data.write_parquet(tmp_path_factory.mktemp("work")))
    files = ("--unlabeled", folder / "unlabeled.csv", "--test", folder / "test.csv")
    ntmp_done("import-tuples", folder / "tuples.csv", *files, "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--prior", own_data.PRIOR, "--out", folder / "run")
    return folder


def test_scores_are_those_of_the_training_on_the_same_rows(work, tmp_path, ntmp_done):
    facts = ntmp_done("predict", work / "run", work / "test.csv", "--out", tmp_path / "p.csv", "--json").json
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    assert predicted.column_names == ["id", "score", "probability", "label"]
    expected = read_scores(open_artifact(work / "run"))["test"]
    scores = predicted["score"].to_numpy()
    assert np.allclose(scores, expected, atol=1e-5)
    assert predicted["id"].to_pylist() == list(range(119))
    assert facts["calibration"] == "fitted"
    assert np.allclose(predicted["probability"].to_numpy(), expit(scores / facts["temperature"]), atol=1e-6)
    assert np.array_equal(predicted["label"].to_numpy(), predicted["probability"].to_numpy() >= 0.5)
    assert facts == {
        **{"kind": "prediction", "out": str(tmp_path / "p.csv"), "run_sha256": open_artifact(work / "run").sha256},
        **{"rows": 119, "positive": int(predicted["label"].to_numpy().sum())},
        **{"prior": own_data.PRIOR, "with_counts": False},
        **{"temperature": facts["temperature"], "calibration": "fitted", "withheld": None},
        **{"threshold": {"rule": "prior", "probability": 0.5, "posterior": None}, "expected": facts["expected"]},
    }


def test_a_run_on_a_table_has_its_pool_as_predict_scores_it(work, tmp_path, ntmp_done):
    """Thresholds of the fits of folds are matched with those of the classifier by it."""
    ntmp_done("predict", work / "run", work / "unlabeled.csv", "--out", tmp_path / "p.csv")
    scores = read_scores(open_artifact(work / "run"))
    predicted = pacsv.read_csv(tmp_path / "p.csv")["score"].to_numpy()
    assert np.allclose(np.sort(scores["pool_by_classifier"]), np.sort(predicted), atol=1e-5)
    assert not np.allclose(scores["pool_by_classifier"], scores["pool"], atol=0.01)
    assert np.corrcoef(scores["pool_by_classifier"], scores["pool"])[0, 1] > 0.9


def test_a_deployment_prior_moves_log_odds(work, tmp_path, ntmp_done):
    words = ("--prior", 0.1, "--out", tmp_path / "p.parquet", "--json")
    temperature = ntmp_done("predict", work / "run", work / "test.csv", *words).json["temperature"]
    predicted = pq.read_table(tmp_path / "p.parquet")
    log_odds = predicted["score"].to_numpy().astype(float) / temperature
    expected = expit(log_odds + logit(0.1) - logit(own_data.PRIOR))
    assert np.allclose(predicted["probability"].to_numpy(), expected)


def test_formats_blocks_and_pipes_give_the_same_table(work, tmp_path, ntmp_done):
    ntmp_done("predict", work / "run", work / "test.csv", "--out", tmp_path / "a.csv")
    ntmp_done("predict", work / "run", work / "test.parquet", "--out", tmp_path / "b.csv")
    predict_rows(PredictConfig(), work / "run", work / "test.csv", tmp_path / "c.csv", PredictOptions(block_bytes=700))
    words = [sys.executable, "-m", "ntmp_cli", "predict", str(work / "run"), "-", "--out", "-"]
    piped = subprocess.run(words, input=(work / "test.csv").read_bytes(), capture_output=True, check=True)
    tables = [pacsv.read_csv(tmp_path / f"{name}.csv") for name in "abc"] + [
        pacsv.read_csv(pa.BufferReader(piped.stdout))
    ]
    for table in tables[1:]:
        assert table["id"].to_pylist() == tables[0]["id"].to_pylist()
        assert np.allclose(table["score"].to_numpy(), tables[0]["score"].to_numpy(), atol=1e-5)
        assert table["label"].to_pylist() == tables[0]["label"].to_pylist()


def test_a_pattern_of_files_is_scored_as_one_table(work, tmp_path):
    lines = (work / "test.csv").read_text().splitlines(keepends=True)
    middle = len(lines) // 3
    (tmp_path / "a.csv").write_text("".join(lines[:middle]))
    (tmp_path / "b.csv").write_text("".join([lines[0], *lines[middle:]]))
    for name, source in (("whole", work / "test.csv"), ("pattern", tmp_path / "[ab].csv")):
        predict_rows(PredictConfig(), work / "run", source, tmp_path / f"{name}.parquet")
    whole, pattern = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("whole", "pattern"))
    assert pattern["id"].to_pylist() == whole["id"].to_pylist()
    assert np.allclose(pattern["score"].to_numpy(), whole["score"].to_numpy(), atol=1e-5)


def test_columns_may_come_in_another_order_and_beside_others(work, tmp_path, ntmp_done):
    table = pq.read_table(work / "test.parquet")
    names = [*reversed(table.column_names)]
    moved = table.select(names).append_column("remark", pa.array(["hello, world"] * len(table)))
    pq.write_table(moved, tmp_path / "moved.parquet")
    ntmp_done("predict", work / "run", tmp_path / "moved.parquet", "--out", tmp_path / "moved.csv")
    ntmp_done("predict", work / "run", work / "test.parquet", "--out", tmp_path / "plain.csv")
    assert (tmp_path / "moved.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()


def test_rows_without_ids_are_numbered(work, tmp_path, ntmp_done):
    ntmp_done("predict", work / "run", work / "unlabeled.csv", "--out", tmp_path / "p.csv")
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    assert predicted.column_names == ["row", "score", "probability", "label"]
    assert predicted["row"].to_pylist() == list(range(1, 201))


def test_with_counts_gives_the_exact_posterior(work, tmp_path, ntmp_done):
    words = ("--with-counts", "--out", tmp_path / "p.csv", "--json")
    temperature = ntmp_done("predict", work / "run", work / "tuples.csv", *words).json["temperature"]
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    assert predicted.column_names == ["tuple_id", "count", "score", "probability", "posterior", "label"]
    owner, count = np.array(predicted["tuple_id"].to_pylist()), predicted["count"].to_numpy()
    z, posterior = predicted["score"].to_numpy().astype(float) / temperature, predicted["posterior"].to_numpy()
    for t in np.unique(owner):
        rows = np.flatnonzero(owner == t)
        (m,) = set(count[rows])
        # Brute force over all ways to place m positives among the members.
        weights = np.zeros(5)
        for chosen in itertools.combinations(range(5), int(m)):
            weights[list(chosen)] += np.exp(z[rows[list(chosen)]].sum())
        whole = sum(np.exp(z[rows[list(c)]].sum()) for c in itertools.combinations(range(5), int(m)))
        assert np.allclose(posterior[rows], weights / whole, atol=1e-4)
        assert np.isclose(posterior[rows].sum(), m, atol=1e-6)
    assert np.array_equal(predicted["label"].to_numpy(), posterior >= 0.5)


def test_costs_label_posteriors_and_rows_without_a_count_by_two_thresholds(work, tmp_path, ntmp_done):
    header, *rows = (work / "tuples.csv").read_text().splitlines()
    lone = [",".join(["", "", *row.split(",")[2:]]) for row in rows]
    (tmp_path / "in.csv").write_text("\n".join([header, *rows, *lone]) + "\n")
    words = ("predict", work / "run", tmp_path / "in.csv", "--with-counts", "--threshold", "cost=9:1")
    facts = ntmp_done(*words, "--out", tmp_path / "p.csv", "--json").json
    above = facts["threshold"]["probability"]
    assert facts["threshold"] == {"rule": "cost=9:1", "probability": above, "posterior": 0.1}
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    with_count, without = predicted.slice(0, len(rows)), predicted.slice(len(rows))
    posterior, probability = with_count["posterior"].to_numpy(), without["probability"].to_numpy()
    assert ((posterior > 0.1) & (posterior < 0.5)).any()
    assert np.array_equal(with_count["label"].to_numpy(), posterior >= 0.1)
    assert np.array_equal(without["label"].to_numpy(), probability >= above)
    shown = " ".join(ntmp_done(*words, "--out", tmp_path / "q.csv").out.split())
    assert f"posterior 0.1 for rows with a count, probability {above:.4g} for rows without (cost=9:1)" in shown


def test_posteriors_do_not_depend_on_how_many_are_computed_at_once(work, tmp_path, monkeypatch):
    read = []
    for name, rows in (("all", 2**18), ("few", 50)):
        monkeypatch.setattr("ntmp_cli.evaluation.row_posteriors.POSTERIOR_ROWS", rows)
        out = tmp_path / f"{name}.parquet"
        predict_rows(PredictConfig(with_counts=True), work / "run", work / "tuples.csv", out)
        read.append(pq.read_table(out))
    assert read[0].drop_columns(["posterior"]).equals(read[1].drop_columns(["posterior"]))
    np.testing.assert_allclose(*(np.asarray(table["posterior"]) for table in read), rtol=1e-9)


def test_rows_without_tuple_have_no_posterior_but_a_probability(work, tmp_path, ntmp_done):
    text = (work / "tuples.csv").read_text().splitlines()
    header, *rows = text
    lone = ",".join(["", "", *rows[0].split(",")[2:]])
    (tmp_path / "in.csv").write_text("\n".join([header, *rows, lone]) + "\n")
    ntmp_done("predict", work / "run", tmp_path / "in.csv", "--with-counts", "--out", tmp_path / "p.csv")
    last = pacsv.read_csv(tmp_path / "p.csv").slice(250).to_pylist()[0]
    assert last["posterior"] is None
    assert 0 < last["probability"] < 1


def test_missing_values_and_new_categories_are_scored(tmp_path, ntmp_done):
    lines = ["tuple_id,count,size,colour", *(f"t{i // 3},1,{i % 7},{'red' if i % 2 else 'blue'}" for i in range(90))]
    lines += [f",,{i % 5},blue" for i in range(30)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    ntmp_done("import-tuples", tmp_path / "t.csv", "--categorical", "colour", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--prior", 0.5, *LINEAR, "--out", tmp_path / "r")
    (tmp_path / "new.csv").write_text("id,colour,size\na,green,\nb,,3\nc,red,2\n")
    ntmp_done("predict", tmp_path / "r", tmp_path / "new.csv", "--out", tmp_path / "p.csv")
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    assert predicted["id"].to_pylist() == ["a", "b", "c"]
    assert np.isfinite(predicted["score"].to_numpy()).all()


# --- runs on simulated tuples -----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("--model", "mlp"), ("--encoder", "pca"), ("--encoder", "random")], ids=lambda w: w[1]
)
def test_runs_on_simulated_images_take_arrays(words, tuples, tmp_path, ntmp_done):
    ntmp_done("train", "--tuples", tuples, "--prior", 0.5, "--epochs", 1, *words, "--out", tmp_path / "r")
    instances = open_artifact(tuples).file("test.h5")
    with h5py.File(instances) as file:
        x = file["instances"][()]
    np.savez(tmp_path / "x.npz", x=x, id=np.arange(len(x)))
    np.save(tmp_path / "x.npy", x[:, 0])  # gray images need no channel
    expected = read_scores(open_artifact(tmp_path / "r"))["test"]
    for name in ("x.npz", "x.npy"):
        ntmp_done("predict", tmp_path / "r", tmp_path / name, "--out", tmp_path / f"{name}.csv")
        scores = pacsv.read_csv(tmp_path / f"{name}.csv")["score"].to_numpy()
        assert np.allclose(scores, expected, atol=1e-4)


@pytest.mark.parametrize("method", ["discriminant", "attention-mil", "kmeans", "uu"])
def test_every_kind_of_method_is_rebuilt(method, tmp_path, ntmp_done):
    data = "gaussians:size=400,test=50"
    ntmp_done("make-tuples", "--dataset", data, "--prior", 0.6, "--num-tuples", 60, "--out", tmp_path / "t")
    words = ("--prior", 0.6, "--epochs", 1, "--method", method)
    ntmp_done("train", "--tuples", tmp_path / "t", *words, "--out", tmp_path / "r")
    with h5py.File(tmp_path / "t" / "test.h5") as file:
        np.save(tmp_path / "x.npy", file["instances"][()])
    ntmp_done("predict", tmp_path / "r", tmp_path / "x.npy", "--out", tmp_path / "p.csv")
    expected = read_scores(open_artifact(tmp_path / "r"))["test"]
    assert np.allclose(pacsv.read_csv(tmp_path / "p.csv")["score"].to_numpy(), expected, atol=1e-4)


def test_a_run_on_pictures_takes_a_folder_of_pictures(tmp_path, ntmp, ntmp_done):
    folder = own_data.write_pictures(tmp_path)
    ntmp_done(
        "import-tuples", folder / "tuples", "--test", folder / "test", "--positive", "even", "--out", tmp_path / "t"
    )
    ntmp_done("train", "--tuples", tmp_path / "t", "--prior", 0.5, *LINEAR, "--out", tmp_path / "r")
    ntmp_done("predict", tmp_path / "r", folder / "test", "--out", tmp_path / "p.csv")
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    files = sorted((folder / "test").rglob("*.png"))
    assert predicted["path"].to_pylist() == [file.relative_to(folder / "test").as_posix() for file in files]
    expected = read_scores(open_artifact(tmp_path / "r"))["test"]
    assert np.allclose(predicted["score"].to_numpy(), expected, atol=1e-4)
    (folder / "test" / "odd" / "zzz.png").write_bytes(b"broken")
    ended = ntmp("predict", tmp_path / "r", folder / "test", "--out", tmp_path / "q.csv")
    assert ended.code == 3
    assert f"  {folder}/test/odd/zzz.png: not an image of a known format\n" in ended.err
    assert not (tmp_path / "q.csv").exists()


# --- calibration by counts --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory, ntmp_done) -> Path:
    """Enough held-out tuples for a temperature, and a run by the sigmoid loss, whose scores are no log-odds."""
    folder = tmp_path_factory.mktemp("many")
    data = "gaussians:size=3000,test=2000"
    ntmp_done("make-tuples", "--dataset", data, "--prior", 0.6, "--num-tuples", 700, "--out", folder / "t")
    words = ("--prior", 0.6, "--epochs", 10, "--method", "ure")
    ntmp_done("train", "--tuples", folder / "t", *words, "--out", folder / "r")
    with h5py.File(folder / "t" / "test.h5") as file:
        np.save(folder / "x.npy", file["instances"][()])
    return folder


def test_probabilities_are_calibrated_by_held_out_counts(many, tmp_path, ntmp_done):
    out = tmp_path / "p.parquet"
    ended = ntmp_done("predict", many / "r", many / "x.npy", "--prior", 0.3, "--out", out, "--json")
    temperature = ended.json["temperature"]
    assert ended.json["calibration"] == "fitted"
    assert f"calibrated by held-out counts: T = {temperature:.3g}" in ended.err
    predicted = pq.read_table(out)
    scores, p = (predicted[name].to_numpy().astype(float) for name in ("score", "probability"))
    assert np.allclose(p, expit(scores / temperature + logit(0.3) - logit(0.6)), atol=1e-6)
    # The temperature is that of evaluate, which is tested against the likelihood itself.
    ntmp_done("evaluate", many / "r", "--out", tmp_path / "e")
    fits = [json.loads(line) for line in (tmp_path / "e" / "temperatures.jsonl").read_text().splitlines()]
    (by_counts,) = [fit["temperature"] for fit in fits if fit["by"] == "counts"]
    assert temperature == by_counts
    # And true labels, which it never saw, are more probable with it than without.
    with h5py.File(many / "t" / "oracle" / "test-labels.h5") as file:
        labels = file["labels"][()].astype(bool)
    ntmp_done("predict", many / "r", many / "x.npy", "--out", out, "--if-exists", "overwrite")
    calibrated = pq.read_table(out)["probability"].to_numpy()
    assert log_loss(labels, calibrated) < log_loss(labels, expit(scores))


def test_posteriors_given_counts_use_the_calibrated_scores(many, tmp_path, ntmp_done):
    x = np.load(many / "x.npy")[:40]
    np.savez(tmp_path / "x.npz", x=x, offsets=np.arange(0, 41, 2), counts=np.ones(20, int))
    out = tmp_path / "p.csv"
    facts = ntmp_done("predict", many / "r", tmp_path / "x.npz", "--with-counts", "--out", out, "--json").json
    predicted = pacsv.read_csv(out)
    z = predicted["score"].to_numpy().astype(float).reshape(-1, 2) / facts["temperature"]
    assert np.allclose(predicted["posterior"].to_numpy().reshape(-1, 2)[:, 0], expit(z[:, 0] - z[:, 1]), atol=1e-5)


@pytest.fixture(scope="module")
def noise(tmp_path_factory, ntmp_done) -> Path:
    """Tuples whose counts have nothing to do with their features, and a run on them."""
    folder = tmp_path_factory.mktemp("noise")
    rng = np.random.default_rng(0)
    counts, cells = rng.integers(0, 4, 40), rng.normal(size=(120, 2))
    lines = [f"t{i // 3},{counts[i // 3]},{a:.4f},{b:.4f}" for i, (a, b) in enumerate(cells)]
    (folder / "tuples.csv").write_text("\n".join(["tuple_id,count,a,b", *lines]) + "\n")
    ntmp_done("import-tuples", folder / "tuples.csv", "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--prior", 0.5, "--model", "linear", "--out", folder / "run")
    return folder


def test_probabilities_that_counts_do_not_confirm_are_withheld(noise, tmp_path, ntmp_done):
    words = ("predict", noise / "run", noise / "tuples.csv", "--with-counts")
    ended = ntmp_done(*words, "--out", tmp_path / "p.csv", "--json")
    always = ntmp_done(*words, "--probabilities", "always", "--out", tmp_path / "q.csv", "--json")
    reason = "cannot be estimated from 40 tuples"
    assert (ended.json["withheld"], always.json["withheld"]) == (reason, None)
    assert ended.json["expected"] == {}  # of labels by counts nothing is known
    plain = ntmp_done(*words[:-1], "--out", tmp_path / "r.csv", "--json")
    assert plain.json["expected"]["accuracy"] == {"value": None, "ci": None, "reason": reason}
    assert ended.err.count(f"probabilities are withheld: their accuracy {reason}") == 1
    assert "withheld" not in always.err
    withheld, written = (pacsv.read_csv(tmp_path / name) for name in ("p.csv", "q.csv"))
    assert withheld.column_names == written.column_names
    for name in ("probability", "posterior"):
        assert withheld[name].null_count == 120
        assert ((written[name].to_numpy() >= 0) & (written[name].to_numpy() <= 1)).all()
    for name in ("tuple_id", "count", "score", "label"):
        assert withheld[name].equals(written[name])
    ntmp_done("predict", noise / "run", noise / "tuples.csv", "--out", tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet")["probability"].null_count == 120
    shown = ntmp_done(*words, "--out", tmp_path / "s.csv").out
    assert f"withheld: {reason}" in " ".join(shown.split())


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "radius,texture,perimeter,area,smoothness\n1,2,3,4,5\n",
            "{i}: has no column 'compactness', which is a feature\n"
            "The columns are radius, texture, perimeter, area, smoothness.\n",
        ),
        (
            "Radius,texture,perimeter,area,smoothness,compactness\n1,2,3,4,5,6\n",
            "{i}: has no column 'radius', which is a feature; did you mean 'Radius'?\n",
        ),
        (
            "radius,texture,perimeter,area,smoothness,compactness\n1,2,3,4,5,6\n1,2,3,4,five,6\n",
            "1 problem in the data, nothing was written\n  {i} row 2, column 'smoothness': 'five' is not a number\n",
        ),
        (
            "radius,texture,perimeter,area,smoothness,compactness\n",
            "{i}: has no rows\nEvery row is one item to score.\n",
        ),
    ],
    ids=["missing", "renamed", "text", "empty"],
)
def test_columns_that_are_missing_renamed_or_wrong_are_named(content, message, work, tmp_path, ntmp):
    (tmp_path / "in.csv").write_text(content)
    ended = ntmp("predict", work / "run", tmp_path / "in.csv", "--out", tmp_path / "p.csv")
    assert ended.code == 3
    assert ended.err.startswith("error: " + message.format(i=tmp_path / "in.csv"))
    assert [p.name for p in tmp_path.iterdir()] == ["in.csv"]


def test_an_existing_table_is_replaced_only_when_asked(work, tmp_path, ntmp, ntmp_done):
    out = tmp_path / "p.csv"
    out.write_text("mine")
    words = ("predict", work / "run", work / "test.csv", "--out", out)
    ended = ntmp(*words)
    assert (ended.code, ended.err) == (
        2,
        f"error: {out}: exists already\nChoose another --out, or pass --if-exists overwrite.\n",
    )
    assert out.read_text() == "mine"
    ntmp_done(*words, "--if-exists", "overwrite")
    assert out.read_text().startswith('"id","score"')
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]


REFUSED = {
    "a name that is no table": (["{w}/test.csv", "--out", "{o}.txt"], 2, "--out {o}.txt: not the name of a table\n"),
    "a folder": (["{w}/test.csv", "--out", "{w}/d.csv"], 2, "--out {w}/d.csv: is a directory\nName a file.\n"),
    "two results on stdout": (["{w}/test.csv", "--out", "-", "--json"], 2, "--json and --out - both write to stdout\n"),
    "an input that is not there": (["{w}/no.csv", "--out", "{o}.csv"], 3, "{w}/no.csv: no such file\n"),
    "counts that are not there": (
        ["{w}/unlabeled.csv", "--with-counts", "--out", "{o}.csv"],
        3,
        "{w}/unlabeled.csv: has no column 'tuple_id', which --with-counts needs\n",
    ),
    "groups that are not there": (
        ["{w}/unlabeled.csv", "--by", "ward", "--out", "{o}.csv"],
        3,
        "{w}/unlabeled.csv: has no column 'ward', which --by names\n",
    ),
    "an array for a table": (
        ["{w}/x.npy", "--out", "{o}.csv"],
        3,
        "{w}/x.npy: an array has columns x0, x1, …, but this run was trained on 6: radius, texture, perimeter, area, ",
    ),
    "a level without groups": (
        ["{w}/test.csv", "--confidence", "0.9", "--out", "{o}.csv"],
        2,
        "configuration: --confidence is the level of intervals of groups: give --by COLUMN with it\n",
    ),
    "a threshold of scores for posteriors": (
        ["{w}/tuples.csv", "--with-counts", "--threshold", "recall=0.9", "--out", "{o}.csv"],
        2,
        "--threshold recall=0.9 and --with-counts: this threshold is chosen for scores, not for posteriors given a ",
    ),
    "a prior out of range": (
        ["{w}/test.csv", "--prior", "1", "--out", "{o}.csv"],
        2,
        "configuration: prior: input shou",
    ),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_what_cannot_be_meant_is_refused(mistake, work, tmp_path, ntmp):
    words, code, message = REFUSED[mistake]
    (work / "d.csv").mkdir(exist_ok=True)
    np.save(work / "x.npy", np.zeros((3, 6)))
    names = {"w": work, "o": tmp_path / "p"}
    ended = ntmp("predict", work / "run", *(word.format(**names) for word in words))
    assert ended.code == code
    assert ended.err.startswith("error: " + message.format(**names))
    assert list(tmp_path.iterdir()) == []


def test_arrays_of_another_shape_or_type_are_refused(study, tmp_path, ntmp):
    for name, x, what in (
        ("wide", np.zeros((2, 9, 8), np.uint8), "1×9×8 uint8"),
        ("float", np.zeros((2, 8, 8)), "1×8×8 float32"),
    ):
        np.save(tmp_path / f"{name}.npy", x)
        ended = ntmp("predict", study.run_abs, tmp_path / f"{name}.npy", "--out", tmp_path / "p.csv")
        assert ended.code == 3
        assert ended.err.startswith(
            f"error: {tmp_path}/{name}.npy: instances of shape {what}, but this run was trained on 1×8×8 uint8\n"
        )
    (tmp_path / "t.csv").write_text("a\n1\n")
    ended = ntmp("predict", study.run_abs, tmp_path / "t.csv", "--out", tmp_path / "p.csv")
    assert ended.code == 2
    assert "this run was not trained on the columns of a table, but on arrays of shape 1×8×8" in ended.err


def test_a_run_whose_weights_do_not_fit_is_refused(work, tmp_path, ntmp):
    shutil.copytree(work / "run", tmp_path / "run")
    with (tmp_path / "run" / "model.safetensors").open("r+b") as file:
        file.seek(-4, 2)
        file.write(b"oops")
    ended = ntmp("predict", tmp_path / "run", work / "test.csv", "--out", tmp_path / "p.csv")
    assert ended.code == 3
    assert "model.safetensors: damaged: its contents do not match the recorded hash" in ended.err


def test_a_run_that_does_not_say_its_task_is_refused_with_advice(work, tmp_path, ntmp):
    shutil.copytree(work / "run", tmp_path / "run")
    manifest = tmp_path / "run" / "manifest.json"
    document = json.loads(manifest.read_text())
    del document["summary"]["task"]
    manifest.write_text(json.dumps(document))
    ended = ntmp("predict", tmp_path / "run", work / "test.csv", "--out", tmp_path / "p.csv")
    assert ended.code == 3
    assert ended.err == (
        f"error: {manifest}: summary.task: field required\n"
        "Make the directory again with `ntmp train`, or restore it from a copy.\n"
    )


# Thresholds and what they are expected to do -------------------------------------------------------


def labelled(run, rule, tmp_path, ntmp_done):
    """Labels of the test rows by a rule, and the facts that were printed."""
    words = (
        "predict",
        run / "run",
        run / "test.csv",
        "--threshold",
        rule,
        "--out",
        tmp_path / f"{rule.replace(chr(58), chr(95))}.csv",
    )
    facts = ntmp_done(*words, "--json").json
    return pacsv.read_csv(tmp_path / f"{rule.replace(chr(58), chr(95))}.csv")["label"].to_numpy(), facts


def test_thresholds_are_chosen_by_counts_and_say_what_they_do(work, tmp_path, ntmp_done):
    truth = own_data.cases().y_test
    labels, facts = {}, {}
    for rule in ("prior", "f1", "recall=0.97", "cost=1:20", "cost=20:1"):
        labels[rule], facts[rule] = labelled(work, rule, tmp_path, ntmp_done)
    assert labels["cost=20:1"].sum() > labels["prior"].sum() > labels["cost=1:20"].sum()
    assert labels["recall=0.97"][truth == 1].mean() > 0.9
    for rule, answer in facts.items():
        low, high = answer["expected"]["accuracy"]["ci"] or (0, 1)
        assert low <= np.mean(labels[rule] == truth) <= high
    shown = ntmp_done("predict", work / "run", work / "test.csv", "--threshold", "f1", "--out", tmp_path / "s.csv").out
    assert "threshold" in shown
    assert "(f1)" in shown
    assert "expected recall" in shown


@pytest.mark.parametrize("rule", ["best", "recall=2", "recall=much", "cost=1", "cost=0:1", "cost=a:b"])
def test_unknown_thresholds_are_refused(rule, work, tmp_path, ntmp):
    ended = ntmp("predict", work / "run", work / "test.csv", "--threshold", rule, "--out", tmp_path / "p.csv")
    assert ended.code == 2
    assert f"--threshold {rule}" in ended.err
    assert "recall=0.95" in ended.err
    assert not (tmp_path / "p.csv").exists()
