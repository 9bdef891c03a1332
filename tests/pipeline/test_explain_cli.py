"""`ntmp explain` as a user runs it: a table of one's own, images, and what is refused."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import own_data
import pytest


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done) -> Path:
    folder = own_data.write_csv(tmp_path_factory.mktemp("explain"))
    ntmp_done("import-tuples", folder / "tuples.csv", "--unlabeled", folder / "unlabeled.csv", "--out", folder / "t")
    words = ("--tuples", folder / "t", "--prior", own_data.PRIOR)
    ntmp_done("train", *words, "--model", "linear", "--out", folder / "linear")
    ntmp_done("train", *words, "--model", "mlp", "--epochs", 3, "--out", folder / "mlp")
    return folder


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_every_column_of_a_table_has_an_importance(model, work, tmp_path, ntmp_done):
    out = tmp_path / "e"
    ended = ntmp_done("explain", work / model, "--tuples", work / "t", "--repeats", 2, "--out", out, "--json")
    names = {row["name"] for row in ended.json["features"]}
    assert names == set(own_data.FEATURES)
    rows = list(csv.DictReader((out / "importance.csv").read_text().splitlines()))
    losses = [float(row["loss"]) for row in rows]
    assert losses == sorted(losses, reverse=True)
    assert all(float(row["lower"]) <= float(row["loss"]) <= float(row["upper"]) for row in rows)
    # All tuples judge a learner for tables, fold by fold; a network only those that were held out.
    assert ended.json["tuples"] == (50 if model == "linear" else 5)
    assert {path.name for path in out.iterdir()} == {
        *("explanation.json", "explanation.md", "explanation.png", "explanation.svg"),
        *("importance.csv", "manifest.json"),
    }


def test_the_same_seed_gives_the_same_bytes(work, tmp_path, ntmp_done):
    for name in "ab":
        ntmp_done("explain", work / "mlp", "--tuples", work / "t", "--out", tmp_path / name)
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()


@pytest.mark.slow
def test_of_images_there_is_a_map(tuples, tmp_path, ntmp_done):
    ntmp_done("train", "--tuples", tuples, "--epochs", 1, "--out", tmp_path / "r")
    ntmp_done("explain", tmp_path / "r", "--tuples", tuples, "--out", tmp_path / "e")
    saliency = np.array(json.loads((tmp_path / "e" / "explanation.json").read_text())["map"])
    assert saliency.shape == (8, 8)
    assert (saliency >= 0).all()
    assert saliency.max() > 0


def test_other_tuples_are_refused(work, tuples, tmp_path, ntmp):
    ended = ntmp("explain", work / "mlp", "--tuples", tuples, "--out", tmp_path / "e")
    assert (ended.code, ended.err) == (
        2,
        f"error: {work / 'mlp'}: was not trained on {tuples}\nPass the tuples that the run was trained on.\n",
    )


def test_without_held_out_tuples_a_network_cannot_be_judged(work, tmp_path, ntmp, ntmp_done):
    words = ("--unlabeled", work / "unlabeled.csv", "--heldout-share", 0)
    ntmp_done("import-tuples", work / "tuples.csv", *words, "--out", tmp_path / "t")
    ntmp_done(
        "train", "--tuples", tmp_path / "t", "--prior", 0.6, "--model", "mlp", "--epochs", 1, "--out", tmp_path / "r"
    )
    ended = ntmp("explain", tmp_path / "r", "--tuples", tmp_path / "t", "--out", tmp_path / "e")
    assert ended.code == 2
    assert "has no held-out tuples" in ended.err
    assert not (tmp_path / "e").exists()
