"""The training loop: a generator of epoch records that reads from top to bottom."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import cos, pi
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import InterruptedRunError, NotIdentifiableError
from ntmp_cli.learning.hiding import hidden_features, with_hidden
from ntmp_cli.learning.method import GradientMethod, Heldout, HeldoutRisk
from ntmp_cli.learning.models import Scorer, predict
from ntmp_cli.learning.parts import PartedData
from ntmp_cli.learning.processes import OneProcess
from ntmp_cli.learning.resuming import require_fitting
from ntmp_cli.randomness import stream

State = dict[str, Any]

DIVERGED = "Lower --lr, use --loss sigmoid, or clamp the risk."


class Checkpoints(Protocol):
    """Where a run's state is kept between two lives of the process."""

    def save(self, state: State) -> None: ...

    def load(self) -> State | None: ...

    def due(self) -> bool: ...


class NoCheckpoints:
    """For trainings so short, or so deep inside something else, that their state is not kept."""

    def save(self, state: State) -> None:
        pass

    def load(self) -> State | None:
        return None

    def due(self) -> bool:
        return False


@dataclass(frozen=True)
class HeldoutData:
    """Raw held-out tuples and unlabeled instances, without labels."""

    tuples: Tensor
    sizes: NDArray[np.int64]
    counts: NDArray[np.int64]
    unlabeled: Tensor


@dataclass(frozen=True)
class EpochRecord:
    """One epoch. `fields` go into the history; timings are apart, because they differ between equal runs."""

    epoch: int
    fields: Mapping[str, Any]
    test_scores: NDArray[np.float64] | None
    seconds: float
    instances: int


@dataclass
class Job:
    """Everything that a training needs, assembled by the stage."""

    config: TrainConfig
    method: GradientMethod
    model: Scorer
    data: PartedData
    heldout: HeldoutData | None
    test: Tensor
    device: torch.device
    checkpoints: Checkpoints = field(default_factory=NoCheckpoints)
    processes: OneProcess = field(default_factory=OneProcess)
    # Who says which class is which: held-out data, or training data if there are none; None where nobody is asked.
    asked: HeldoutData | None = None
    stop: Callable[[], bool] = lambda: False
    on_step: Callable[[int, int, int, Tensor], None] = lambda epoch, step, steps, loss: None


@dataclass
class Outcome:
    """What is left when the records are used up."""

    records: list[EpochRecord] = field(default_factory=list)
    selected_epoch: int = 0
    best: HeldoutRisk | None = None
    weights: dict[str, Tensor] = field(default_factory=dict)


def train_epochs(job: Job, outcome: Outcome) -> Iterator[EpochRecord]:
    """Train, yielding one record per epoch; `outcome` collects them and the weights to keep."""
    config, method = job.config, job.method
    model = job.model.to(job.device)
    optimizer = make_optimizer(model, config)
    average = WeightAverage(model, config.ema)
    first, skip, telemetry, losses = _restore(job, model, optimizer, average, outcome)
    together = job.processes
    forward = together.forward(model)
    yield from outcome.records

    for epoch in range(first, config.epochs + 1):
        started, seen = time.perf_counter(), 0
        steps, batches = job.data.epoch(epoch, skip)
        model.train()
        for step, batch in enumerate(batches, start=skip):
            whole, stop = together.whole(batch, job.stop())
            if stop:
                job.checkpoints.save(_state(model, optimizer, average, outcome, epoch, step, telemetry, losses))
                raise InterruptedRunError(
                    f"interrupted in epoch {epoch} of {config.epochs}, step {step} of {steps}; the state is saved",
                    hint="Repeat the command to go on from here; `ntmp train` needs --resume for that.",
                )
            progress = (epoch - 1 + step / steps) / config.epochs
            prepared = method.prepare(whole, progress)
            if prepared is None:
                continue
            rate = config.lr * schedule(config.schedule, progress)
            for group in optimizer.param_groups:
                group["lr"] = rate
            x = _on_device(batch.x, job.device)
            shown = x
            if share := method.hides(step, progress):
                rng = stream(config.seed, "hidden", epoch, step)
                hidden = hidden_features((whole.unlabeled, *x.shape[1:]), share, rng)
                shown = with_hidden(x, together.own_unlabeled(hidden), model.blank)
            with (
                _own_randomness(model, config.seed, epoch, step, together.rank),
                torch.autocast(job.device.type, torch.bfloat16, enabled=config.precision == "bfloat16"),
            ):
                scores = forward(shown).float()
                if method.wants_teacher(step, progress):
                    teacher = average.scores(x, scores, batch.tuple_instances)
                    prepared = method.taught(prepared, together.gather(teacher))
            loss, parts = method.loss(together.gather(scores), prepared)
            optimizer.zero_grad(set_to_none=True)
            # Gradients of several processes are averaged, but each knows only its own share of their sum.
            (loss * together.size if together.size > 1 else loss).backward()  # type: ignore[no-untyped-call]
            if config.grad_clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), config.grad_clip)
            optimizer.step()
            average.update()
            losses.append(loss.detach())
            telemetry.append(parts)
            seen += whole.tuple_instances + whole.unlabeled
            job.on_step(epoch, step + 1, steps, losses[-1])
        seconds = time.perf_counter() - started

        fields = _epoch_fields(job, epoch, steps, losses, telemetry)
        scored = None if job.heldout is None else score_heldout(average.model, job.heldout)
        centre = together.agree(_mirror_centre(job, average.model, scored))
        if centre is not None:
            _mirror(model, average, optimizer, centre)
            fields["mirrored"] = True
            scored = None if job.heldout is None else score_heldout(average.model, job.heldout)
        risk = together.agree(None if scored is None else method.heldout_risk(scored))
        fields["heldout_risk"] = None if risk is None else risk.value
        _require_finite(model, fields["heldout_risk"], epoch)
        record = EpochRecord(epoch, fields, _trace(average.model, job, epoch), seconds, seen)
        outcome.records.append(record)
        _select(outcome, record, risk, average.model, config)
        skip, telemetry, losses = 0, [], []
        if job.checkpoints.due() and epoch < config.epochs:
            job.checkpoints.save(_state(model, optimizer, average, outcome, epoch + 1, 0, [], []))
        yield record


