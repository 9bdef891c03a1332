"""The oracle sees the true label of exactly the instances it is shown; no other method sees any."""

from __future__ import annotations

import shutil
from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from known_answers import accuracy, bayes_accuracy
from safetensors.torch import load_file

from ntmp_cli.artifacts import Artifact, open_artifact
from ntmp_cli.artifacts.layout import WEIGHTS
from ntmp_cli.artifacts.oracle import read_oracle
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.artifacts.true_labels import true_targets
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.data.labelled import load_labelled
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.rank_shares import RankShares
from ntmp_cli.learning.training_data import Batching, training_shares
from ntmp_cli.stages import make_tuples as make_tuples_stage
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

CPU = TrainOptions(device="cpu")
DATASET = "gaussians:dim=3,size=1200,test=60"
NAMES = methods.names()
COMPETITORS = [name for name in NAMES if name != "supervised"]


def made(method: str, task: Task, **settings: Any) -> Any:
    config = TrainConfig(**{"method": method, "prior": 0.6, "clip_prompts": ("a", "b"), **settings})
    return methods.get(method)(config, task)


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Tuples of two to five in shards of 50, and U in shards of 41."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_tuples_stage, "SHARD_BYTES", 41 * 12)
        config = MakeTuplesConfig(dataset=DATASET, tuples=("2-5:~0.4",), prior=0.6, shard_size=50)
        tuples = make_tuples(config, tmp_path_factory.mktemp("sharded") / "tuples")
    assert len(tuples.entries("train/tuples-")) > 5
    assert len(tuples.entries("train/unlabeled-")) > 5
    return tuples


@pytest.fixture(scope="module")
def truth() -> dict[bytes, float]:
    """Every instance of the labelled source, by its bytes, with its label: real numbers do not repeat."""
    data = load_labelled(DATASET)
    return {x.tobytes(): float(y) for x, y in zip(data.x_train, data.y_train, strict=True)}


def all_batches(tuples: Artifact, shares: int, windows: int, epoch: int) -> list[Batch]:
    config = TrainConfig(method="supervised", prior=0.6, batch_size=97, seed=3)
    targets = true_targets(tuples, made("supervised", StoredTuples(tuples).task))
    data = training_shares(StoredTuples(tuples), config, shares, Batching(targets=targets))
    for share in data:
        total = (share.tuples * share.mean_size + share.unlabeled) * share.instance_bytes
        share.budget_bytes = int(np.ceil(total / windows))
        assert share.windows == windows
    steps, batches = RankShares(data).epoch(epoch)
    all_of_epoch = list(batches)
    assert len(all_of_epoch) == steps
    return all_of_epoch


# --- targets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 4])
@pytest.mark.parametrize("windows", [1, 3])
@pytest.mark.parametrize("shares", [1, 3])
def test_every_instance_comes_with_its_own_label(
    sharded: Artifact, truth: dict[bytes, float], shares: int, windows: int, epoch: int
) -> None:
    batches = all_batches(sharded, shares, windows, epoch)
    for batch in batches:
        assert batch.targets is not None
        assert batch.targets.tolist() == [truth[row.tobytes()] for row in batch.x.numpy()]
    seen = np.concatenate([batch.x.numpy() for batch in batches])
    source = [read_oracle(sharded, f"oracle/train-{what}.h5")["source"] for what in ("tuples", "unlabeled")]
    expected = load_labelled(DATASET).x_train[np.concatenate(source)]
    assert np.array_equal(np.sort(seen, axis=0), np.sort(expected, axis=0))


@pytest.mark.parametrize("windows", [1, 3])
def test_labels_of_a_tuple_add_up_to_its_count(sharded: Artifact, windows: int) -> None:
    for batch in all_batches(sharded, 2, windows, 2):
        assert batch.targets is not None
        ends = np.cumsum(batch.sizes)
        sums = [float(batch.targets[end - n : end].sum()) for n, end in zip(batch.sizes, ends, strict=True)]
        assert sums == batch.counts.tolist()


def test_batches_are_the_same_with_and_without_labels(sharded: Artifact) -> None:
    (bare,) = training_shares(StoredTuples(sharded), TrainConfig(prior=0.6, batch_size=97, seed=3))
    for with_labels, without in zip(all_batches(sharded, 1, 1, 1), bare.epoch(1)[1], strict=True):
        assert torch.equal(with_labels.x, without.x)
        assert without.targets is None


# --- competitors --------------------------------------------------------------------------------


def test_there_is_one_oracle() -> None:
    assert [name for name in NAMES if methods.get(name).is_oracle] == ["supervised"]


