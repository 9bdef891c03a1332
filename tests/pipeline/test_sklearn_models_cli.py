"""`--model sklearn:PACKAGE.CLASS`: trained from counts, used by predict, evaluate and audit, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import own_data
import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.scores import read_scores

LOGISTIC = ("--model", "sklearn:linear_model.LogisticRegression", "--set", "estimator.C=0.5")


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done):
    folder = own_data.write_csv(own_data.write_parquet(tmp_path_factory.mktemp("work")))
    files = ("--unlabeled", folder / "unlabeled.csv", "--test", folder / "test.csv")
    ntmp_done("import-tuples", folder / "tuples.csv", *files, "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--prior", own_data.PRIOR, *LOGISTIC, "--out", folder / "run")
    return folder


def test_a_run_says_what_was_trained(work):
    summary = open_artifact(work / "run").summary
    assert summary.learner == "estimator"
    assert summary.model == "sklearn:linear_model.LogisticRegression"
    assert json.loads((work / "run" / "manifest.json").read_text())["config"]["estimator"] == {"C": 0.5}


def test_equal_seeds_give_equal_runs(work, tmp_path, ntmp_done):
    forest = ("--model", "sklearn:ensemble.RandomForestClassifier", "--set", "estimator.n_estimators=4")
    for name in ("a", "b"):
        ntmp_done("train", "--tuples", work / "t", "--prior", 0.5, *forest, "--out", tmp_path / name)
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()


def test_predict_scores_rows_as_the_training_did(work, tmp_path, ntmp_done):
    ntmp_done("predict", work / "run", work / "test.csv", "--out", tmp_path / "p.csv")
    scored = np.genfromtxt(tmp_path / "p.csv", delimiter=",", names=True)
    assert np.allclose(scored["score"], read_scores(open_artifact(work / "run"))["test"], atol=1e-5)


def test_audit_and_evaluate_take_the_run(work, tmp_path, ntmp_done):
    ntmp_done("audit", "--tuples", work / "t", "--run", work / "run", "--out", tmp_path / "audit")
    assert open_artifact(tmp_path / "audit").manifest.kind == "audit"
    ntmp_done("evaluate", work / "run", "--out", tmp_path / "e")


def test_export_says_that_it_cannot(work, tmp_path, ntmp):
    result = ntmp("export", work / "run", "--out", tmp_path / "x")
    assert result.code == 2
    assert "a classifier of scikit-learn cannot be exported" in result.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--model", "sklearn:svm.LinearSVC"), "LinearSVC cannot learn from counts: it has no predict_proba"),
        (("--model", "sklearn:linear_model.Logistic"), "sklearn.linear_model has no classifier Logistic"),
        ((*LOGISTIC[:2], "--set", "estimator.c=1"), "estimator.c: LogisticRegression has no such parameter"),
        ((*LOGISTIC[:2], "--set", "estimator.C=-1"), "LogisticRegression cannot be fitted: The 'C' parameter"),
        ((*LOGISTIC, "--method", "ure"), "needs method count"),
        (("--model", "mlp", "--set", "estimator.C=1"), "estimator: model mlp has no such parameters"),
    ],
)
def test_what_cannot_be_trained_is_refused(words, message, work, tmp_path, ntmp):
    result = ntmp("train", "--tuples", work / "t", "--prior", 0.5, *words, "--out", tmp_path / "r")
    assert result.code == 2
    assert message in " ".join(result.err.split())
    assert not (tmp_path / "r").exists()


def test_a_run_whose_classifier_was_exchanged_is_refused(work, tmp_path, ntmp):
    shutil.copytree(work / "run", tmp_path / "run")
    (tmp_path / "run" / "estimator.skops").write_bytes(b"PK")
    result = ntmp("predict", tmp_path / "run", work / "test.csv", "--out", tmp_path / "p.csv")
    assert result.code == 3
