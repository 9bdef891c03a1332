"""Artefacts with wrong values and fitting hashes are refused with exit code 3, and nothing is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from forged import arrays_of, change_manifest, copied, rehash, replace_arrays
from safetensors.numpy import load_file, save_file

LABELS = "oracle/test-labels.h5"


@pytest.fixture
def run(study, tmp_path) -> Path:
    return copied(study.run_abs, tmp_path / "run")


@pytest.fixture
def rows(tmp_path) -> Path:
    path = tmp_path / "rows.npy"
    np.save(path, np.random.default_rng(0).integers(0, 16, (20, 1, 8, 8), dtype=np.uint8))
    return path


def refused(ended: Any, where: Path, what: str, out: Path) -> None:
    assert (ended.code, "Traceback" in ended.err) == (3, False), ended.err
    assert f"error: {where}" in ended.err
    assert what in ended.err
    assert not out.exists()


# --- labels and scores --------------------------------------------------------------------------

LABEL_CHANGES: dict[str, Callable[[np.ndarray], Any]] = {
    "five": lambda labels: np.where(np.arange(len(labels)) == 0, 5, labels),
    "negative": lambda labels: labels.astype(np.int8) - 1,
    "NaN": lambda labels: np.where(np.arange(len(labels)) == 0, np.nan, labels),
    "text": lambda labels: np.array(["yes"] * len(labels), dtype="S3"),
    "complex": lambda labels: labels.astype(complex),
    "a table": lambda labels: labels[:, None],
    "gone": lambda labels: None,
}


@pytest.mark.parametrize("change", LABEL_CHANGES)
def test_labels_that_are_not_0_or_1_are_refused(change, run, ntmp, tmp_path):
    labels = arrays_of(run / LABELS)["labels"]
    replace_arrays(run / LABELS, labels=LABEL_CHANGES[change](labels))
    rehash(run)
    refused(ntmp("evaluate", run, "--out", tmp_path / "out"), run / LABELS, "", tmp_path / "out")


def test_labels_of_other_instances_than_the_tuples_have_are_refused(study, ntmp, tmp_path):
    tuples = copied(study.tuples, tmp_path / "tuples")
    replace_arrays(tuples / LABELS, labels=arrays_of(tuples / LABELS)["labels"][:-1])
    rehash(tuples)
    words = ("train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 1, "--out", tmp_path / "run")
    assert ntmp(*words).code == 0  # training never opens labels
    ended = ntmp("evaluate", tmp_path / "run", "--out", tmp_path / "out")
    refused(ended, tmp_path / "run", "test scores but", tmp_path / "out")


SCORE_CHANGES: dict[str, dict[str, Callable[[np.ndarray], Any]]] = {
    "complex": {"test": lambda scores: scores.astype(np.complex64)},
    "infinite": {"test": lambda scores: np.where(np.arange(len(scores)) == 0, np.inf, scores)},
    "NaN held out": {"heldout_tuples": lambda scores: scores * np.nan},
    "fewer": {"test": lambda scores: scores[:-1], "trace": lambda trace: trace[:, :-1]},
    "another trace": {"trace": lambda trace: trace[:, :-1]},
    "sizes": {"heldout_sizes": lambda sizes: sizes + 1},
    "no sizes": {"heldout_sizes": lambda sizes: None},
    "no test": {"test": lambda scores: None},
    "text": {"trace_epochs": lambda epochs: np.array([b"x"] * len(epochs))},
}


@pytest.mark.parametrize("change", SCORE_CHANGES)
@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_scores_that_do_not_fit_or_are_no_numbers_are_refused(change, command, run, rows, ntmp, tmp_path):
    stored = arrays_of(run / "scores.h5")
    replace_arrays(run / "scores.h5", **{name: f(stored[name]) for name, f in SCORE_CHANGES[change].items()})
    rehash(run)
    out = tmp_path / ("out.csv" if command == "predict" else "out")
    words = (command, run, rows) if command == "predict" else (command, run)
    refused(ntmp(*words, "--out", out), run / "scores.h5", "", out)


# --- weights ------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(value, run, rows, ntmp, tmp_path):
    weights = load_file(run / "model.safetensors")
    name = max(weights, key=lambda name: weights[name].size)
    weights[name] = np.full_like(weights[name], value)
    save_file(weights, run / "model.safetensors")
    rehash(run)
    ended = ntmp("predict", run, rows, "--out", tmp_path / "out.csv")
    refused(ended, run, "has values that are not finite", tmp_path / "out.csv")


@pytest.mark.parametrize("part", ["factor", "shift", "weight"])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "float64"])
def test_weights_of_another_type_are_refused(part, dtype, run, rows, ntmp, tmp_path):
    weights = load_file(run / "model.safetensors")
    name = next(name for name in weights if name.endswith(part))
    weights[name] = weights[name].astype(dtype)
    save_file(weights, run / "model.safetensors")
    rehash(run)
    refused(ntmp("predict", run, rows, "--out", tmp_path / "out.csv"), run, "the weights", tmp_path / "out.csv")
    exported = ntmp("export", run, "--format", "torchscript", "--out", tmp_path / "out.pt")
    refused(exported, run, "the weights", tmp_path / "out.pt")


def test_weights_whose_scores_overflow_are_refused(run, rows, ntmp, tmp_path):
    weights = load_file(run / "model.safetensors")
    save_file({name: np.full_like(values, 3e38) for name, values in weights.items()}, run / "model.safetensors")
    rehash(run)
    ended = ntmp("predict", run, rows, "--out", tmp_path / "out.csv")
    refused(ended, run, "gives scores that are NaN or infinite", tmp_path / "out.csv")


@pytest.mark.parametrize("content", [b"", b"\xff" * 40, b"\x02\0\0\0\0\0\0\0{}", b"\x08\0\0\0\0\0\0\0{}      "])
def test_weights_that_are_no_safetensors_are_refused(content, run, rows, ntmp, tmp_path):
    (run / "model.safetensors").write_bytes(content)
    rehash(run)
    refused(ntmp("predict", run, rows, "--out", tmp_path / "out.csv"), run, "the weights", tmp_path / "out.csv")


# --- payloads of JSON and HDF5 ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rows.jsonl", "summary.json", "runs.jsonl", "curves.jsonl", "reliability.jsonl"])
@pytest.mark.parametrize(
    "content",
    ["{", "5", '"text"', "[5]", "[[]]", "{}", '{"dataset": NaN}', "[" * 5000, '{"prior": "high"}', '{"prior": 1e999}'],
)
def test_tables_of_an_evaluation_are_typed(name, content, study, ntmp, tmp_path):
    evaluation = copied(study.evaluation, tmp_path / "evaluation")
    rows = len((evaluation / name).read_text().splitlines())
    if name == "summary.json":
        content = f"[{content}]" if content.startswith("{") else content
    (evaluation / name).write_text(content if name == "summary.json" else "\n".join([content] * rows) + "\n")
    rehash(evaluation)
    ended = ntmp("report", evaluation, "--out", tmp_path / "out")
    refused(ended, evaluation / name, "", tmp_path / "out")


def test_fields_that_a_later_version_adds_are_kept(study, ntmp, tmp_path):
    evaluation = copied(study.evaluation, tmp_path / "evaluation")
    lines = (evaluation / "rows.jsonl").read_text().splitlines()
    changed = [json.dumps({**json.loads(line), "later": [1]}) for line in lines]
    (evaluation / "rows.jsonl").write_text("\n".join(changed) + "\n")
    rehash(evaluation)
    assert ntmp("report", evaluation, "--out", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    "field",
    [
        {"tuple_weight_variance_ratio": "1"},
        {"negative_rate": [1]},
        {"negative_rate": {"a": "b"}},
        {"loss": "low"},
        {"nll": 1.0, "risk_terms": [0.5]},
        {"nll": 1.0, "closed_form": "0"},
        {"batches": "5", "skipped": 0},
        {"learners": 3},
        {"learners": [{"learner": "trees", "weight": 1.0, "nll": 0.5, "leaves": 4}]},
    ],
    ids=str,
)
def test_a_history_is_typed_where_it_is_shown(field, run, ntmp, tmp_path):
    lines = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    (run / "history.jsonl").write_text("".join(json.dumps({**line, **field}) + "\n" for line in lines))
    rehash(run)
    wrong = list(field)[-1] if "nll" in field else next(iter(field))
    refused(ntmp("inspect", run), run / "history.jsonl", wrong, tmp_path / "out")
    refused(ntmp("evaluate", run, "--out", tmp_path / "out"), run / "history.jsonl", wrong, tmp_path / "out")


def test_lists_that_are_plotted_together_have_one_length(study, ntmp, tmp_path):
    evaluation = copied(study.evaluation, tmp_path / "evaluation")
    for name, names in {
        "curves.jsonl": ["loss"],
        "reliability.jsonl": ["mass"],
        "runs.jsonl": ["decisions", "histogram", "edges"],
    }.items():
        before = (evaluation / name).read_text()
        rows = [json.loads(line) for line in before.splitlines()]
        *parents, last = names
        shortened = rows[0]
        for parent in parents:
            shortened = shortened[parent]
        del shortened[last][-1]
        (evaluation / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        rehash(evaluation)
        refused(ntmp("report", evaluation, "--out", tmp_path / "out"), evaluation / name, "", tmp_path / "out")
        (evaluation / name).write_text(before)
    rehash(evaluation)
    assert ntmp("report", evaluation, "--out", tmp_path / "out").code == 0


def test_a_model_card_that_is_no_text_is_refused(run, ntmp, tmp_path):
    (run / "model-card.md").write_bytes(b"\x81")
    rehash(run)
    ended = ntmp("export", run, "--format", "torchscript", "--out", tmp_path / "out")
    refused(ended, run / "model-card.md", "not valid UTF-8", tmp_path / "out")


def test_epochs_without_end_are_refused(study, ntmp, tmp_path):
    ended = ntmp("train", "--tuples", study.tuples, "--set", f"epochs={2**63}", "--out", tmp_path / "out")
    assert ended.code == 2
    assert "epochs: input should be less than or equal to 1000000" in ended.err


def sparse(file: Path) -> None:
    with h5py.File(file, "r+", libver="latest") as stored:
        shape, dtype = stored["instances"].shape, stored["instances"].dtype
        del stored["instances"]
        stored.create_dataset("instances", (10**9, *shape[1:]), dtype)


def compressed(file: Path) -> None:
    with h5py.File(file, "r+", libver="latest") as stored:
        values = stored["instances"][()]
        del stored["instances"]
        stored.create_dataset("instances", data=np.zeros_like(values), compression="gzip")


def of_another_kind(file: Path) -> None:
    with h5py.File(file, "r+", libver="latest") as stored:
        stored.attrs["element"] = np.arange(3)


def cut(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[100:400] = bytes(300)
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [sparse, compressed, of_another_kind, cut])
def test_hdf5_that_claims_more_than_it_stores_is_refused(damage, study, ntmp, tmp_path):
    tuples = copied(study.tuples, tmp_path / "tuples")
    shard = tuples / "train" / "tuples-00000.h5"
    damage(shard)
    rehash(tuples)
    out = tmp_path / "out"
    ended = ntmp("train", "--tuples", tuples, "--prior", 0.5, "--model", "linear", "--epochs", 1, "--out", out)
    refused(ended, shard, "", out)


# --- what a manifest may lead to ----------------------------------------------------------------


@pytest.mark.parametrize("where", ["file", "folder", "manifest"])
def test_links_inside_an_artefact_are_not_followed(where, study, ntmp, tmp_path):
    tuples = copied(study.tuples, tmp_path / "tuples")
    moved = {"file": "test.h5", "folder": "oracle", "manifest": "manifest.json"}[where]
    (tuples / moved).rename(tmp_path / "elsewhere")
    (tuples / moved).symlink_to(tmp_path / "elsewhere")
    ended = ntmp("inspect", tuples)
    says = "it has no manifest.json" if where == "manifest" else "links, pipes and devices are not followed"
    assert (ended.code, says in ended.err) == (3, True), ended.err


def test_a_pipe_in_place_of_a_manifest_is_refused_and_does_not_hang(study, ntmp, tmp_path):
    tuples = copied(study.tuples, tmp_path / "tuples")
    (tuples / "manifest.json").unlink()
    os.mkfifo(tuples / "manifest.json")
    assert ntmp("inspect", tuples).code == 3
    ended = ntmp("make-tuples", "--dataset", "digits", "--prior", 0.5, "--out", tuples)
    assert (ended.code, "was not written by ntmp" in ended.err) == (2, True)


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document.update(format_version=True),
        lambda document: document["files"][0].update(path="a\0b"),
        lambda document: document["files"][0].update(path="a\x1b[31m"),
        lambda document: document["config"].update(deep=json.loads("[" * 900 + "]" * 900)),
    ],
)
def test_manifests_with_impossible_fields_are_refused(change, study, ntmp, tmp_path):
    tuples = copied(study.tuples, tmp_path / "tuples")
    change_manifest(tuples, change)
    ended = ntmp("inspect", tuples)
    assert ended.code in (0, 3)
    assert "\x1b" not in ended.err + ended.out
    assert "Traceback" not in ended.err


def test_a_manifest_nested_too_deeply_is_damaged(study, ntmp, tmp_path):
    tuples = copied(study.tuples, tmp_path / "tuples")
    (tuples / "manifest.json").write_text("[" * 100_000)
    ended = ntmp("inspect", tuples)
    assert (ended.code, "not valid JSON" in ended.err) == (3, True)
    ended = ntmp("make-tuples", "--dataset", "digits", "--prior", 0.5, "--out", tuples)
    assert (ended.code, "was not written by ntmp" in ended.err) == (2, True)
