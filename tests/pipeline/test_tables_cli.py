"""Learners for tables as a user runs them: no torch, no pickle, no pool and no prior needed, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import own_data
import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.learning.tables.boosting import lightgbm_or_none
from ntmp_cli.learning.tables.trees import LightGBMTrees, TreeArrays

# Of files with trees: those of scikit-learn take the place of LightGBM's where it cannot be loaded.
SUFFIX = TreeArrays.suffix if lightgbm_or_none() is None else LightGBMTrees.suffix
# A program in which nobody can import torch.
WITHOUT_TORCH = """
import json, sys
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ImportError("torch is not for tables")
sys.meta_path.insert(0, NoTorch())
from ntmp_cli.app import run
for words in json.loads(sys.argv[1]):
    if code := run(words):
        sys.exit(f"{words}: {code}")
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory, ntmp_done) -> Path:
    folder = own_data.write_csv(tmp_path_factory.mktemp("tables"))
    files = ("--unlabeled", folder / "unlabeled.csv", "--test", folder / "test.csv")
    ntmp_done("import-tuples", folder / "tuples.csv", *files, "--out", folder / "t")
    ntmp_done("train", "--tuples", folder / "t", "--prior", own_data.PRIOR, "--out", folder / "auto")
    return folder


def test_the_default_learns_a_small_table(work, tmp_path, ntmp_done):
    rows = ntmp_done("evaluate", work / "auto", "--out", tmp_path / "e", "--json").json["rows"]
    (accuracy,) = (row["value"] for row in rows if row["metric"] == "accuracy")
    assert accuracy > 0.88  # 50 tuples of 5; over ten seeds of the split at least .92
    summary = open_artifact(work / "auto", "run").summary
    assert (summary.model, summary.learner, summary.prior_source) == ("auto", "table", "given")
    names = {path.name for path in (work / "auto").iterdir()}
    assert {"model.safetensors", f"trees-1{SUFFIX}", f"trees-2{SUFFIX}"} <= names
    assert not any(name.endswith((".pkl", ".joblib", ".pt")) for name in names)


LINEAR = ("train", "--tuples", "t", "--model", "linear", "--out", "{}/linear")
OTHERS = (
    ("train", "--tuples", "t", "--model", "auto", "--prior", "estimate", "--out", "{}/r"),
    ("audit", "--tuples", "t", "--run", "auto", "--out", "{}/a"),
    ("explain", "{}/linear", "--tuples", "t", "--repeats", "1", "--out", "{}/x"),
)


@pytest.mark.parametrize("others", [(), pytest.param(OTHERS, marks=pytest.mark.slow)], ids=["train, predict", "all"])
def test_tables_need_no_torch(others, work, tmp_path):
    commands = [LINEAR, ("predict", "auto", "test.csv", "--out", "{}/p.csv"), *others]
    words = json.dumps([[word.format(tmp_path) for word in command] for command in commands])
    ended = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, words], cwd=work, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_a_dense_network_scores_without_torch(work, tmp_path, ntmp_done):
    words = ("train", "--tuples", work / "t", "--model", "mlp", "--epochs", 1, "--prior", own_data.PRIOR)
    ntmp_done(*words, "--out", tmp_path / "mlp")
    scored = json.dumps([["predict", str(tmp_path / "mlp"), "test.csv", "--out", str(tmp_path / "p.csv")]])
    ended = subprocess.run([sys.executable, "-c", WITHOUT_TORCH, scored], cwd=work, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


UNUSED = ["torch", "sklearn", "matplotlib", "scipy.stats", "pandas", "pyarrow.parquet", "yaml"]
# Where LightGBM cannot be loaded, trees are grown by scikit-learn.
TREES_UNUSED = [name for name in UNUSED if name != "sklearn" or LightGBMTrees.suffix == SUFFIX]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (("predict", "auto", "test.csv", "--out", "{}/p.csv"), UNUSED),
        (("export", "auto", "--out", "{}/e"), [*UNUSED, "pyarrow", "scipy.optimize"]),
        (("train", "--tuples", "t", "--model", "trees", "--prior", "0.5", "--out", "{}/r"), TREES_UNUSED),
    ],
    ids=["predict", "export", "train"],
)
def test_commands_on_tables_import_only_what_they_use(words, unused, work, tmp_path):
    """Each of these takes longer to import than a small table to score."""
    if words[0] == "export":
        pytest.importorskip("onnx", reason="onnx (extra `export`) is not installed")
    code = (
        "import json, sys\nfrom ntmp_cli.app import run\n"
        "code = run(json.loads(sys.argv[1]))\n"
        f"unneeded = {set(unused)} & set(sys.modules)\n"
        "sys.exit(code or ' '.join(unneeded) or 0)"
    )
    given = json.dumps([word.format(tmp_path) for word in words])
    ended = subprocess.run([sys.executable, "-c", code, given], cwd=work, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_the_same_seed_gives_the_same_bytes(work, tmp_path, ntmp_done):
    ntmp_done("train", "--tuples", work / "t", "--prior", own_data.PRIOR, "--out", tmp_path / "again")
    files = sorted(path.name for path in (work / "auto").iterdir() if path.is_file() and path.name != "timing.jsonl")
    for name in files:
        assert (tmp_path / "again" / name).read_bytes() == (work / "auto" / name).read_bytes(), name


@pytest.mark.slow
def test_a_network_is_trained_as_long_as_the_table_asks(work, tmp_path, ntmp, ntmp_done):
    """13 steps an epoch: 24 epochs make 300. A rerun knows that this is the same training."""
    train = ("train", "--tuples", work / "t", "--prior", own_data.PRIOR, "--model", "mlp", "--out", tmp_path / "r")
    ntmp_done(*train)
    run = open_artifact(tmp_path / "r", "run")
    assert (run.summary.epochs, run.manifest.config["epochs"]) == (24, 24)
    assert ntmp_done(*train, "--if-exists", "skip").err == ""
    assert ntmp(*train, "--epochs", 3, "--if-exists", "skip").code == 2


def test_settings_of_networks_are_given_in_vain_and_said_so(work, tmp_path, ntmp_done):
    words = ("--prior", own_data.PRIOR, "--model", "linear", "--epochs", 3, "--lr", 0.1, "--warmup", "none")
    ended = ntmp_done("train", "--tuples", work / "t", *words, "--out", tmp_path / "r")
    assert "--model linear on a table does not use --epochs, --lr, --warmup; --model mlp would" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "ure", "--model", "trees"), "model trees needs method count"),
        (("--method", "ure"), None),
    ],
)
def test_trees_are_for_the_count_likelihood(words, message, work, tmp_path, ntmp):
    words = ("--tuples", work / "t", "--prior", own_data.PRIOR, "--epochs", 1, *words, "--out", tmp_path / "r")
    ended = ntmp("train", *words)
    if message is None:  # any other method with `auto` means the network
        assert open_artifact(tmp_path / "r", "run").summary.model == "mlp"
    else:
        assert (ended.code, message in ended.err, (tmp_path / "r").exists()) == (2, True, False)


