"""Orientation by itself: a flip exchanges the classes in network, average and momentum, on every rank alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.averaging import WeightAverage
from ntmp_cli.learning.callbacks import EpochEnd, Networks
from ntmp_cli.learning.groups import require_orientation
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.models import build_scorer, predict
from ntmp_cli.learning.orientation import Orientation, flip
from ntmp_cli.learning.processes import OneProcess

DIM = 4
X = np.random.default_rng(0).standard_normal((30, DIM)).astype(np.float32)


def networks(ema: float = 0.9, optimizer: str = "adam", model: str = "mlp") -> Networks:
    """A network after a few steps, so that its optimiser has momentum."""
    ones, zeros = np.ones(DIM, dtype=np.float32), np.zeros(DIM, dtype=np.float32)
    network = build_scorer(model, (DIM,), ones, zeros, 0)
    average = WeightAverage(network, ema)
    steps = {
        "adam": torch.optim.Adam(network.parameters(), 0.01),
        "sgd": torch.optim.SGD(network.parameters(), 0.01, momentum=0.9),
    }[optimizer]
    for _ in range(3):
        steps.zero_grad()
        network(torch.from_numpy(X)).square().mean().backward()
        steps.step()
        average.update()
    return Networks(network, average, steps)


def scores_of(made: Networks) -> HeldoutScores:
    scores = predict(made.average.model, X)
    return HeldoutScores(scores[:15], np.full(5, 3), np.ones(5, np.int64), scores[15:])


def epoch_end(made: Networks, processes: OneProcess | None = None, scored: bool = True) -> EpochEnd:
    def score() -> HeldoutScores | None:
        return scores_of(made) if scored else None

    return EpochEnd(made, processes or OneProcess(), {}, score, score)


@pytest.mark.parametrize("ema", [0.0, 0.9])
@pytest.mark.parametrize("centre", [0.0, -0.7])
def test_a_flip_mirrors_the_scores_of_the_network_and_of_its_average(ema, centre):
    made = networks(ema)
    before = [predict(model, X) for model in (made.model, made.average.model)]
    flip(made, centre)
    after = [predict(model, X) for model in (made.model, made.average.model)]
    for old, new in zip(before, after, strict=True):
        assert np.allclose(new, 2 * centre - old, atol=1e-5)


@pytest.mark.parametrize(("optimizer", "key"), [("adam", "exp_avg"), ("sgd", "momentum_buffer")])
def test_momentum_of_the_last_layer_is_negated_and_no_other(optimizer, key):
    """The gradient of a mirrored score has the other sign; what was gathered of it must follow."""
    made = networks(optimizer=optimizer)
    state = made.optimizer.state
    last = list(made.model.parameters())[-2:]
    before = {id(p): state[p][key].clone() for p in made.model.parameters()}
    squares = {id(p): state[p]["exp_avg_sq"].clone() for p in last} if optimizer == "adam" else {}
    flip(made, 0.3)
    for parameter in made.model.parameters():
        sign = -1 if any(parameter is negated for negated in last) else 1
        assert torch.equal(state[parameter][key], sign * before[id(parameter)])
    assert all(before[id(p)].abs().sum() > 0 for p in last)
    assert all(torch.equal(state[p]["exp_avg_sq"], squares[id(p)]) for p in last if squares)


def test_a_flip_before_the_first_step_needs_no_momentum():
    made = networks()
    fresh = Networks(made.model, made.average, torch.optim.Adam(made.model.parameters()))
    before = predict(made.model, X)
    flip(fresh, 0.0)
    assert np.allclose(predict(made.model, X), -before, atol=1e-6)


def test_a_network_is_flipped_where_the_data_say_so_and_scored_again():
    made = networks()
    end = epoch_end(made)
    before = end.heldout
    Orientation(lambda heldout: 0.25).on_epoch(end)
    assert end.fields == {"flipped": True}
    assert np.allclose(end.heldout.tuple_scores, 0.5 - before.tuple_scores, atol=1e-5)


def test_a_network_that_is_oriented_stays_as_it_is_and_is_not_scored_twice():
    made = networks()
    end = epoch_end(made)
    state, before = {k: v.clone() for k, v in made.model.state_dict().items()}, end.heldout
    Orientation(lambda heldout: None).on_epoch(end)
    assert end.fields == {}
    assert end.heldout is before
    assert all(torch.equal(value, state[key]) for key, value in made.model.state_dict().items())


class Told(OneProcess):
    """Another rank than the first: it scores nothing, and hears what the first one decided."""

    rank, size = 1, 2

    def __init__(self, says: Any) -> None:
        self.says = says
        self.sent: list[Any] = []

    def broadcast(self, value: Any) -> Any:
        self.sent.append(value)
        return self.says


@pytest.mark.parametrize("centre", [None, 0.25])
def test_other_ranks_decide_nothing_and_follow_the_first(centre):
    made, rank = networks(), Told(centre)
    before = predict(made.model, X)

    def refuse(heldout: HeldoutScores) -> float:
        raise AssertionError("only the first rank has scores to decide by")

    end = epoch_end(made, rank, scored=False)
    Orientation(refuse).on_epoch(end)
    assert rank.sent == [None]
    expected = before if centre is None else 2 * centre - before
    assert np.allclose(predict(made.model, X), expected, atol=1e-5)
    assert ("flipped" in end.fields) == (centre is not None)


@pytest.mark.parametrize(
    ("symmetric", "prior", "refused"), [(True, 0.5, True), (True, 0.49, False), (False, 0.5, False)]
)
def test_only_what_is_half_positive_throughout_is_refused(symmetric, prior, refused):
    if not refused:
        require_orientation(symmetric, prior)
        return
    with pytest.raises(NotIdentifiableError, match="the orientation is not identifiable"):
        require_orientation(symmetric, prior)