@pytest.mark.parametrize("warmup", ["risk", "discriminant", "none"])
@pytest.mark.parametrize("name", COMPETITORS)
def test_no_competitor_asks_for_the_truth_or_is_given_it(name: str, warmup: str, sharded: Artifact) -> None:
    method = made(name, Task([(3, 1, 50), (4, 3, 20)], 100), warmup=warmup)
    assert not method.is_oracle
    if isinstance(method, GradientMethod):
        assert method.targets() == ("discriminant" if (name, warmup) == ("count", "discriminant") else "none")
    with pytest.raises(PermissionError, match="is no oracle, so it must not see labels"):
        true_targets(sharded, method)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    config = MakeTuplesConfig(dataset="gaussians:dim=2,size=400,test=30", tuples=("2-5:~0.4",), prior=0.6)
    return make_tuples(config, tmp_path_factory.mktemp("small") / "tuples")


def without_truth(tuples: Artifact, copy: Path, how: str) -> Path:
    """A copy whose true labels of training and held-out instances are gone or overwritten."""
    shutil.copytree(tuples.path, copy)
    files = [path for path in (copy / "oracle").iterdir() if path.name != "test-labels.h5"]
    assert len(files) == 4
    for file in files:
        if how == "removed":
            file.unlink()
        else:
            file.write_bytes(b"\0" * file.stat().st_size)
    return copy


@pytest.fixture(scope="module")
def copies(small: Artifact, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("copies")
    return {"whole": small.path} | {how: without_truth(small, folder / how, how) for how in ("removed", "damaged")}


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("name", "warmup"), [*((name, "risk") for name in COMPETITORS if name != "clip-mil"), ("count", "discriminant")]
)
def test_a_competitor_learns_the_same_without_the_labels_on_disk(
    name: str, warmup: str, copies: dict[str, Path], tmp_path: Path
) -> None:
    config = TrainConfig(method=name, prior=0.6, model="linear", epochs=1, warmup=warmup)
    scores = [read_scores(train(config, tuples, tmp_path / how, CPU))["test"] for how, tuples in copies.items()]
    assert np.array_equal(scores[0], scores[1])
    assert np.array_equal(scores[0], scores[2])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("removed", "oracle/train-tuples.h5: listed in the manifest but missing"),
        ("damaged", "oracle/train-tuples.h5: damaged: its contents do not match the recorded hash"),
    ],
)
def test_the_oracle_says_which_labels_are_missing(
    how: str, message: str, copies: dict[str, Path], tmp_path: Path
) -> None:
    config = TrainConfig(method="supervised", prior=0.6, model="linear", epochs=1)
    with pytest.raises(ArtifactError) as error:
        train(config, copies[how], tmp_path / "run", CPU)
    assert error.value.message == f"{copies[how]}/{message}"
    assert list(tmp_path.iterdir()) == []


def test_the_oracle_refuses_tuples_that_never_had_labels(sharded: Artifact) -> None:
    files = tuple(entry for entry in sharded.manifest.files if not entry.path.startswith("oracle/train-"))
    real = Artifact(sharded.path, replace(sharded.manifest, files=files), sharded.sha256)
    with pytest.raises(UsageError, match="has no true labels of its training instances") as error:
        true_targets(real, made("supervised", StoredTuples(real).task))
    assert error.value.hint == "It is an upper bound for simulated tuples; use --method count on real ones."


# --- learning -----------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", [None, "pca"])
@pytest.mark.parametrize("prior", [0.2, 0.8])
def test_the_oracle_is_the_best_rule_at_the_deployment_prior(tmp_path: Path, prior: float, encoder: str | None) -> None:
    """The tuples' rate is one third, but log-odds are s·x₁ + logit π."""
    data = MakeTuplesConfig(dataset="gaussians:dim=2,separation=3,size=3000,test=3000", prior=prior)
    make_tuples(data, tmp_path / "tuples")
    settings: dict[str, Any] = {"model": "linear", "lr": 0.3, "weight_decay": 0.0, "epochs": 8, "select": "last"}
    config = TrainConfig(method="supervised", prior=prior, encoder=encoder, **settings)
    run = train(config, tmp_path / "tuples", tmp_path / "run", CPU)
    assert open_artifact(run.path).summary.is_oracle is True
    assert accuracy(run, prior) > bayes_accuracy(prior) - 0.01
    if encoder is None:
        state = {k: v.double().numpy() for k, v in load_file(run.path / WEIGHTS).items()}
        weight = state["network.1.weight"][0]
        assert weight * state["factor"] == pytest.approx([3.0, 0.0], abs=0.35)
        assert state["network.1.bias"][0] - weight @ state["shift"] == pytest.approx(log(prior / (1 - prior)), abs=0.35)
