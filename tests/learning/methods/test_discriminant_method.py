"""The closed form through the stages: the true line on Gaussians, the right side, and a teacher for networks."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file
from scipy.special import expit
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import Artifact, open_artifact
from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import HISTORY, WEIGHTS
from ntmp_cli.artifacts.oracle import read_labels, read_oracle
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.data.labelled import load_labelled
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.closed_form import discriminant_targets
from ntmp_cli.learning.method import FitData, methods
from ntmp_cli.learning.training_data import training_shares
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

CPU = TrainOptions(device="cpu")
GAUSSIANS = "gaussians:dim=3,separation=3,size=4000,test=2000"
# Networks need few of them: the best rule has an area of .983 under its curve.
FEW_GAUSSIANS = "gaussians:dim=3,separation=3,size=1200,test=1000"
NETWORK: dict[str, Any] = {"model": "mlp", "weight_decay": 0.0, "epochs": 8, "trace_every": 0}


def learn(folder: Path, specs: tuple[str, ...], prior: float, seed: int = 0, **settings: Any) -> Artifact:
    dataset = settings.pop("dataset", GAUSSIANS)
    make_tuples(MakeTuplesConfig(dataset=dataset, tuples=specs, prior=prior, seed=seed), folder / "tuples")
    config = TrainConfig(**{"method": "discriminant", "prior": prior, **settings})
    return train(config, folder / "tuples", folder / "run", CPU)


def line(run: Artifact) -> tuple[np.ndarray, float]:
    """Weight and bias on raw instances."""
    state = {k: v.double().numpy() for k, v in load_file(run.path / WEIGHTS).items()}
    weight = state["network.1.weight"][0]
    return weight * state["factor"], float(state["network.1.bias"][0] - weight @ state["shift"])


def auc(run: Artifact) -> float:
    scores = read_scores(run)["test"]
    return float(roc_auc_score(read_labels(run), scores))


@pytest.mark.parametrize(
    ("specs", "prior"),
    [(("3:1",), 0.8), (("3:2",), 0.2), (("5:2",), 0.5), (("3:1", "3:2"), 0.5), (("2-5:~0.3",), 0.7), (("2:1",), 0.8)],
)
def test_the_line_is_the_true_discriminant(tmp_path: Path, specs: tuple[str, ...], prior: float) -> None:
    """log p₊(x)/p₋(x) + logit π = 3x₁ + logit π, and nearly what LDA finds with the labels."""
    run = learn(tmp_path, specs, prior)
    weight, bias = line(run)
    assert weight[0] / np.linalg.norm(weight) > 0.98
    assert weight[0] == pytest.approx(3.0, abs=0.5)
    assert bias == pytest.approx(log(prior / (1 - prior)), abs=0.45)
    data = load_labelled(GAUSSIANS)
    oracle = LinearDiscriminantAnalysis(priors=[1 - prior, prior]).fit(data.x_train, data.y_train)
    assert weight @ oracle.coef_[0] / np.linalg.norm(weight) / np.linalg.norm(oracle.coef_[0]) > 0.98
    scores = read_scores(run)["test"]
    assert ((scores > 0) == (oracle.decision_function(data.x_test) > 0)).mean() > 0.95


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("spec", "prior"), [("3:1", 1 / 3), ("3:2", 2 / 3)])
def test_where_every_rate_is_the_prior_the_likelihood_decides_the_side(
    tmp_path: Path, spec: str, prior: float, seed: int
) -> None:
    run = learn(tmp_path, (spec,), prior, seed)
    (record,) = read_json_lines(run, HISTORY)
    assert record["oriented_by"] == "likelihood"
    assert record["first_order_weight"] == 0
    assert record["second_order_weight"] > 0
    weight, _ = line(run)
    assert weight[0] / np.linalg.norm(weight) > 0.95
    assert auc(run) > 0.95


def test_where_rates_differ_the_first_order_decides_the_side(tmp_path: Path) -> None:
    (record,) = read_json_lines(learn(tmp_path, ("3:1",), 0.8), HISTORY)
    assert record["oriented_by"] == "first order"
    assert record["first_order_z"] > 3
    assert record["separation"] == pytest.approx(3.0, abs=0.3)


@pytest.mark.parametrize("settings", [{}, {"method": "count", "warmup": "discriminant"}, {"method": "count"}])
def test_what_is_symmetric_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    with pytest.raises(NotIdentifiableError, match="the orientation is not identifiable") as error:
        learn(tmp_path, ("2:1", "4:2"), 0.5, **settings)
    assert error.value.exit_code == 4
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("specs", [("1:0", "1:1"), ("3:0",), ("4:4",)])
def test_tuples_without_mixed_pairs_leave_the_first_order(tmp_path: Path, specs: tuple[str, ...]) -> None:
    run = learn(tmp_path, specs, 0.5)
    (record,) = read_json_lines(run, HISTORY)
    assert record["second_order_weight"] == 0
    assert record["first_order_weight"] > 0
    assert auc(run) > 0.95


def test_instances_that_are_all_equal_are_refused() -> None:
    sizes, counts, ones = np.full(20, 3), np.full(20, 1), np.ones((60, 4), dtype=np.float32)
    data = FitData(lambda: iter([(ones, sizes, counts)]), lambda: iter([ones[:30]]))
    method = methods.get("discriminant")(TrainConfig(method="discriminant", prior=0.6), Task([(3, 1, 20)], 30))
    with pytest.raises(NotIdentifiableError, match="these tuples do not identify the class means: ") as error:
        method.fit(data)
    assert error.value.exit_code == 4


# --- the closed form as a teacher ---------------------------------------------------------------


def test_the_teacher_knows_the_count_of_every_tuple_and_the_log_odds_of_u(tmp_path: Path) -> None:
    run = learn(tmp_path, ("2-5:~0.4",), 0.7)
    tuples = open_artifact(tmp_path / "tuples")
    source = StoredTuples(tuples)
    inside, outside = discriminant_targets(TrainConfig(prior=0.7), source)
    (data,) = training_shares(source, TrainConfig(prior=0.7))
    loaded = [chunk.load() for chunk in data.tuple_chunks]
    sizes, counts = (np.concatenate([piece[i] for piece in loaded]) for i in (1, 2))
    sums = np.add.reduceat(inside.astype(np.float64), np.cumsum(sizes) - sizes)
    assert np.allclose(sums, counts, atol=1e-4)
    weight, bias = line(run)
    x = np.concatenate([chunk.load() for chunk in data.unlabeled_chunks]).astype(np.float64)
    assert np.allclose(outside, expit(x @ weight + bias), atol=1e-4)
    for what, targets in (("tuples", inside), ("unlabeled", outside)):
        labels = read_oracle(tuples, f"oracle/train-{what}.h5")["labels"]
        assert roc_auc_score(labels, targets) > 0.95


@pytest.mark.thinned(3)
@pytest.mark.parametrize("warmup", ["discriminant", "none"])
@pytest.mark.parametrize(("spec", "prior"), [("3:1", 0.8), ("3:2", 0.2), ("2:1", 0.2), ("3:1", 1 / 3)])
def test_count_ends_on_the_right_side_after_every_warm_up(tmp_path: Path, spec: str, prior: float, warmup: str) -> None:
    run = learn(tmp_path, (spec,), prior, method="count", warmup=warmup, dataset=FEW_GAUSSIANS, **NETWORK)
    assert auc(run) > 0.95
    history = read_json_lines(run, HISTORY)
    if warmup == "discriminant":
        assert history[0]["closed_form"] > 0
        assert not any("flipped" in record for record in history)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("warmup", ["discriminant", "none"])
def test_count_without_the_risk_learns_digits(tmp_path: Path, warmup: str) -> None:
    settings: dict[str, Any] = {"method": "count", "warmup": warmup, "epochs": 8, "trace_every": 0}
    assert auc(learn(tmp_path, ("3:1",), 0.6, dataset="digits", **settings)) > 0.95


@pytest.mark.slow
def test_without_a_warm_up_a_mirrored_network_is_flipped(tmp_path: Path) -> None:
    """Over some seeds of the initialisation both sides must have come up, and none may stay."""
    make_tuples(MakeTuplesConfig(dataset=FEW_GAUSSIANS, tuples=("3:1",), prior=0.7), tmp_path / "tuples")
    flipped = []
    for seed in range(3):
        config = TrainConfig(method="count", prior=0.7, warmup="none", seed=seed, **NETWORK)
        run = train(config, tmp_path / "tuples", tmp_path / f"run-{seed}", CPU)
        assert auc(run) > 0.95
        flipped.append(any("flipped" in record for record in read_json_lines(run, HISTORY)))
    assert any(flipped)
