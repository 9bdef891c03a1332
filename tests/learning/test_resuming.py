"""A saved state is used only where it fits: names, shapes, types and the epoch that it claims to be in."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from test_loop import Memory, job, run

from ntmp_cli.errors import InterruptedRunError
from ntmp_cli.learning.loop import State
from ntmp_cli.learning.resuming import UnfitStateError

SETTINGS: dict[str, Any] = {"epochs": 3, "ema": 0.9, "select": "best", "trace_every": 1}


def saved(optimizer: str = "adam", steps: int = 6) -> State:
    """The state of a training that was interrupted after `steps` steps; an epoch has four."""
    memory = Memory()
    work = job(checkpoints=memory, optimizer=optimizer, **SETTINGS)
    stops = iter([False] * steps + [True])
    work.environment = replace(work.environment, stop=lambda: next(stops))
    with pytest.raises(InterruptedRunError):
        run(work)
    (state,) = memory.states
    return state


def resume(state: State, optimizer: str = "adam") -> Any:
    memory = Memory()
    memory.resume = state
    return run(job(checkpoints=memory, optimizer=optimizer, **SETTINGS))


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("steps", [0, 1, 4, 6, 11])
def test_an_own_state_fits_at_every_moment(optimizer, steps):
    whole = run(job(optimizer=optimizer, **SETTINGS))
    again = resume(saved(optimizer, steps), optimizer)
    assert [r.fields for r in again.records] == [r.fields for r in whole.records]
    assert all(torch.equal(again.weights[name], value) for name, value in whole.weights.items())


def changed(*path: str | int, to: Callable[[Any], Any]) -> Callable[[State], None]:
    def change(state: State) -> None:
        inner: Any = state
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = to(inner[path[-1]])

    return change


def removed(*path: str | int) -> Callable[[State], None]:
    def change(state: State) -> None:
        inner: Any = state
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return change


def wider(value: Any) -> Any:
    return torch.cat([value, value], dim=-1)


UNFIT = {
    "wider weights": (
        changed("model", "network.1.weight", to=wider),
        "model.network.1.weight is a 1×4 tensor of float32, ",
    ),
    "other type": (
        changed("model", "network.1.bias", to=torch.Tensor.double),
        "model.network.1.bias is a 1 tensor of float64",
    ),
    "no tensor": (changed("average", "network.1.bias", to=lambda v: [0.0]), "average.network.1.bias is list, expected"),
    "missing weight": (removed("model", "network.1.bias"), "model lacks or adds network.1.bias"),
    "missing key": (removed("telemetry"), "the state lacks or adds telemetry"),
    "optimizer's buffer": (
        changed("optimizer", "state", 0, "exp_avg", to=wider),
        "optimizer.state.0.exp_avg is a 1×4 tensor of float32, expected a 1×2 tensor of float32",
    ),
    "optimizer's missing buffer": (removed("optimizer", "state", 0, "exp_avg_sq"), "optimizer.state.0 lacks or adds"),
    "optimizer's unknown parameter": (
        changed("optimizer", "state", to=lambda s: {**s, 7: s[0]}),
        "optimizer.state has buffers of unknown parameters",
    ),
    "optimizer's group": (changed("optimizer", "param_groups", 0, "params", to=lambda p: p[:1]), "has 1 entries"),
    "optimizer's rate": (changed("optimizer", "param_groups", 0, "lr", to=str), "lr is str, expected float"),
    "no optimizer": (changed("optimizer", to=lambda o: None), "optimizer is not the state of one"),
    "kept weights": (changed("weights", "network.1.weight", to=wider), "weights.network.1.weight is a 1×4 tensor"),
    "kept weights of no epoch": (changed("weights", to=lambda w: {}), "weights are kept of no epoch"),
    "best": (changed("best", "value", to=str), "best is not a risk"),
    "epoch beyond the last": (changed("epoch", to=lambda e: 9), "epoch 9 and step 2 are not of a training of 3 epochs"),
    "epoch of another type": (changed("epoch", to=float), "epoch is float, expected int"),
    "selected epoch to come": (changed("selected_epoch", to=lambda e: 2), "are not of a training"),
    "negative step": (changed("step", to=lambda s: -1), "step -1"),
    "losses of other shape": (changed("losses", 0, to=lambda v: v.reshape(1)), "losses holds something else"),
    "more losses than steps": (changed("losses", to=lambda v: v * 2), "losses is not a list of at most 2 entries"),
    "less telemetry": (changed("telemetry", to=lambda v: v[:1]), "of unequal length"),
    "mixed telemetry": (changed("telemetry", 0, to=wider), "telemetry holds tensors of several shapes"),
    "record missing": (changed("records", to=lambda r: []), "records are not of 1 epochs"),
    "record of another epoch": (changed("records", 0, "epoch", to=lambda e: 2), "records.1 is of another epoch"),
    "record's field": (removed("records", 0, "seconds"), "records.1 lacks or adds a field"),
    "record's type": (changed("records", 0, "seconds", to=str), "records.1.seconds is str, expected float"),
    "record's scores": (
        changed("records", 0, "test_scores", to=wider),
        "records.1.test_scores is a 240 tensor of float64, expected a 120 tensor of float64",
    ),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_state_that_does_not_fit_is_refused(name):
    change, problem = UNFIT[name]
    state = copy.deepcopy(saved())
    change(state)
    with pytest.raises(UnfitStateError) as caught:
        resume(state)
    assert caught.value.message.startswith("the checkpoint does not fit this training: ")
    assert problem in caught.value.message
    assert caught.value.exit_code == 3


def test_a_state_of_another_optimiser_is_refused():
    with pytest.raises(UnfitStateError, match="does not fit this training: optimizer"):
        resume(saved("sgd"), "adam")
