"""`ntmp train --warmup teacher --teacher RUN`: a run on frozen features teaches a network on pixels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TRAINING = ("--prior", "0.5", "--trust", "prior", "--epochs", "1", "--json")


@pytest.fixture(scope="module")
def teacher(ntmp_done, tuples, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    ntmp_done("train", "--tuples", tuples, *TRAINING, "--model", "mlp", "--encoder", "pca", "--out", out)
    return out


def test_a_run_on_features_teaches_a_network_on_pixels(ntmp_done, tuples, teacher, tmp_path):
    taught = ("train", "--tuples", tuples, *TRAINING, "--model", "mlp", "--warmup", "teacher", "--teacher", teacher)
    ntmp_done(*taught, "--out", tmp_path / "taught")
    manifest = json.loads((tmp_path / "taught" / "manifest.json").read_text())
    # The teacher is an input, known by its content: no path of this machine is kept.
    sha256 = manifest["config"]["teacher"].removeprefix("sha256:")
    assert [entry["kind"] for entry in manifest["inputs"]] == ["tuples", "run"]
    assert manifest["inputs"][1]["sha256"] == sha256
    assert str(teacher) not in (tmp_path / "taught" / "manifest.json").read_text()
    ntmp_done(*taught, "--out", tmp_path / "taught", "--if-exists", "skip")
    ntmp_done("evaluate", tmp_path / "taught", "--out", tmp_path / "evaluation")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--warmup", "teacher"), "needs the run of a teacher"),
        (("--teacher", "TEACHER"), "has no effect with the warm-up risk"),
        (
            ("--warmup", "teacher", "--teacher", "TEACHER", "--encoder", "pca"),
            "learns from features of the encoder pca",
        ),
        (("--augment", "crop", "--encoder", "pca"), "augment: crop is for networks on images"),
    ],
)
def test_what_cannot_be_taught_or_changed_is_refused(ntmp, tuples, teacher, tmp_path, words, message):
    named = [str(teacher) if word == "TEACHER" else word for word in words]
    ended = ntmp("train", "--tuples", tuples, *TRAINING, "--model", "mlp", *named, "--out", tmp_path / "out")
    assert ended.code == 2
    assert message in ended.err
    assert not (tmp_path / "out").exists()


def test_a_teacher_that_does_not_exist_is_refused(ntmp, tuples, tmp_path):
    words = ("--warmup", "teacher", "--teacher", tmp_path / "nothing", "--out", tmp_path / "out")
    ended = ntmp("train", "--tuples", tuples, *TRAINING, "--model", "mlp", *words)
    assert ended.code in (2, 3)
    assert "nothing" in ended.err
    assert not (tmp_path / "out").exists()
