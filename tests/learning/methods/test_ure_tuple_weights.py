"""In-tuple weights: convex ones leave the risk unbiased, equal ones have the least variance; training measures both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.methods.ure import Ure
from ntmp_cli.learning.risk import tuple_variances, tuple_weights
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train
from ntmp_cli.tuple_source import Task

SIZES = np.array([3, 5, 1, 3])


def test_weights_are_convex_and_scatter_as_uniform_ones_on_the_simplex() -> None:
    rng = np.random.default_rng(0)
    weights = [tuple_weights(SIZES, rng) / SIZES.repeat(SIZES) for _ in range(4000)]
    ends = np.cumsum(SIZES)
    for drawn in weights[:10]:
        assert (drawn > 0).all()
        assert np.add.reduceat(drawn, ends - SIZES) == pytest.approx(np.ones(4))
    squares = np.mean([np.add.reduceat(drawn**2, ends - SIZES) for drawn in weights], axis=0)
    assert squares == pytest.approx(2 / (SIZES + 1), rel=0.03)  # a standard error is .5 %


def test_variances_over_tuples_are_those_of_their_sums() -> None:
    rng = np.random.default_rng(1)
    terms, weights = rng.normal(size=SIZES.sum()), tuple_weights(SIZES, rng)
    first = np.cumsum(SIZES) - SIZES
    expected = [np.add.reduceat(terms * w, first).var() for w in (weights, 1.0)]
    found = tuple_variances(torch.from_numpy(terms), torch.from_numpy(weights), SIZES)
    assert found.numpy() == pytest.approx(np.array(expected))


def test_the_risk_with_random_weights_has_the_mean_of_the_plain_one_and_more_variance() -> None:
    """Members are exchanged at random: over orders of the members both have the same mean."""
    tuples, unlabeled = 40, 60
    sizes, counts = np.full(tuples, 3), np.full(tuples, 1)
    rng = np.random.default_rng(2)
    scores = rng.normal(0, 2, (tuples, 3)), rng.normal(0, 2, unlabeled)
    batch = Batch(torch.zeros(180, 2), sizes, counts, 120, unlabeled)
    objective = {
        name: Ure(TrainConfig(method="ure", clamp="none", prior=0.8, tuple_weights=name), Task([(3, 1, 40)], 60))
        for name in ("uniform", "random")
    }
    values: dict[str, list[float]] = {name: [] for name in objective}
    for step in range(800):
        order = rng.permuted(scores[0], axis=1)
        z = torch.from_numpy(np.concatenate([order.ravel(), scores[1]]).astype(np.float32))
        for name, method in objective.items():
            values[name].append(float(method.loss(z, method.prepare(batch, step / 800))[0]))
    plain, spread = np.mean(values["uniform"]), np.std(values["random"])
    assert np.std(values["uniform"]) < 1e-5  # a mean does not depend on the order
    assert abs(np.mean(values["random"]) - plain) < 4 * spread / np.sqrt(800)
    assert spread > 0.01


def test_training_records_the_ratio_of_variances_and_is_the_same_again(tmp_path: Path) -> None:
    data = MakeTuplesConfig(dataset="gaussians", tuples=("3:1",), prior=0.8, num_tuples=300, unlabeled_size=600)
    make_tuples(data, tmp_path / "tuples")
    common = {"prior": 0.8, "method": "ure", "model": "linear", "epochs": 2, "trace_every": 0}
    options = TrainOptions(device="cpu")
    runs = {
        name: train(TrainConfig(**common, tuple_weights=weights), tmp_path / "tuples", tmp_path / name, options)
        for name, weights in (("uniform", "uniform"), ("random", "random"), ("again", "random"))
    }
    history = {
        name: [json.loads(line) for line in (run.path / "history.jsonl").read_text().splitlines()]
        for name, run in runs.items()
    }
    assert "tuple_weight_variance_ratio" not in history["uniform"][0]
    assert history["random"] == history["again"]
    # Independent members would give 2n/(n+1) = 1.5; those of a tuple with one positive are negatively correlated.
    assert all(1.3 < record["tuple_weight_variance_ratio"] < 6 for record in history["random"])
