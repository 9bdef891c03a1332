"""Label proportions: the divergences are those of the textbook, and what is learned is what varied rates allow."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import HISTORY
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import HeldoutScores, methods
from ntmp_cli.learning.methods.llp import cross_entropy, jensen_shannon, tuple_means
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

CPU = TrainOptions(device="cpu")
GAUSSIANS = "gaussians:dim=2,separation=3,size=2000,test=1000"
LINEAR: dict[str, Any] = {"model": "linear", "lr": 0.1, "weight_decay": 0.0, "epochs": 6, "trace_every": 0}
BOTH = ["llp-bagce", "llp-js"]

inside = st.floats(1e-4, 1 - 1e-4)


def bernoulli(p: float) -> list[float]:
    return [p, 1 - p]


def at(function: Any, p: float, q: float) -> float:
    return float(function(torch.tensor([p], dtype=torch.float64), torch.tensor([q], dtype=torch.float64)))


# --- formulas -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 7), min_size=1, max_size=20), seed=st.integers(0, 1000))
def test_means_are_those_of_a_loop(sizes: list[int], seed: int) -> None:
    values = np.random.default_rng(seed).random(sum(sizes))
    ends = np.cumsum(sizes)
    expected = [values[end - n : end].sum() / n for n, end in zip(sizes, ends, strict=True)]
    assert np.allclose(tuple_means(torch.from_numpy(values), torch.tensor(sizes)).numpy(), expected, atol=1e-12)


def test_means_keep_the_precision_and_the_gradient_of_their_values() -> None:
    values = torch.arange(5.0, requires_grad=True)
    means = tuple_means(values, torch.tensor([2, 3]))
    assert means.dtype == torch.float32
    (slope,) = torch.autograd.grad(means @ torch.tensor([1.0, 10.0]), values)
    assert slope.tolist() == pytest.approx([0.5, 0.5, 10 / 3, 10 / 3, 10 / 3])


def divergence(p: list[float], q: list[float]) -> float:
    """Jensen–Shannon, the mean Kullback–Leibler distance to the middle; scipy's fails where p and q are close."""
    middle = np.add(p, q) / 2
    return float(entropy(p, middle) + entropy(q, middle)) / 2


@settings(max_examples=150, deadline=None)
@given(p=inside, q=inside)
def test_divergences_are_those_of_scipy(p: float, q: float) -> None:
    expected = entropy(bernoulli(q)) + entropy(bernoulli(q), bernoulli(p))
    assert at(cross_entropy, q, p) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert at(jensen_shannon, p, q) == pytest.approx(divergence(bernoulli(p), bernoulli(q)), abs=1e-12)


@settings(max_examples=150, deadline=None)
@given(p=st.floats(0, 1), q=st.floats(0, 1))
def test_jensen_shannon_is_symmetric_and_lies_between_zero_and_log_two(p: float, q: float) -> None:
    divergence = at(jensen_shannon, p, q)
    assert divergence == pytest.approx(at(jensen_shannon, q, p), abs=1e-15)
    # Its second order is (p−q)²/(8p(1−p)) ≥ (p−q)²/2, everywhere.
    assert (p - q) ** 2 / 2 - 1e-5 <= divergence <= log(2) + 1e-12
    if p == q:
        assert abs(divergence) < 1e-12


def test_jensen_shannon_reaches_its_ends() -> None:
    assert at(jensen_shannon, 0.0, 1.0) == pytest.approx(log(2), abs=1e-5)
    for p in (0.0, 0.3, 1.0):
        assert at(jensen_shannon, p, p) == pytest.approx(0.0, abs=1e-12)
        assert at(jensen_shannon, p, abs(p - 0.01)) > 1e-5


@settings(max_examples=60, deadline=None)
@given(q=st.floats(0, 1), p=inside)
def test_cross_entropy_is_least_where_the_laws_agree(q: float, p: float) -> None:
    assert at(cross_entropy, q, p) >= entropy(bernoulli(q)) - 1e-6
    assert at(cross_entropy, q, q) == pytest.approx(entropy(bernoulli(q)), abs=3e-6)


@pytest.mark.parametrize("function", [cross_entropy, jensen_shannon])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_predictions_of_zero_and_one_give_finite_values_and_gradients(function: Any, dtype: torch.dtype) -> None:
    z = torch.tensor([-200.0, 200.0, -200.0, 200.0], dtype=dtype, requires_grad=True)
    value = function(z.sigmoid(), torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=dtype))
    (slope,) = torch.autograd.grad(value.sum(), z)
    assert bool(value.isfinite().all())
    assert bool(slope.isfinite().all())


# --- objectives ---------------------------------------------------------------------------------

SIZES, COUNTS = np.array([3, 2, 4]), np.array([1, 2, 1])


