"""`count` learns and ends on the right side of the mirror; where no side can be known it says so."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from ntmp_cli.artifacts.oracle import read_test_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.methods.count import looks_mirrored
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import train

GAUSSIANS = "gaussians:dim=2,separation=3,size=4000,test=4000"


def accuracy(folder: Path, data: dict[str, Any], **settings: Any) -> float:
    """On a population with the prior of the unlabeled pool."""
    prior = data["prior"]
    make_tuples(MakeTuplesConfig(**data), folder / "tuples")
    config = TrainConfig(**{"prior": prior, "method": "count", "trace_every": 0, **settings})
    run = train(config, folder / "tuples", folder / "run", device="cpu")
    (scores,), labels = read_scores(run, "test"), read_test_labels(run)
    correct = (scores > 0) == labels
    return float(prior * correct[labels].mean() + (1 - prior) * correct[~labels].mean())


def bayes(prior: float, separation: float = 3.0) -> float:
    shift = log(prior / (1 - prior)) / separation
    return float(prior * norm.cdf(separation / 2 + shift) + (1 - prior) * norm.cdf(separation / 2 - shift))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("spec", "prior"), [("3:1", 0.8), ("3:1", 0.2), ("3:2", 0.2), ("2:1", 0.8), ("7:2", 0.5), ("3:1", 1 / 3)]
)
def test_count_ends_on_the_right_side_near_the_best_rule(tmp_path: Path, spec: str, prior: float, seed: int) -> None:
    data = {"dataset": GAUSSIANS, "tuples": (spec,), "prior": prior, "seed": seed}
    reached = accuracy(tmp_path, data, model="linear", lr=0.1, weight_decay=0.0, epochs=8, seed=seed)
    assert reached > bayes(prior) - 0.03


def test_count_learns_more_from_digits_than_the_risk_does(tmp_path: Path) -> None:
    data = {"dataset": "digits", "tuples": ("3:1",), "prior": 0.5}
    assert accuracy(tmp_path / "count", data) > 0.93
    assert accuracy(tmp_path / "ure", data, method="ure") < 0.93


def test_mixed_tuples_train(tmp_path: Path) -> None:
    data = {"dataset": GAUSSIANS, "tuples": ("3:1", "5:~0.6", "2-4:0-1@0.5"), "prior": 0.4}
    assert accuracy(tmp_path, data, model="linear", lr=0.1, weight_decay=0.0, epochs=8) > bayes(0.4) - 0.03


def test_count_refuses_what_has_no_orientation(tmp_path: Path) -> None:
    data = {"dataset": GAUSSIANS, "tuples": ("2:1", "4:2"), "prior": 0.5}
    with pytest.raises(NotIdentifiableError, match="cannot be told apart"):
        accuracy(tmp_path, data, model="linear")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("n", "m"), [(3, 1), (3, 2), (5, 1), (7, 2)])
def test_the_mirror_is_seen_in_the_likelihood_alone(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    labels = np.tile(np.arange(n) < m, (400, 1))
    z = (rng.normal(np.where(labels, 1.5, -1.5), 1.0)).astype(np.float32).reshape(-1)
    sizes, counts = np.full(400, n), np.full(400, m)
    assert not looks_mirrored(z, sizes, counts)
    assert looks_mirrored(-z, sizes, counts)
