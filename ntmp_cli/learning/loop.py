"""The training loop: a generator of epoch records that reads from top to bottom."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from math import cos, pi
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import InterruptedRunError, NotIdentifiableError
from ntmp_cli.learning.augmentation import Augmentation, seen_at
from ntmp_cli.learning.averaging import WeightAverage
from ntmp_cli.learning.callbacks import EpochEnd, Networks, Step
from ntmp_cli.learning.method import GradientMethod, HeldoutRisk, HeldoutScores
from ntmp_cli.learning.models import Scorer, predict, snapshot
from ntmp_cli.learning.processes import OneProcess
from ntmp_cli.learning.rank_shares import RankShares
from ntmp_cli.learning.results import EpochRecord, TrainingResult, Watcher, score_heldout
from ntmp_cli.learning.resuming import require_fitting
from ntmp_cli.randomness import stream
from ntmp_cli.tuple_source import HeldoutData

State = dict[str, Any]

DIVERGED = "Use a lower learning rate, the sigmoid loss, or a clamped risk."


class Checkpoints(Protocol):
    """Storage of the state of an unfinished training."""

    def save(self, state: State) -> None: ...

    def load(self) -> State | None: ...

    def due(self) -> bool: ...


class NoCheckpoints:
    """No storage, for short trainings and trainings inside another stage."""

    def save(self, state: State) -> None:
        pass

    def load(self) -> State | None:
        return None

    def due(self) -> bool:
        return False


@dataclass(frozen=True)
class Environment:
    """Device and progress display of a training; they do not affect the result."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    checkpoints: Checkpoints = field(default_factory=NoCheckpoints)
    processes: OneProcess = field(default_factory=OneProcess)
    watcher: Watcher | None = None
    stop: Callable[[], bool] = lambda: False


@dataclass
class Job:
    """Everything that the loop needs, assembled by the trainer."""

    config: TrainConfig
    method: GradientMethod
    model: Scorer
    data: RankShares
    heldout: HeldoutData | None = None
    test: NDArray[np.generic] = field(default_factory=lambda: np.empty(0))
    # Data that decide the orientation: held-out data, or training data if there are none; None on other ranks.
    orientation: HeldoutData | None = None
    environment: Environment = field(default_factory=Environment)


@dataclass
class _Position:
    """Position in a training: the next epoch and step, and the records of the unfinished epoch."""

    epoch: int = 1
    step: int = 0
    losses: list[Tensor] = field(default_factory=list)
    telemetry: list[Tensor] = field(default_factory=list)


def train_epochs(job: Job, outcome: TrainingResult) -> Iterator[EpochRecord]:
    """Train, yielding one record per epoch; `outcome` collects them and the weights to keep."""
    config, method, env = job.config, job.method, job.environment
    model = job.model.to(env.device)
    networks = Networks(model, WeightAverage(model, config.ema), make_optimizer(model, config))
    position = _restore(job, networks, outcome)
    processes, callbacks = env.processes, method.callbacks()
    forward, drops = processes.forward(model), _has_dropout(model)
    augmentation = Augmentation(config.augment, config.seed)
    half = config.precision == "bfloat16"
    autocast = partial(torch.autocast, env.device.type, torch.bfloat16) if half else nullcontext
    yield from outcome.records

    epochs = config.known_epochs
    for epoch in range(position.epoch, epochs + 1):
        started, seen = time.perf_counter(), 0
        steps, batches = job.data.epoch(epoch, position.step)
        model.train()
        for number, batch in enumerate(batches, start=position.step):
            composition, stop = processes.all_gather_batch(batch, env.stop())
            if stop:
                position.epoch, position.step = epoch, number
                env.checkpoints.save(_state(networks, outcome, position))
                raise InterruptedRunError(
                    f"interrupted in epoch {epoch} of {epochs}, step {number} of {steps}; the state is saved",
                    hint="Repeat the command to continue; a single training needs the setting `resume`.",
                )
            progress = (epoch - 1 + number / steps) / epochs
            prepared = method.prepare(composition, progress)
            if prepared is None:
                continue
            set_learning_rate(networks.optimizer, config.lr * schedule(config.schedule, progress))
            x = _on_device(batch.x, env.device)
            step = Step(epoch, number, progress, composition, batch.tuple_instances, x, prepared, networks, processes)
            with _seeded_dropout(drops, config.seed, epoch, number, processes.rank), autocast():
                for callback in callbacks:
                    callback.on_step(step)
                # After the callbacks: a teacher has seen the images as they are.
                scores = forward(_augmented(step, augmentation)).float()
            loss, telemetry = method.loss(processes.all_gather(scores), step.prepared)
            networks.optimizer.zero_grad(set_to_none=True)
            # DDP averages gradients over ranks, but each rank has only its share of their sum.
            (loss * processes.size if processes.size > 1 else loss).backward()  # type: ignore[no-untyped-call]
            if config.grad_clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
            networks.optimizer.step()
            networks.average.update()
            position.losses.append(loss.detach())
            position.telemetry.append(telemetry)
            seen += composition.tuple_instances + composition.unlabeled
            if env.watcher:
                env.watcher.step(epoch, number + 1, steps, position.losses[-1])
        seconds = time.perf_counter() - started

        end = _epoch_end(job, networks, _epoch_fields(job, epoch, steps, position))
        for callback in callbacks:
            callback.on_epoch(end)
        risk = processes.broadcast(None if end.heldout is None else method.heldout_risk(end.heldout))
        end.fields["heldout_risk"] = None if risk is None else risk.value
        _require_finite(model, end.fields["heldout_risk"], epoch)
        record = EpochRecord(epoch, end.fields, _trace(networks.average.model, job, epoch), seconds, seen)
        outcome.records.append(record)
        _select(outcome, record, risk, networks.average.model, config)
        position = _Position(epoch + 1)
        if env.checkpoints.due() and epoch < epochs:
            env.checkpoints.save(_state(networks, outcome, position))
        yield record


