"""Exported runs against `ntmp predict` on the same rows, in programs that know nothing of ntmp."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
import own_data
import pyarrow.csv as pacsv
import pytest
import torch

import ntmp_cli


def exported(folder: Path, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores and probabilities by what was exported."""
    facts = json.loads((folder / "export.json").read_text())
    assert facts["input"]["dtype"] == str(rows.dtype)
    assert facts["input"]["shape"][1:] == list(rows.shape[1:])
    if facts["format"] == "onnx":
        runtime = pytest.importorskip("onnxruntime")
        session = runtime.InferenceSession(folder / "model.onnx")
        return tuple(session.run(facts["outputs"], {facts["input"]["name"]: rows}))
    with torch.no_grad():
        return tuple(output.numpy() for output in torch.jit.load(folder / "model.pt")(torch.from_numpy(rows)))


def greatest_difference(folder: Path, rows: np.ndarray, table: Path) -> float:
    """Between what was exported and what `predict` wrote, in scores and probabilities."""
    table = pacsv.read_csv(table)
    written = table["score"].to_numpy(), table["probability"].to_numpy()
    return max(float(np.abs(ours - theirs).max()) for ours, theirs in zip(exported(folder, rows), written, strict=True))


# Torch calls its own format superseded wherever it is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
FORMATS = ["onnx", "torchscript"]


@pytest.fixture(scope="module")
def own(tmp_path_factory, ntmp_done) -> Path:
    """Runs on a table of numbers, one of which is missing now and then: a network, and learners for tables."""
    folder = own_data.write_csv(tmp_path_factory.mktemp("own"))
    header, first, *rest = (folder / "tuples.csv").read_text().splitlines()
    first = ",".join([*first.split(",")[:-1], ""])
    (folder / "tuples.csv").write_text("\n".join([header, first, *rest]) + "\n")
    ntmp_done("import-tuples", folder / "tuples.csv", "--unlabeled", folder / "unlabeled.csv", "--out", folder / "t")
    training = ("train", "--tuples", folder / "t", "--prior", own_data.PRIOR)
    ntmp_done(*training, "--model", "mlp", "--epochs", 2, "--out", folder / "mlp")
    ntmp_done(*training, "--out", folder / "auto")
    rows = own_data.cases().x_test
    rows[3, -1] = np.nan
    lines = [",".join("" if np.isnan(v) else repr(float(v)) for v in row) for row in rows]
    (folder / "new.csv").write_text("\n".join([",".join(own_data.FEATURES), *lines]) + "\n")
    np.save(folder / "rows.npy", rows)
    for name in ("mlp", "auto"):
        words = ("--probabilities", "always", "--out", folder / f"{name}.csv")
        ntmp_done("predict", folder / name, folder / "new.csv", *words)
    return folder


@pytest.mark.parametrize(("model", "kind"), [("mlp", "onnx"), ("mlp", "torchscript"), ("auto", "onnx")])
def test_raw_rows_of_a_table_give_the_scores_of_predict(model, kind, own, tmp_path, ntmp_done):
    facts = ntmp_done("export", own / model, "--format", kind, "--out", tmp_path / "e", "--json").json
    assert facts["prior"] == own_data.PRIOR
    rows = np.load(own / "rows.npy")
    assert greatest_difference(tmp_path / "e", rows, own / f"{model}.csv") < 1e-5
    assert len(exported(tmp_path / "e", rows[:1])[0]) == 1
    assert json.loads((tmp_path / "e" / "export.json").read_text())["columns"] == list(own_data.FEATURES)


