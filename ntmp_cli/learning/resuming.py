"""Checks that a saved training state fits the training that resumes from it.

Optimisers written in C++ do not check the shapes of their state. Therefore names, shapes and types are compared with
those of a fresh state before anything is restored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ntmp_cli.errors import ArtifactError

State = Mapping[str, Any]


class UnfitStateError(ArtifactError):
    """A saved state of another network, optimiser or data; the message says what differs."""


def require_fitting(state: State, fresh: State, epochs: int, test_rows: int | None) -> None:
    """Refuse a state that is not like `fresh`, the state before the first step, or contradicts itself.

    The optimiser of `fresh` has made a step, so that its buffers exist to compare with. `test_rows` is the length
    of test scores, None in a process that does not score.
    """
    problem = (
        _difference(set(state), set(fresh), "the state")
        or _difference(_plain(state), _plain(fresh), "")
        or _optimizer(state["optimizer"], fresh["optimizer"])
        or _selection(state, fresh)
        or _progress(state, epochs)
        or _records(state["records"], state["epoch"], test_rows)
    )
    if problem is not None:
        raise UnfitStateError(f"the checkpoint does not fit this training: {problem}")


def require_finished(state: Any, model: State, epochs: int, test_rows: int | None) -> None:
    """Refuse the result of a finished training that is not of this network; `model` is its fresh state."""
    keys = {"selected_epoch", "best", "weights", "records"}
    problem = "the first start is no result"
    if isinstance(state, dict) and state.keys() == keys and isinstance(state["selected_epoch"], int):
        selected = 1 <= state["selected_epoch"] <= epochs
        problem = (
            (None if selected else f"no epoch is selected of the first start of {epochs}")
            or _selection(state, {"model": model})
            or _records(state["records"], epochs + 1, test_rows)
            or ""
        )
    if problem:
        raise UnfitStateError(f"the checkpoint does not fit this training: {problem}")


def _plain(state: State) -> dict[str, Any]:
    """The entries whose names and shapes do not change during a training."""
    return {key: state[key] for key in ("model", "average", "updates", "epoch", "step", "selected_epoch")}


def _difference(saved: Any, expected: Any, where: str) -> str | None:
    """The first place where two states are of other names, shapes or types."""
    if isinstance(expected, Tensor):
        fits = isinstance(saved, Tensor) and (saved.shape, saved.dtype) == (expected.shape, expected.dtype)
        return None if fits else f"{where} is {_describe(saved)}, expected {_describe(expected)}"
    if type(saved) is not type(expected):
        return f"{where} is {_describe(saved)}, expected {_describe(expected)}"
    if isinstance(expected, set):
        odd = sorted(map(str, saved ^ expected))
        return f"{where} lacks or adds {', '.join(odd[:3])}" if odd else None
    if isinstance(expected, dict):
        inner = ((saved[key], expected[key], f"{where}.{key}".strip(".")) for key in expected if key in saved)
        return _difference(set(saved), set(expected), where or "the state") or _first(inner)
    if isinstance(expected, list | tuple):
        if len(saved) != len(expected):
            return f"{where} has {len(saved)} entries, expected {len(expected)}"
        return _first((a, b, f"{where}.{i}") for i, (a, b) in enumerate(zip(saved, expected, strict=True)))
    return None


def _first(triples: Any) -> str | None:
    return next((problem for triple in triples if (problem := _difference(*triple)) is not None), None)


def _optimizer(saved: Any, expected: State) -> str | None:
    """Parameters that got no gradient yet have no buffers."""
    if not isinstance(saved, dict) or saved.keys() != expected.keys():
        return "optimizer is not the state of one"
    buffers = saved["state"]
    if not isinstance(buffers, dict) or not buffers.keys() <= expected["state"].keys():
        return "optimizer.state has buffers of unknown parameters"
    used = {key: expected["state"][key] for key in buffers}
    return _difference(buffers, used, "optimizer.state") or _difference(
        saved["param_groups"], expected["param_groups"], "optimizer.param_groups"
    )


def _selection(state: State, fresh: State) -> str | None:
    """The weights kept so far, and the risk that they were chosen by."""
    if state["weights"] and (problem := _difference(state["weights"], fresh["model"], "weights")) is not None:
        return problem
    if bool(state["weights"]) != (state["selected_epoch"] > 0):
        return "weights are kept of no epoch, or none of a selected one"
    best = state["best"]
    if best is None:
        return None
    fits = (
        isinstance(best, dict)
        and best.keys() == {"value", "per_tuple"}
        and isinstance(best["value"], float)
        and (best["per_tuple"] is None or (isinstance(best["per_tuple"], Tensor) and best["per_tuple"].ndim == 1))
    )
    return None if fits else "best is not a risk"


def _progress(state: State, epochs: int) -> str | None:
    epoch, step = state["epoch"], state["step"]
    if not (1 <= epoch <= epochs and step >= 0 and state["updates"] >= 0 and 0 <= state["selected_epoch"] < epoch):
        return f"epoch {epoch} and step {step} are not of a training of {epochs} epochs"
    for key, dimensions in (("losses", 0), ("telemetry", 1)):
        values = state[key]
        if not isinstance(values, list) or len(values) > step:
            return f"{key} is not a list of at most {step} entries"
        if any(not isinstance(value, Tensor) or value.ndim != dimensions for value in values):
            return f"{key} holds something else than tensors of {dimensions} dimensions"
        if len({(value.shape, value.dtype) for value in values}) > 1:
            return f"{key} holds tensors of several shapes"
    return None if len(state["losses"]) == len(state["telemetry"]) else "losses and telemetry are of unequal length"


def _records(records: Any, epoch: int, test_rows: int | None) -> str | None:
    """One record for every epoch that is done."""
    like = {"epoch": 0, "fields": {}, "test_scores": None, "seconds": 0.0, "instances": 0}
    if not isinstance(records, list) or len(records) != epoch - 1:
        return f"records are not of {epoch - 1} epochs"
    for number, record in enumerate(records, start=1):
        where = f"records.{number}"
        if not isinstance(record, dict) or record.keys() != like.keys():
            return f"{where} lacks or adds a field"
        scores = record["test_scores"]
        plain = {**record, "fields": {}, "test_scores": None}
        if (problem := _difference(plain, like, where)) is not None:
            return problem
        if record["epoch"] != number or not isinstance(record["fields"], dict):
            return f"{where} is of another epoch"
        if scores is None:
            continue
        rows = scores.numel() if test_rows is None and isinstance(scores, Tensor) else test_rows or 0
        expected = torch.empty(rows, dtype=torch.float64, device="meta")
        if (problem := _difference(scores, expected, f"{where}.test_scores")) is not None:
            return problem
    return None


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a {'×'.join(map(str, value.shape)) or 'single'} tensor of {str(value.dtype).removeprefix('torch.')}"
    return type(value).__name__