def scored() -> tuple[Batch, torch.Tensor]:
    z = np.random.default_rng(5).normal(0, 2, 9 + 6).astype(np.float32)
    return Batch(torch.zeros(15, 2), SIZES, COUNTS, 9, 6), torch.from_numpy(z)


def by_hand(name: str, z: np.ndarray) -> float:
    p = 1 / (1 + np.exp(-z.astype(np.float64)))
    total = 0.0
    for n, m, end in zip(SIZES, COUNTS, np.cumsum(SIZES), strict=True):
        law, rate = bernoulli(p[end - n : end].mean()), bernoulli(m / n)
        if name == "llp-js":
            total += divergence(law, rate)
        else:
            total += entropy(rate) + entropy(rate, law)
    return total / len(SIZES)


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("weight", [0.0, 0.01, 0.5])
def test_the_loss_is_the_mean_mismatch_plus_the_entropy_penalty(name: str, weight: float) -> None:
    batch, z = scored()
    method = methods.get(name)(TrainConfig(method=name, prior=0.4, entropy_weight=weight), Task([(3, 1, 3)], 6))
    loss, telemetry = method.loss(z, method.prepare(batch, 0.0))
    p = 1 / (1 + np.exp(-z.numpy()[:9].astype(np.float64)))
    instances = float(np.mean([entropy(bernoulli(value)) for value in p]))
    mismatch = by_hand(name, z.numpy()[:9])
    assert telemetry.tolist() == pytest.approx([mismatch, instances], abs=1e-5)
    assert float(loss) == pytest.approx(mismatch + weight * instances, abs=1e-5)
    heldout = HeldoutScores(z.numpy()[:9], SIZES, COUNTS, z.numpy()[9:])
    risk = method.heldout_risk(heldout)
    assert risk is not None
    assert risk.value == pytest.approx(mismatch, abs=1e-6)


@pytest.mark.parametrize("name", BOTH)
def test_unlabeled_instances_do_not_enter(name: str) -> None:
    batch, z = scored()
    method = methods.get(name)(TrainConfig(method=name, prior=0.4), Task([(3, 1, 3)], 6))
    moved = torch.cat([z[:9], z[9:] + 7])
    prepared = method.prepare(batch, 0.0)
    assert float(method.loss(z, prepared)[0]) == float(method.loss(moved, prepared)[0])


# --- learning -----------------------------------------------------------------------------------


def learn(folder: Path, name: str, spec: str, prior: float = 0.4) -> Artifact:
    make_tuples(MakeTuplesConfig(dataset=GAUSSIANS, tuples=(spec,), prior=prior), folder / "tuples")
    return train(TrainConfig(method=name, prior=prior, **LINEAR), folder / "tuples", folder / "run", CPU)


@pytest.mark.parametrize("name", BOTH)
def test_varied_rates_teach_the_classes(tmp_path: Path, name: str) -> None:
    run = learn(tmp_path, name, "5:~0.5")
    scores = read_scores(run)["test"]
    assert roc_auc_score(read_labels(run), scores) > 0.95


@pytest.mark.parametrize(("name", "floor"), [("llp-bagce", entropy(bernoulli(1 / 3))), ("llp-js", 0.0)])
def test_one_rate_is_matched_perfectly_by_knowing_nothing(tmp_path: Path, name: str, floor: float) -> None:
    """With one rate the least mismatch that exists is reached by the constant 1/3.

    So the objective cannot tell the constant from a classifier: it is at its floor (the entropy of the rate, or 0)
    while scores hardly differ from one instance to the next, and a low mismatch says nothing about the classes.
    """
    run = learn(tmp_path, name, "3:1")
    last = read_json_lines(run, HISTORY)[-1]
    assert last["heldout_risk"] == pytest.approx(floor, abs=0.01)
    assert last["heldout_risk"] >= floor - 1e-9
    scores = read_scores(run)["test"]
    share = 1 / (1 + np.exp(-scores))
    assert share.mean() == pytest.approx(1 / 3, abs=0.05)
    assert share.std() < 0.1


@pytest.mark.parametrize("name", BOTH)
def test_the_constant_is_a_minimum_with_one_rate(name: str) -> None:
    """No direction in score space lowers the mismatch of the constant 1/3: nothing can be learned from there."""
    batch = Batch(torch.zeros(36, 2), np.full(10, 3), np.full(10, 1), 30, 6)
    config = TrainConfig(method=name, prior=0.4, entropy_weight=0.0)
    method = methods.get(name)(config, Task([(3, 1, 10)], 6))
    z = torch.full((36,), float(np.log(0.5)), dtype=torch.float64, requires_grad=True)
    loss, _ = method.loss(z, method.prepare(batch, 0.0))
    (slope,) = torch.autograd.grad(loss, z)
    assert float(slope.abs().max()) < 1e-7