def _on_device(x: Tensor, device: torch.device) -> Tensor:
    """Pinned memory lets the copy to a GPU run beside the computation before it."""
    return x.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else x.to(device)


@contextmanager
def _own_randomness(model: nn.Module, *purpose: int) -> Iterator[None]:
    """Dropout and its like draw from the seed and the step, so that a run can be repeated and resumed."""
    if not any(isinstance(m, _DropoutNd | nn.MultiheadAttention) or _drops_depth(m) for m in model.modules()):
        yield
        return
    seed, *rest = purpose
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
    """Factor of the learning rate at a share of training done: 1, or cosine from 1 to 0."""
    return (1 + cos(pi * progress)) / 2 if kind == "cosine" else 1.0


class WeightAverage:
    """Exponential moving average of weights and BatchNorm statistics, the model that is scored.

    The decay grows from 0.1 to its full value, min(d, (1+t)/(10+t)), so that short runs are not held
    back by their random start.
    """

    def __init__(self, model: Scorer, decay: float) -> None:
        self.decay, self.updates = decay, 0
        self.source = model
        self.model = model if decay == 0 else _copy_of(model)
        pairs = list(zip(self.model.state_dict().values(), model.state_dict().values(), strict=True))
        self._averaged = [a for a, b in pairs if a.is_floating_point()]
        self._current = [b for a, b in pairs if a.is_floating_point()]
        self._counters = [(a, b) for a, b in pairs if not a.is_floating_point()]

    def scores(self, x: Tensor, current: Tensor, skip: int) -> Tensor:
        """Scores of a batch but for its first `skip` instances, which are 0; without averaging the current ones."""
        if self.decay == 0:
            return current.detach()
        self.model.eval()
        with torch.no_grad():
            later: Tensor = self.model(x[skip:]).float()
        return torch.cat([later.new_zeros(skip), later])

    def update(self) -> None:
        if self.decay == 0:
            return
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        torch._foreach_lerp_(self._averaged, self._current, 1 - decay)
        for mine, theirs in self._counters:
            mine.copy_(theirs)


def _copy_of(model: Scorer) -> Scorer:
    twin = copy.deepcopy(model)
    twin.requires_grad_(False)
    return twin


def _mirror_centre(job: Job, model: nn.Module, scored: Heldout | None) -> float | None:
    """Where to mirror the network if those who are asked say so; held-out data are not scored twice for that."""
    if job.asked is None:
        return None
    if job.asked is not job.heldout or scored is None:
        scored = score_heldout(model, job.asked)
    return job.method.mirror_centre(scored)


def _mirror(model: Scorer, average: WeightAverage, optimizer: torch.optim.Optimizer, centre: float) -> None:
    """Turn a network around that has learned the classes exchanged, and its momentum with it."""
    if average.model is not model:
        average.model.mirror(centre)
    for parameter in model.mirror(centre):
        for key in ("exp_avg", "momentum_buffer"):
            if key in optimizer.state[parameter]:
                optimizer.state[parameter][key].neg_()


