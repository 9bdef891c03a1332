"""`--margin-policy resample` and `reweight` in real trainings, where the default policy cannot learn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from known_answers import accuracy, bayes_accuracy

from ntmp_cli.artifacts import Artifact, open_artifact
from ntmp_cli.artifacts.layout import HISTORY
from ntmp_cli.artifacts.oracle import read_oracle
from ntmp_cli.artifacts.shards import read_instances, unlabeled_shard_names
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.closed_form import prior_weights
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

CPU = TrainOptions(device="cpu")
GAUSSIANS = "gaussians:dim=2,separation=3,size=4000,test=4000"
LINEAR: dict[str, Any] = {"method": "ure", "model": "linear", "lr": 0.1, "weight_decay": 0.0, "trace_every": 0}


def trained(tuples: Path, out: Path, **settings: Any) -> Artifact:
    return train(TrainConfig(**{"epochs": 8, **LINEAR, **settings}), tuples, out, CPU)


def last_epoch(run: Artifact) -> dict[str, Any]:
    return json.loads(run.file(HISTORY).read_text().splitlines()[-1])


@pytest.fixture(scope="module")
def mixed(tmp_path_factory) -> Path:
    """Half (3,1), half (3,2): the mean rate is the prior but for the luck of the draw."""
    out = tmp_path_factory.mktemp("mixed") / "tuples"
    make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=("3:1@0.5", "3:2@0.5"), prior=0.5), out)
    return out


@pytest.fixture(scope="module")
def shifted(tmp_path_factory) -> Path:
    """A pool with a fifth of positives."""
    out = tmp_path_factory.mktemp("shifted") / "tuples"
    make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=("3:1",), prior=0.2), out)
    return out


def test_a_mixture_whose_mean_rate_is_the_prior_trains_stratified_or_in_sided_batches_only(mixed, tmp_path) -> None:
    rate = open_artifact(mixed).summary.mean_rate
    assert rate == pytest.approx(0.5, abs=0.02)
    with pytest.raises(NotIdentifiableError, match="the mean tuple rate ᾱ = "):
        trained(mixed, tmp_path / "pooled", prior=rate, mixing="pooled")
    stratified = trained(mixed, tmp_path / "stratified", prior=rate)
    sided = trained(mixed, tmp_path / "sided", prior=rate, mixing="pooled", margin_policy="resample")
    assert accuracy(stratified, 0.5) > bayes_accuracy(0.5) - 0.015
    assert accuracy(sided, 0.5) > bayes_accuracy(0.5) - 0.015
    assert (last_epoch(sided)["downweighted"], last_epoch(sided)["skipped"]) == (0, 0)


def test_assigned_batches_keep_a_margin_that_chance_breaks(mixed, tmp_path) -> None:
    """Small batches: by chance a few have nearly one rate only; assigned ones have the gap of all data."""
    settings = {"prior": 0.5, "batch_size": 32, "margin": 0.2, "epochs": 1}
    assert last_epoch(trained(mixed, tmp_path / "chance", **settings))["downweighted"] > 0
    assert last_epoch(trained(mixed, tmp_path / "assigned", **settings, margin_policy="resample"))["downweighted"] == 0


def test_weights_move_the_pool_to_the_prior_that_is_trained_with(shifted) -> None:
    """The labels of U stay what they are; it is distributed as a pool of that prior would be."""
    tuples = open_artifact(shifted)
    positive = read_oracle(tuples, "oracle/train-unlabeled.h5")["labels"].astype(bool)
    x = np.concatenate([read_instances(tuples, name) for name in unlabeled_shard_names(tuples, "train")])[:, 0]
    for prior in (0.5, 0.7, 0.1):
        inside, weights = prior_weights(TrainConfig(prior=prior), StoredTuples(tuples))
        assert (inside == 1).all()
        assert weights.mean() == pytest.approx(1, abs=1e-5)
        for h in (x, x > 0, x > 2, x < -2):
            pool = prior * h[positive].mean() + (1 - prior) * h[~positive].mean()
            assert np.average(h, weights=weights) == pytest.approx(pool, abs=0.06)


def test_a_pool_within_the_margin_is_left_as_it_is(shifted) -> None:
    weights = prior_weights(TrainConfig(prior=0.22), StoredTuples(open_artifact(shifted)))[1]
    assert np.array_equal(weights, np.ones(len(weights)))


def test_a_pool_of_another_prior_teaches_the_right_classifier_only_if_it_is_weighted(shifted, tmp_path) -> None:
    """π = 0.7 where U has 0.2, on the other side of α = 1/3: the plain risk learns the classes exchanged."""
    plain = trained(shifted, tmp_path / "plain", prior=0.7)
    weighted = trained(shifted, tmp_path / "weighted", prior=0.7, margin_policy="reweight")
    assert accuracy(plain, 0.7) < 0.3
    assert accuracy(weighted, 0.7) > bayes_accuracy(0.7) - 0.04
    assert last_epoch(weighted)["heldout_risk"] is None  # held-out instances have no weights


def test_a_pool_cannot_be_weighted_where_its_prior_is_known_only_up_to_exchange(tmp_path) -> None:
    make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=("2:1",), prior=0.2), tmp_path / "tuples")
    with pytest.raises(NotIdentifiableError, match="the prior of the unlabeled pool cannot be estimated") as error:
        trained(tmp_path / "tuples", tmp_path / "run", prior=0.7, margin_policy="reweight")
    assert error.value.exit_code == 4
    assert not (tmp_path / "run").exists()


def test_trainings_with_assigned_batches_are_the_same_again(mixed, tmp_path) -> None:
    settings = {"prior": 0.5, "mixing": "pooled", "margin_policy": "resample", "epochs": 2}
    first, second = (trained(mixed, tmp_path / name, **settings) for name in "ab")
    assert first.sha256 == second.sha256