def _on_device(x: Tensor, device: torch.device) -> Tensor:
    """Pinned memory lets the copy to a GPU run beside the computation before it."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


def _augmented(step: Step, augmentation: Augmentation) -> Tensor:
    """This rank's instances as the network sees them at this step."""
    if augmentation.is_none:
        return step.x
    batch, processes = step.batch, step.processes
    images = batch.tuple_instances + batch.unlabeled
    places = augmentation.places(images, step.x.shape[1:], step.epoch, step.number)
    return seen_at(step.x, *map(processes.local_instances, places))


def _has_dropout(model: nn.Module) -> bool:
    return any(isinstance(m, _DropoutNd | nn.MultiheadAttention) or _drops_depth(m) for m in model.modules())


def _seeded_dropout(drops: bool, *purpose: int) -> AbstractContextManager[None]:
    """Dropout is sampled from the seed and the step, so that a run can be repeated and resumed."""
    return _seeded(*purpose) if drops else nullcontext()


@contextmanager
def _seeded(seed: int, *rest: int) -> Iterator[None]:
    with torch.random.fork_rng():
        torch.manual_seed(int(stream(seed, "dropout", *rest).integers(2**62)))
        yield


def _drops_depth(layer: nn.Module) -> bool:
    return type(layer).__name__ == "StochasticDepth"


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    settings: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    parameters = list(model.parameters())
    if config.optimizer == "sgd":
        return torch.optim.SGD(parameters, momentum=0.9, fused=True, **settings)
    kind = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, fused=True, **settings)


def schedule(kind: str, progress: float) -> float:
    """Factor of the learning rate at a fraction of training: 1, or cosine from 1 to 0."""
    return (1 + cos(pi * progress)) / 2 if kind == "cosine" else 1.0


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate


def _epoch_end(job: Job, networks: Networks, fields: dict[str, Any]) -> EpochEnd:
    def heldout() -> HeldoutScores | None:
        return None if job.heldout is None else score_heldout(networks.average.model, job.heldout)

    def orientation() -> HeldoutScores | None:
        if job.orientation is None:
            return None
        # Held-out data are not scored twice.
        return end.heldout if job.orientation is job.heldout else score_heldout(networks.average.model, job.orientation)

    end = EpochEnd(networks, job.environment.processes, fields, heldout, orientation)
    return end


def _trace(model: nn.Module, job: Job, epoch: int) -> NDArray[np.float64] | None:
    every = job.config.trace_every
    return predict(model, job.test) if every and (epoch % every == 0 or epoch == job.config.known_epochs) else None


def _epoch_fields(job: Job, epoch: int, steps: int, position: _Position) -> dict[str, Any]:
    """Averages over the steps of an epoch; raises an error if the loss is not finite."""
    if not position.losses:
        raise NotIdentifiableError(
            f"all {steps} batches of epoch {epoch} lie inside the margin ε₀ and were skipped",
            hint="Down-weight batches inside the margin instead, use a smaller margin, or tuples of another rate.",
        )
    loss = float(torch.stack(position.losses).cpu().double().mean())
    if not np.isfinite(loss):
        raise NotIdentifiableError(f"the loss became {loss} in epoch {epoch}", hint=DIVERGED)
    rows = torch.stack(position.telemetry).cpu().double().numpy()
    rate = job.config.lr * schedule(job.config.schedule, (epoch - 1) / job.config.known_epochs)
    return {
        "epoch": epoch,
        "loss": loss,
        **job.method.summarise(rows),
        "batches": steps,
        "skipped": steps - len(position.losses),
        "lr": rate,
    }