def test_a_misspelt_model_is_named(work, tmp_path, ntmp):
    ended = ntmp("train", "--tuples", work / "t", "--model", "tree", "--out", tmp_path / "r")
    assert (ended.code, "unknown model 'tree'" in ended.err, "trees" in ended.err) == (2, True, True)


def test_trees_are_not_for_images(tuples, tmp_path, ntmp):
    ended = ntmp("train", "--tuples", tuples, "--model", "trees", "--out", tmp_path / "r")
    assert (ended.code, "model trees needs rows of a table" in ended.err) == (2, True)


def test_two_processes_cannot_share_one_fit(work, tmp_path, ntmp):
    ended = ntmp("train", "--tuples", work / "t", "--prior", 0.6, "--ranks", 2, "--out", tmp_path / "r")
    assert (ended.code, "is computed at once, in one process" in ended.err) == (2, True)


def test_the_pool_says_its_prior(work, tmp_path, ntmp_done):
    """Without --prior the training estimates it, and names the interval."""
    ended = ntmp_done("train", "--tuples", work / "t", "--out", tmp_path / "r")
    summary = open_artifact(tmp_path / "r", "run").summary
    assert summary.prior_source == "estimated"
    low, high = summary.prior_ci
    assert low <= own_data.PRIOR <= high
    assert "estimated on the unlabeled pool, interval" in ended.out
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    assert manifest["config"]["prior"] is None
    ntmp_done("predict", tmp_path / "r", work / "test.csv", "--out", tmp_path / "p.csv")


@pytest.mark.skipif(SUFFIX != ".txt", reason="LightGBM cannot be loaded here")
def test_a_damaged_classifier_is_refused(work, tmp_path, ntmp):
    """The manifest's hash is checked first; here both are changed, as a hostile file would be."""
    import hashlib
    import shutil

    shutil.copytree(work / "auto", tmp_path / "r")
    content = (tmp_path / "r" / "trees-1.txt").read_text().replace("leaf_value=", "leaf_worth=")
    (tmp_path / "r" / "trees-1.txt").write_text(content)
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_text())
    for entry in manifest["files"]:
        if entry["path"] == "trees-1.txt":
            entry["sha256"], entry["bytes"] = hashlib.sha256(content.encode()).hexdigest(), len(content.encode())
    (tmp_path / "r" / "manifest.json").write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")
    ended = ntmp("predict", tmp_path / "r", work / "test.csv", "--out", tmp_path / "p.csv")
    assert ended.code == 3
    assert "trees-1.txt: not trees that this ntmp reads" in ended.err
    assert not (tmp_path / "p.csv").exists()


def test_few_rows_and_many_are_scored_alike(work):
    """Many rows are scored by LightGBM, few from its text."""
    from ntmp_cli.artifacts.stored_scorer import load_table_scorer
    from ntmp_cli.learning.tables.trees import FEW_ROWS

    run = open_artifact(work / "auto", "run")
    rows = np.random.default_rng(0).normal(size=(FEW_ROWS + 1, run.summary.instance.shape[0]))
    many, few = load_table_scorer(run).score(rows), load_table_scorer(run).score(rows[:100])
    assert np.abs(many[:100] - few).max() < 1e-12
