"""Corners where a method could end wrong without a word."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.learning.torchvision_models import torchvision_features
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

CPU = TrainOptions(device="cpu")


def auc(folder: Path, data: dict[str, Any], **settings: Any) -> float:
    made = make_tuples(MakeTuplesConfig(**{"dataset": "digits", **data}), folder / "tuples")
    config = TrainConfig(**{"prior": made.summary.prior, "trace_every": 0, **settings})
    run = train(config, folder / "tuples", folder / "run", CPU)
    scores = read_scores(run)["test"]
    return float(roc_auc_score(read_labels(run), scores))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("warmup", ["risk", "none"])
def test_count_finds_its_side_where_the_prior_is_nearly_the_rate(tmp_path: Path, seed: int, warmup: str) -> None:
    """|π − α| = 0.0007 gives a risk of pure noise, whose sign means nothing; the counts themselves know."""
    data = {"tuples": ("3:1",), "prior": 0.334, "seed": seed}
    assert auc(tmp_path, data, epochs=15, seed=seed, warmup=warmup) > 0.9


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_count_finds_its_side_without_heldout_data(tmp_path: Path, seed: int) -> None:
    data = {"dataset": "gaussians:dim=2,separation=3,size=4000,test=400", "tuples": ("5:2",), "prior": 0.4}
    assert auc(tmp_path, {**data, "heldout_share": 0.0, "seed": seed}, epochs=8, seed=seed) > 0.95


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.slow) for s in (2, 3))])
def test_count_finds_its_side_in_one_epoch(tmp_path: Path, seed: int) -> None:
    data = {"dataset": "gaussians:dim=2,separation=3,size=20000,test=400", "tuples": ("5:2",), "prior": 0.4}
    assert auc(tmp_path, {**data, "seed": seed}, epochs=1, seed=seed, model="linear", lr=0.05) > 0.9


def test_noisy_counts_are_learned_better_when_their_noise_is_told(tmp_path: Path) -> None:
    data = "gaussians:dim=2,separation=3,size=6000,test=200"
    make_tuples(MakeTuplesConfig(dataset=data, tuples=("4:1",), prior=0.5, count_noise=0.3), tmp_path / "tuples")
    settings: dict[str, Any] = {"prior": 0.5, "model": "linear", "lr": 0.3, "weight_decay": 0.0, "epochs": 12}
    slopes = {}
    for noise in (0.0, 0.3):
        config = TrainConfig(count_noise=noise, self_training=0.0, **settings)
        run = train(config, tmp_path / "tuples", tmp_path / f"run-{noise}", CPU)
        scores = read_scores(run)["test"]
        slopes[noise] = float(scores.std())
    # The true score has slope 3 along the first axis: its spread is 3·√(1 + 9/4). Noise taken for truth flattens it.
    assert slopes[0.3] == pytest.approx(3 * np.sqrt(1 + 9 / 4), rel=0.35)
    assert slopes[0.0] < 0.7 * slopes[0.3]


@pytest.mark.slow
def test_dropout_is_repeated_by_the_same_seed(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, (160, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(160) % 2
    np.savez(tmp_path / "x.npz", x_train=images, y_train=labels, x_test=images[:8], y_test=labels[:8])
    data = MakeTuplesConfig(dataset=f"npz:{tmp_path / 'x.npz'}", positive=("1",), tuples=("3:1",), prior=0.5)
    make_tuples(data, tmp_path / "tuples")
    config = TrainConfig(prior=0.5, model="torchvision:squeezenet1_1", epochs=1, trace_every=0)
    runs = []
    for name in ("a", "b"):
        torch.manual_seed(len(runs))  # whatever state the process is in
        before = torch.get_rng_state()
        runs.append(train(config, tmp_path / "tuples", tmp_path / name, CPU))
        assert torch.equal(before, torch.get_rng_state())
    assert runs[0].sha256 == runs[1].sha256


@pytest.mark.slow
def test_a_run_knows_a_weights_file_by_its_content(ntmp, ntmp_done, tmp_path: Path) -> None:
    x, y = np.random.default_rng(0).integers(0, 256, (60, 8, 8), dtype=np.uint8), np.arange(60) % 2
    np.savez(tmp_path / "few.npz", x_train=x, y_train=y, x_test=x[:10], y_test=y[:10])  # resnet18 is slow
    data = ("--dataset", f"npz:{tmp_path / 'few.npz'}", "--positive", 1, "--num-tuples", 10, "--prior", 0.5)
    ntmp_done("make-tuples", *data, "--out", tmp_path / "tuples")

    def weights(seed: int, path: Path) -> Path:
        torch.manual_seed(seed)
        state = torchvision_features("resnet18", (1, 8, 8), None).state_dict()
        torch.save({k.removeprefix("network."): v for k, v in state.items() if k.startswith("network.")}, path)
        return path

    words = ("train", "--tuples", tmp_path / "tuples", "--prior", 0.5, "--encoder", "torchvision:resnet18")
    words += ("--method", "discriminant", "--out", tmp_path / "run", "--encoder-weights")
    ntmp_done(*words, weights(0, tmp_path / "w.pth"))
    manifest = (tmp_path / "run" / "manifest.json").read_text()
    assert "w.pth" not in manifest
    assert json.loads(manifest)["config"]["encoder_weights"].startswith("sha256:")
    ntmp_done(*words, tmp_path / "w.pth", "--if-exists", "skip")
    weights(1, tmp_path / "w.pth")
    ended = ntmp(*words, tmp_path / "w.pth", "--if-exists", "skip")
    assert ended.code == 2
    assert "exists, but from other inputs or settings" in ended.err


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("words", "unused"),
    [
        (["--method", "count", "--clamp", "abs"], "--clamp"),
        (["--method", "uu", "--clamp", "abs", "--mixing", "pooled"], "--clamp, --mixing"),
        (["--method", "ure", "--warmup", "none", "--self-training", "0"], "--self-training, --warmup"),
        (["--method", "kmeans", "--model", "mlp"], "--model"),
        (["--method", "attention-mil", "--model", "mlp"], "--model"),
        (["--method", "count", "--encoder-weights", "default"], "--encoder-weights"),
        (["--method", "count", "--warmup", "none", "--count-noise", "0.1"], None),
        (["--method", "ure", "--clamp", "none", "--margin", "0.01"], None),
        (["--method", "llp-bagce", "--entropy-weight", "0.1"], None),
    ],
)
def test_a_setting_without_effect_is_named(ntmp_done, tmp_path: Path, words: list[str], unused: str | None) -> None:
    ntmp_done("make-tuples", "--dataset", "digits", "--num-tuples", 30, "--prior", 0.5, "--out", tmp_path / "tuples")
    training = ("train", "--tuples", tmp_path / "tuples", "--prior", 0.5, "--epochs", 1, "--out", tmp_path / "run")
    ended = ntmp_done(*training, *words)
    if unused is None:
        assert "does not use" not in ended.err
    else:
        assert f"warning: --method {words[1]} does not use {unused}\n" in ended.err


def test_processes_that_cannot_find_each_other_are_one_message(
    ntmp, ntmp_done, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ntmp_done("make-tuples", "--dataset", "digits", "--num-tuples", 30, "--prior", 0.5, "--out", tmp_path / "tuples")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    ended = ntmp("train", "--tuples", tmp_path / "tuples", "--prior", 0.5, "--out", tmp_path / "run")
    assert ended.code == 2
    assert "error: WORLD_SIZE is 2, but the processes cannot find each other: " in ended.err
    assert ended.err.endswith("Start them with torchrun, or unset WORLD_SIZE.\n")
    ended = ntmp("run", Path(__file__).parents[2] / "sample_configs" / "quickstart.yaml", "--out", tmp_path / "study")
    assert (ended.code, "uses one process" in ended.err) == (2, True)
    assert open_artifact(tmp_path / "tuples").kind == "tuples"
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "study").exists()


# --- orientation ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def at_a_half(tmp_path_factory, ntmp_done):
    """Tuples of three with one positive, and a pool that is half positive."""
    out = tmp_path_factory.mktemp("orientation") / "t"
    data = ("--dataset", "gaussians:dim=2,separation=3,size=2000,test=200", "--tuple", "3:1", "--prior", 0.5)
    ntmp_done("make-tuples", *data, "--num-tuples", 300, "--out", out)
    return out


@pytest.mark.thinned(2)
@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_a_prior_that_contradicts_the_counts_is_refused_with_both_numbers_unless_one_is_trusted(
    model, at_a_half, tmp_path, ntmp, ntmp_done
):
    shape = ("--model", model, "--epochs", 4) if model == "mlp" else ("--model", model)
    training = ("train", "--tuples", at_a_half, "--prior", 0.2, *shape)
    ended = ntmp(*training, "--out", tmp_path / "r")
    assert ended.code == 4
    assert re.search(
        r"prior 0\.2 and the tuples' rate 0\.3333 .* z = \d+\.\d, .* \d+\.\d nats more probable", ended.err
    )
    assert not (tmp_path / "r").exists()
    shown = ntmp_done(*training, "--trust", "counts", "--out", tmp_path / "counts")
    assert re.search(r"orientation\s+z = \d+\.\d, certain", shown.out)
    inspected = ntmp_done("inspect", tmp_path / "counts", "--json").json
    assert inspected["summary"]["orientation_z"] >= 3
    assert inspected["config"]["trust"] == "counts"