LOADED = """
import json, sys
from ntmp_cli.app import run
code = run(json.loads(sys.argv[1]))
sys.exit(code or " ".join(set(json.loads(sys.argv[2])) & set(sys.modules)) or 0)
"""
UNUSED = ["torch._dynamo", "torch.distributed.tensor", "torchvision", "pandas", "sklearn", "scipy.stats", "matplotlib"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (("predict", "mlp", "new.csv", "--out", "{}/p.csv"), UNUSED),
        (("export", "mlp", "--format", "torchscript", "--out", "{}/e"), [*UNUSED, "scipy.optimize", "scipy.linalg"]),
        (("export", "mlp", "--format", "onnx", "--out", "{}/e"), [*UNUSED, "onnxscript", "sympy", "scipy.optimize"]),
    ],
    ids=["predict", "torchscript", "onnx"],
)
def test_a_network_needs_torch_and_little_beside(words, unused, own, tmp_path):
    """Each of these takes longer to import than a network takes to be read."""
    command = [sys.executable, "-c", LOADED, json.dumps([word.format(tmp_path) for word in words]), json.dumps(unused)]
    ended = subprocess.run(command, cwd=own, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("kind", FORMATS)
def test_an_export_names_no_path_of_the_machine(kind, own, tmp_path, ntmp_done):
    """Torch notes the call stack of every operation: exports of other callers and machines would have other bytes."""
    ntmp_done("export", own / "mlp", "--format", kind, "--out", tmp_path / "e")
    (file,) = (tmp_path / "e").glob("model.*")
    texts = [file.read_bytes()]
    if kind == "torchscript":
        with zipfile.ZipFile(file) as archive:
            texts = [archive.read(name) for name in archive.namelist()]
    folders = [str(Path(module.__file__).parent).encode() for module in (ntmp_cli, torch)]
    assert not [folder for folder in folders if any(folder in text for text in texts)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("words", [("--model", "resnet20"), ("--encoder", "pca")], ids=lambda words: words[1])
def test_images_go_in_as_they_are_stored(words, kind, tuples, tmp_path, ntmp_done):
    ntmp_done("train", "--tuples", tuples, "--prior", 0.5, "--epochs", 1, *words, "--out", tmp_path / "r")
    ntmp_done("export", tmp_path / "r", "--format", kind, "--out", tmp_path / "e")
    with h5py.File(tuples / "test.h5") as file:
        rows = file["instances"][:40]
    np.save(tmp_path / "x.npy", rows)
    ntmp_done("predict", tmp_path / "r", tmp_path / "x.npy", "--probabilities", "always", "--out", tmp_path / "p.csv")
    assert greatest_difference(tmp_path / "e", rows, tmp_path / "p.csv") < 1e-5


def test_trees_cannot_become_torchscript(own, tmp_path, ntmp):
    ended = ntmp("export", own / "auto", "--format", "torchscript", "--out", tmp_path / "e")
    assert (ended.code, ended.err) == (
        2,
        f"error: {own / 'auto'}: a classifier of a table cannot become torchscript\nUse --format onnx.\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_without_the_package_there_is_one_message(own, tmp_path, ntmp, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    ended = ntmp("export", own / "mlp", "--out", tmp_path / "e")
    assert (ended.code, ended.err) == (
        2,
        "error: the format onnx needs the package onnx\npip install 'ntmp[export]'\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_takes_encoded_features_says_so(tmp_path, ntmp_done):
    """Where a column holds texts: in the terminal, in export.json and on the card."""
    rng = np.random.default_rng(0)
    lines = ['tuple_id,count,size,"colour, outer"']
    lines += [f"t{i // 3},{i // 3 % 3},{rng.normal():.3f},{('red', 'blue')[i % 2]}" for i in range(90)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    ntmp_done("import-tuples", tmp_path / "t.csv", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--model", "linear", "--out", tmp_path / "r")
    shown = ntmp_done("export", tmp_path / "r", "--format", "onnx", "--out", tmp_path / "e").out
    names = ["size", "colour, outer=blue", "colour, outer=red"]
    assert f"encoded features, not raw columns: {json.dumps(names)[1:-1]}" in " ".join(shown.split())
    facts = json.loads((tmp_path / "e" / "export.json").read_text())
    assert (facts["features"], facts["columns"]) == (names, None)
    card = (tmp_path / "e" / "model-card.md").read_text()
    assert 'Features, in order: "size", "colour, outer=blue", "colour, outer=red".' in card
    assert "It takes encoded features, not the raw columns" in card