def _require_finite(model: nn.Module, risk: float | None, epoch: int) -> None:
    """The last step of an epoch can make weights infinite after a loss that was finite."""
    if risk is not None and not np.isfinite(risk):
        raise NotIdentifiableError(f"the held-out risk became {risk} in epoch {epoch}", hint=DIVERGED)
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        raise NotIdentifiableError(f"the weights became infinite in epoch {epoch}", hint=DIVERGED)


def _select(
    outcome: TrainingResult, record: EpochRecord, risk: HeldoutRisk | None, model: nn.Module, config: TrainConfig
) -> None:
    """Keep the weights if the epoch is the last, the best by the label-free risk, or as good within one standard error.

    Differences within that error are noise, and of such epochs the later one has had more training.
    """
    if config.select == "last" or risk is None:
        keep = record.epoch == config.known_epochs
    elif outcome.best is None or risk.value < outcome.best.value:
        keep, outcome.best = True, risk
    else:
        keep = config.select == "one-se" and not risk.clearly_above(outcome.best)
    if keep:
        outcome.selected_epoch, outcome.weights = record.epoch, snapshot(model)


def _state(networks: Networks, outcome: TrainingResult, position: _Position) -> State:
    """Everything that the rest of the run depends on, as plain containers and tensors."""
    return {
        "model": snapshot(networks.model),
        "optimizer": networks.optimizer.state_dict(),
        "average": snapshot(networks.average.model),
        "updates": networks.average.updates,
        "epoch": position.epoch,
        "step": position.step,
        "telemetry": position.telemetry,
        "losses": position.losses,
        **result_state(outcome),
    }


def result_state(outcome: TrainingResult) -> State:
    """What a training has left so far, as plain containers and tensors."""
    return {
        "selected_epoch": outcome.selected_epoch,
        "best": _as_state(outcome.best),
        "weights": outcome.weights,
        "records": [
            {
                "epoch": r.epoch,
                "fields": dict(r.fields),
                "test_scores": None if r.test_scores is None else torch.from_numpy(r.test_scores),
                "seconds": r.seconds,
                "instances": r.instances,
            }
            for r in outcome.records
        ],
    }


def _as_state(risk: HeldoutRisk | None) -> State | None:
    per_tuple = None if risk is None or risk.per_tuple is None else torch.from_numpy(risk.per_tuple)
    return None if risk is None else {"value": risk.value, "per_tuple": per_tuple}


def _as_risk(state: State | None) -> HeldoutRisk | None:
    per_tuple = None if state is None or state["per_tuple"] is None else state["per_tuple"].numpy()
    return None if state is None else HeldoutRisk(state["value"], per_tuple)


def restore_result(state: State, outcome: TrainingResult) -> None:
    """Restore a state that `result_state` returned."""
    outcome.selected_epoch, outcome.best = state["selected_epoch"], _as_risk(state["best"])
    outcome.weights = state["weights"]
    outcome.records = [
        EpochRecord(
            r["epoch"],
            r["fields"],
            None if r["test_scores"] is None else r["test_scores"].numpy(),
            r["seconds"],
            r["instances"],
        )
        for r in state["records"]
    ]


def _restore(job: Job, networks: Networks, outcome: TrainingResult) -> _Position:
    """Restore a saved state; returns the position from which to continue."""
    env = job.environment
    state = env.checkpoints.load()
    if state is None:
        return _Position()
    stepped = Networks(networks.model, networks.average, _stepped_once(networks.model, job.config))
    test_rows = len(job.test) if env.processes.rank == 0 else None
    require_fitting(state, _state(stepped, TrainingResult(), _Position()), job.config.known_epochs, test_rows)
    networks.model.load_state_dict(state["model"])
    networks.optimizer.load_state_dict(state["optimizer"])
    networks.average.model.load_state_dict(state["average"])
    networks.average.updates = state["updates"]
    restore_result(state, outcome)
    losses, telemetry = ([value.to(env.device) for value in state[key]] for key in ("losses", "telemetry"))
    return _Position(state["epoch"], state["step"], losses, telemetry)


def _stepped_once(model: Scorer, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a copy after one step, which has all the buffers that a saved one can have."""
    clone = copy.deepcopy(model)
    optimizer = make_optimizer(clone, config)
    for parameter in clone.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return optimizer
