"""Training for real, in seconds: what is learned is compared with what the best possible rule reaches."""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import known_answers
import numpy as np
import pytest
from known_answers import bayes_accuracy
from numpy.typing import NDArray
from safetensors.torch import load_file
from scipy.stats import norm

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.layout import WEIGHTS
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

CPU = TrainOptions(device="cpu")
SEPARATION = 3.0
GAUSSIANS = "gaussians:dim=2,separation=3,size=4000,test=4000"
LINEAR: dict[str, Any] = {"model": "linear", "lr": 0.1, "weight_decay": 0.0, "epochs": 12}
MLP: dict[str, Any] = {"model": "mlp", "epochs": 5}


@dataclass(frozen=True)
class Learned:
    run: Artifact
    prior: float

    @property
    def accuracy(self) -> float:
        """On a population with the prior of the unlabeled pool."""
        return known_answers.accuracy(self.run, self.prior)

    def line(self) -> tuple[NDArray[np.float64], float]:
        """Weights and bias of a linear scorer on raw instances."""
        state = {k: v.double().numpy() for k, v in load_file(self.run.path / WEIGHTS).items()}
        weight = state["network.1.weight"][0]
        return weight * state["factor"], float(state["network.1.bias"][0] - weight @ state["shift"])


def learn(folder: Path, data: dict[str, Any], **settings: Any) -> Learned:
    make_tuples(MakeTuplesConfig(**data), folder / "tuples")
    config = TrainConfig(**{"prior": data["prior"], "clamp": "abs", "select": "last", "trace_every": 0, **settings})
    return Learned(train(config, folder / "tuples", folder / "run", CPU), data["prior"])


def test_the_best_accuracy_at_even_classes_is_the_known_one() -> None:
    assert bayes_accuracy(0.5) == pytest.approx(norm.cdf(SEPARATION / 2))


@pytest.mark.parametrize(
    ("tuples", "prior", "clamp"),
    [
        (("3:1",), 0.8, "none"),
        (("3:1",), 0.8, "relu"),
        (("3:1",), 0.8, "abs"),
        (("3:1", "3:2"), 0.5, "abs"),
        (("3:1", "3:2"), 0.5, "relu"),
        (("2-5:~0.3",), 0.8, "abs"),
        (("5:4",), 0.3, "relu"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, tuple) else str(value),
)
def test_a_line_learned_from_counts_is_the_true_discriminant(
    tmp_path: Path, tuples: tuple[str, ...], prior: float, clamp: str
) -> None:
    learned = learn(tmp_path, {"dataset": GAUSSIANS, "tuples": tuples, "prior": prior}, **LINEAR, clamp=clamp)
    weight, bias = learned.line()
    assert weight[0] / np.linalg.norm(weight) > 0.95
    assert -bias / weight[0] == pytest.approx(-log(prior / (1 - prior)) / SEPARATION, abs=0.35)
    assert learned.accuracy > bayes_accuracy(prior) - 0.015


@pytest.mark.parametrize("loss", ["logistic", "ramp"])
def test_every_loss_leads_to_the_discriminant(tmp_path: Path, loss: str) -> None:
    learned = learn(tmp_path, {"dataset": GAUSSIANS, "tuples": ("3:1",), "prior": 0.8}, **LINEAR, loss=loss)
    weight, _ = learned.line()
    assert weight[0] / np.linalg.norm(weight) > 0.95
    assert learned.accuracy > bayes_accuracy(0.8) - 0.02


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("tuples", "prior", "clamp"),
    [(("3:1",), 0.8, "relu"), (("3:1", "3:2"), 0.5, "abs")],
)
def test_a_network_learned_from_counts_comes_close_to_the_best_rule(
    tmp_path: Path, tuples: tuple[str, ...], prior: float, clamp: str
) -> None:
    learned = learn(tmp_path, {"dataset": GAUSSIANS, "tuples": tuples, "prior": prior}, **MLP, clamp=clamp)
    assert learned.accuracy > bayes_accuracy(prior) - 0.03


def test_mirrored_rates_do_not_mirror_what_is_learned(tmp_path: Path) -> None:
    """α below and above π: the sign of π − α changes, the discriminant does not."""
    for name, data in {
        "below": {"tuples": ("3:1",), "prior": 0.6},
        "above": {"tuples": ("6:5",), "prior": 0.4},
    }.items():
        weight, _ = learn(tmp_path / name, {"dataset": GAUSSIANS, **data}, **LINEAR).line()
        assert weight[0] / np.linalg.norm(weight) > 0.95, name


MIXED = {"dataset": GAUSSIANS, "tuples": ("3:1", "3:2"), "prior": 0.5}


def test_pooled_mixing_is_refused_where_the_mean_rate_is_the_prior(tmp_path: Path) -> None:
    tuples = make_tuples(MakeTuplesConfig(**MIXED), tmp_path / "tuples")
    rate = tuples.summary.mean_rate
    assert rate == pytest.approx(0.5, abs=0.02)
    with pytest.raises(NotIdentifiableError) as error:
        train(TrainConfig(prior=rate, mixing="pooled"), tmp_path / "tuples", tmp_path / "run", CPU)
    assert error.value.message.startswith("the risk is not identifiable: the mean tuple rate ᾱ = ")
    assert error.value.exit_code == 4
    assert not (tmp_path / "run").exists()
    stratified = TrainConfig(prior=rate, select="last", **LINEAR)
    run = Learned(train(stratified, tmp_path / "tuples", tmp_path / "run", CPU), 0.5)
    assert run.accuracy > bayes_accuracy(0.5) - 0.015


@pytest.mark.slow
def test_pooled_mixing_is_left_to_chance_where_the_mean_rate_is_nearly_the_prior(tmp_path: Path) -> None:
    pooled = [learn(tmp_path / f"pooled-{seed}", MIXED, **LINEAR, mixing="pooled", seed=seed) for seed in range(6)]
    stratified = learn(tmp_path / "stratified", MIXED, **LINEAR)
    assert stratified.accuracy > bayes_accuracy(0.5) - 0.015
    # Measured: one seed in five is oriented right by chance.
    assert min(run.accuracy for run in pooled) < stratified.accuracy - 0.2


def test_tuples_at_the_prior_are_refused_before_an_epoch_is_spent(tmp_path: Path) -> None:
    data = {"dataset": GAUSSIANS, "tuples": ("2:1",), "prior": 0.5}
    with pytest.raises(NotIdentifiableError, match=r"every tuple's rate equals the prior π = 0\.5"):
        learn(tmp_path, data, **LINEAR)
    assert not (tmp_path / "run").exists()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("clamp", ["relu", "abs"])
def test_digits_are_told_apart_from_counts_of_one_rate(tmp_path: Path, clamp: str) -> None:
    learned = learn(tmp_path, {"dataset": "digits", "tuples": ("3:1",), "prior": 0.7}, epochs=15, clamp=clamp)
    assert learned.accuracy > 0.75  # .88 ± .025 over ten seeds


def test_digits_are_told_apart_from_counts_of_two_rates_around_the_prior(tmp_path: Path) -> None:
    learned = learn(tmp_path, {"dataset": "digits", "tuples": ("3:1", "3:2"), "prior": 0.5}, epochs=12)
    assert learned.accuracy > 0.9
