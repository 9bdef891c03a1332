"""Tuples without an unlabeled pool: imported, learned from, predicted with and audited; what needs a pool says so."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import own_data
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.stored_tuples import StoredTuples


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done) -> Path:
    """Tables, their tuples without the pool, and a run of the default learner."""
    folder = own_data.write_csv(tmp_path_factory.mktemp("no-pool"))
    ntmp_done("import-tuples", folder / "tuples.csv", "--test", folder / "test.csv", "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--out", folder / "run")
    return folder


def test_every_format_is_imported_without_unlabeled_rows(work, tmp_path, ntmp_done):
    c = own_data.cases()
    ids = np.array([f"t{t}" for t in c.tuple_id])
    np.savez(tmp_path / "a.npz", x=c.x, tuple_id=ids, count=c.count)
    pq.write_table(own_data.tables()["tuples"], tmp_path / "p.parquet")
    for name in ("a.npz", "p.parquet"):
        made = ntmp_done("import-tuples", tmp_path / name, "--out", tmp_path / f"{name}-t", "--json").json
        assert (made["tuples"], made["unlabeled"]) == ({"train": 45, "heldout": 5}, {"train": 0})
    tuples = open_artifact(work / "t", "tuples")
    assert not [entry.path for entry in tuples.manifest.files if "unlabeled" in entry.path]
    assert tuples.summary.unlabeled.train == 0
    heldout = StoredTuples(tuples).heldout()
    assert heldout is not None
    assert (len(heldout.sizes), heldout.unlabeled.shape) == (5, (0, 6))
    first, second = (
        {entry.sha256 for entry in open_artifact(path).manifest.files if entry.path.endswith("tuples-00000.h5")}
        for path in (work / "t", tmp_path / "a.npz-t")
    )
    assert first == second


def test_a_folder_of_images_is_imported_without_unlabeled_images(tmp_path, ntmp, ntmp_done):
    folder = own_data.write_pictures(tmp_path)
    shutil.rmtree(folder / "tuples" / "unlabeled")
    made = ntmp_done("import-tuples", folder / "tuples", "--out", tmp_path / "t", "--json").json
    assert (made["tuples"], made["unlabeled"]) == ({"train": 27, "heldout": 3}, {"train": 0})
    ended = ntmp("train", "--tuples", tmp_path / "t", "--prior", 0.5, "--out", tmp_path / "r")
    assert (ended.code, ended.err) == (2, needs_a_pool(tmp_path / "t", "a network (model mlp, method count)"))


def test_tables_are_learned_from_predicted_evaluated_and_audited_without_a_pool(work, tmp_path, ntmp_done):
    run = open_artifact(work / "run", "run").summary
    assert run.prior_source == "tuples"
    assert run.prior == pytest.approx(own_data.cases().y.mean())
    ntmp_done("predict", work / "run", work / "test.csv", "--out", tmp_path / "p.csv")
    scores = pacsv.read_csv(tmp_path / "p.csv")["score"].to_numpy()
    assert roc_auc_score(own_data.cases().y_test, scores) > 0.9
    ntmp_done("evaluate", work / "run", "--out", tmp_path / "e")
    facts = ntmp_done("audit", "--tuples", work / "t", "--run", work / "run", "--out", tmp_path / "a", "--json").json
    assert facts["after_training"]["tuples_judged"] == 50
    assert facts["after_training"]["drift"] is None
    low, high = facts["after_training"]["expected"]["auroc"]["ci"]
    assert low <= roc_auc_score(own_data.cases().y_test, scores) <= high
    shown = ntmp_done("audit", "--tuples", work / "t", "--run", work / "run").out
    assert "drift of U          unknown, there is no unlabeled pool" in shown
    assert "expected auroc" in shown


def test_an_audit_before_training_says_that_there_is_no_pool(work, ntmp_done):
    facts = ntmp_done("audit", "--tuples", work / "t", "--prior", 0.5, "--json").json["before_training"]
    assert facts["identifiable"] is None
    assert facts["advice"] == [
        "There is no unlabeled pool: the classifier learns from the counts alone, and drift cannot be tested."
    ]


def test_audits_of_tuples_of_which_none_were_held_out_name_every_tuple(work, tmp_path, ntmp_done):
    words = ("--heldout-share", 0, "--out", tmp_path / "t")
    ntmp_done("import-tuples", work / "tuples.csv", *words)
    ntmp_done("train", "--tuples", tmp_path / "t", "--model", "linear", "--out", tmp_path / "r")
    ntmp_done("audit", "--tuples", tmp_path / "t", "--run", tmp_path / "r", "--out", tmp_path / "a")
    rows = (tmp_path / "a" / "tuples.csv").read_text().splitlines()[1:]
    assert {row.split(",")[2] for row in rows} == {f"t{t}" for t in range(50)}


def needs_a_pool(tuples: Path, what: str) -> str:
    return (
        f"error: {tuples}: there is no unlabeled pool, and {what} needs one\n"
        "Import with --unlabeled FILE; on tables, --method count with --model auto, linear or trees needs none.\n"
    )


@pytest.mark.parametrize("prior", [(), ("--prior", 0.5)], ids=["no prior", "a prior"])
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--model", "mlp"), "a network (model mlp, method count)"),
        (("--model", "mlp", "--method", "count-plain"), "a network (model mlp, method count-plain)"),
        (("--model", "linear", "--method", "ure"), "a network (model linear, method ure)"),
        (("--method", "discriminant"), "method discriminant"),
    ],
)
def test_trainings_that_need_a_pool_say_so(words, what, prior, work, tmp_path, ntmp):
    ended = ntmp("train", "--tuples", work / "t", *words, *prior, "--out", tmp_path / "r")
    assert (ended.code, ended.err) == (2, needs_a_pool(work / "t", what))
    assert list(tmp_path.iterdir()) == []


def test_a_prior_is_estimated_of_a_pool_only(work, tmp_path, ntmp):
    ended = ntmp("estimate-prior", "--tuples", work / "t", "--out", tmp_path / "p")
    assert (ended.code, ended.err) == (
        2,
        f"error: {work}/t: there is no unlabeled pool whose prior could be estimated\n"
        "Import the tuples with unlabeled rows, `ntmp import-tuples … --unlabeled FILE`.\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_a_design_without_a_pool_assumes_one_and_says_so(work, ntmp, ntmp_done):
    """What a range or noise costs needs no pool."""
    design = ("design", "--tuples", work / "t")
    facts = ntmp_done(*design, "--count-law", "gaussian:1", "--json").json
    assert "without an unlabeled pool: one of as many rows is assumed" in facts["source"]
    assert facts["prior_from"] == "the rate of the tuples, because there is no pool"
    assert facts["unlabeled"] == facts["instances"]
    assert 0 < facts["recording"]["share_of_exact"] < 1
    facts = ntmp_done(*design, "--prior", 0.4, "--json").json
    assert (facts["prior"], facts["prior_from"], facts["recording"]) == (0.4, "given", None)


def test_a_design_of_noisy_counts_shows_short_numbers(tmp_path, ntmp_done):
    lines = [f"t{i // 3},{1 + (i // 3) / 7},{i % 7},{i % 5}" for i in range(60)]
    (tmp_path / "t.csv").write_text("tuple_id,count,a,b\n" + "\n".join(lines) + "\n")
    ntmp_done("import-tuples", tmp_path / "t.csv", "--count-law", "gaussian:2", "--out", tmp_path / "t")
    shown = ntmp_done("design", "--tuples", tmp_path / "t").out
    assert re.search(r"\(3,\d\.\d{1,3}\) ×", shown)
    assert "If counts are recorded as gaussian:2" in shown


def test_half_positive_tuples_without_a_pool_tell_no_class_from_the_other(tmp_path, ntmp, ntmp_done):
    lines = [f"t{i // 2},1,{i % 7},{i % 5}" for i in range(60)]
    (tmp_path / "t.csv").write_text("tuple_id,count,a,b\n" + "\n".join(lines) + "\n")
    imported = ntmp_done("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    warning = "every tuple is half positive, and there is no unlabeled pool: the classes cannot be separated"
    assert warning in imported.err
    assert ntmp("train", "--tuples", tmp_path / "t", "--out", tmp_path / "r").code == 4