def score_heldout(model: nn.Module, data: HeldoutData) -> Heldout:
    return Heldout(predict(model, data.tuples), data.sizes, data.counts, predict(model, data.unlabeled))


def _trace(model: nn.Module, job: Job, epoch: int) -> NDArray[np.float64] | None:
    every = job.config.trace_every
    return predict(model, job.test) if every and (epoch % every == 0 or epoch == job.config.epochs) else None


def _epoch_fields(job: Job, epoch: int, steps: int, losses: list[Tensor], telemetry: list[Tensor]) -> dict[str, Any]:
    """Averages over the steps of an epoch; refuses to go on from a loss that is not a number."""
    if not losses:
        raise NotIdentifiableError(
            f"all {steps} batches of epoch {epoch} lie inside the margin ε₀ = {job.config.margin} and were skipped",
            hint="Use --margin-policy downweight or off, a smaller --margin, or tuples of another rate.",
        )
    loss = float(torch.stack(losses).cpu().double().mean())
    if not np.isfinite(loss):
        raise NotIdentifiableError(f"the loss became {loss} in epoch {epoch}", hint=DIVERGED)
    rows = torch.stack(telemetry).cpu().double().numpy()
    rate = job.config.lr * schedule(job.config.schedule, (epoch - 1) / job.config.epochs)
    return {
        "epoch": epoch,
        "loss": loss,
        **job.method.summarise(rows),
        "batches": steps,
        "skipped": steps - len(losses),
        "lr": rate,
    }


def _require_finite(model: nn.Module, risk: float | None, epoch: int) -> None:
    """The last step of an epoch can break weights after a loss that was still a number."""
    if risk is not None and not np.isfinite(risk):
        raise NotIdentifiableError(f"the held-out risk became {risk} in epoch {epoch}", hint=DIVERGED)
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        raise NotIdentifiableError(f"the weights became infinite in epoch {epoch}", hint=DIVERGED)


def _select(
    outcome: Outcome, record: EpochRecord, risk: HeldoutRisk | None, model: nn.Module, config: TrainConfig
) -> None:
    """Keep this epoch's weights if it is the last one, the best by the label-free risk, or as good within its error.

    Which of several epochs is the best is chance within that error; more training, at a smaller rate, is not.
    """
    if config.select == "last" or risk is None:
        keep = record.epoch == config.epochs
    elif outcome.best is None or risk.value < outcome.best.value:
        keep, outcome.best = True, risk
    else:
        keep = config.select == "one-se" and not risk.clearly_above(outcome.best)
    if keep:
        outcome.selected_epoch, outcome.weights = record.epoch, snapshot(model)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and statistics, in the order of memory that a file has."""
    return {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }


def _state(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    average: WeightAverage,
    outcome: Outcome,
    epoch: int,
    step: int,
    telemetry: list[Tensor],
    losses: list[Tensor],
) -> State:
    """Everything that the rest of the run depends on, as plain containers and tensors."""
    return {
        "model": snapshot(model),
        "optimizer": optimizer.state_dict(),
        "average": snapshot(average.model),
        "updates": average.updates,
        "epoch": epoch,
        "step": step,
        "telemetry": telemetry,
        "losses": losses,
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
    each = None if risk is None or risk.each is None else torch.from_numpy(risk.each)
    return None if risk is None else {"value": risk.value, "each": each}


def _as_risk(state: State | None) -> HeldoutRisk | None:
    each = None if state is None or state["each"] is None else state["each"].numpy()
    return None if state is None else HeldoutRisk(state["value"], each)


def _restore(
    job: Job, model: Scorer, optimizer: torch.optim.Optimizer, average: WeightAverage, outcome: Outcome
) -> tuple[int, int, list[Tensor], list[Tensor]]:
    """Put a saved state back; (epoch, step) to go on from, and what that epoch has gathered so far."""
    state = job.checkpoints.load()
    if state is None:
        return 1, 0, [], []
    fresh = _state(model, _stepped_once(model, job.config), average, Outcome(), 1, 0, [], [])
    require_fitting(state, fresh, job.config.epochs, len(job.test) if job.processes.rank == 0 else None)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    average.model.load_state_dict(state["average"])
    average.updates = state["updates"]
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
    telemetry, losses = ([part.to(job.device) for part in state[key]] for key in ("telemetry", "losses"))
    return state["epoch"], state["step"], telemetry, losses


def _stepped_once(model: Scorer, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser of a copy after one step, which has all the buffers that a saved one can have."""
    twin = copy.deepcopy(model)
    optimizer = make_optimizer(twin, config)
    for parameter in twin.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return optimizer
