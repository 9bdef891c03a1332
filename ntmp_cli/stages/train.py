"""train: tuples become a scorer, with its history and its scores on test and held-out instances."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as save_safetensors
from torch import Tensor

from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    Staging,
    describe_input,
    kept_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.checkpoints import CheckpointStore, Resume
from ntmp_cli.artifacts.jsonlines import json_lines
from ntmp_cli.artifacts.layout import HISTORY, TEST_LABELS, TIMING, WEIGHTS
from ntmp_cli.artifacts.scores import write_scores
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.learning.loop import EpochRecord, HeldoutData, Job, Outcome, score_heldout, train_epochs
from ntmp_cli.learning.method import Method, methods
from ntmp_cli.learning.models import Scorer, build_scorer, predict
from ntmp_cli.stages.training_data import (
    heldout_data,
    input_normalisation,
    read_task,
    read_test_instances,
    training_data,
)

log = logging.getLogger(__name__)


class Watcher(Protocol):
    """Somebody who wants to see the training go on."""

    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None: ...

    def epoch(self, record: EpochRecord) -> None: ...


def train(
    config: TrainConfig,
    tuples_path: Path,
    out: Path,
    *,
    if_exists: IfExists = "fail",
    resume: Resume = "no",
    device: str = "auto",
    checkpoint_seconds: float = 30.0,
    watcher: Watcher | None = None,
) -> Artifact:
    """Train on a tuples directory and publish a run directory."""
    tuples = open_artifact(tuples_path, "tuples")
    kind = methods.get(config.method)
    plan = Plan("run", config.model_dump(mode="json"), config.seed, (describe_input(tuples),))
    store = CheckpointStore(out, plan, resume=resume, every_seconds=checkpoint_seconds)
    if kept := kept_output(out, plan, if_exists):
        store.remove()
        return kept
    if resume == "yes" and not store.exists():
        log.info("%s: no checkpoint to resume from; starting at the first epoch", out)
    if store.exists() and resume == "no":
        log.warning("%s: a checkpoint of an earlier, unfinished run is ignored; --resume continues it", out)

    method = kind(config, read_task(tuples))
    _warn_of_other_prior(config, tuples)
    job = _assemble(config, method, tuples, choose_device(device), store)
    outcome = Outcome()
    with stop_requested() as job.stop:
        if watcher:
            job.on_step = watcher.step
        for record in train_epochs(job, outcome):
            if watcher:
                watcher.epoch(record)

    with publishing(out, plan, if_exists=if_exists) as staging:
        job.model.load_state_dict(outcome.weights)
        scores = _scores(job.model, job.test, job.heldout, outcome)
        staging.add_bytes(WEIGHTS, save_safetensors(outcome.weights))
        write_scores(staging, scores)
        staging.carry(tuples, TEST_LABELS)
        _write_history(staging, outcome)
        staging.summary = _summary(config, kind.label(config), tuples, job, outcome)
    store.remove()
    return open_artifact(out)


def _assemble(
    config: TrainConfig, method: Method, tuples: Artifact, device: torch.device, store: CheckpointStore
) -> Job:
    data = training_data(tuples, config)
    factor, shift = input_normalisation(tuples, data, config.normalize)
    model = build_scorer(config.model, tuples.summary["instance"]["shape"], factor, shift, config.seed)
    test, heldout = read_test_instances(tuples), heldout_data(tuples)
    if heldout is None and config.select == "best":
        log.warning("%s: no held-out tuples were set aside, so the last epoch is kept", tuples.path)
    return Job(config, method, model, data, heldout, test, device, store)


def choose_device(name: str) -> torch.device:
    """`auto` takes an accelerator where there is one."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"--device {name}: not usable here ({reason})", hint="Use --device auto or cpu.") from None
    return device


def _warn_of_other_prior(config: TrainConfig, tuples: Artifact) -> None:
    """A wrong prior biases the risk; simulated tuples know theirs."""
    known = tuples.summary.get("prior")
    if known is not None and abs(known - config.prior) > 0.005:
        log.warning("--prior %g differs from the unlabeled pool's own prior %.4g", config.prior, known)


def _scores(model: Scorer, test: Tensor, heldout: HeldoutData | None, outcome: Outcome) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {"test": predict(model, test)}
    traced = [(record.epoch, record.test_scores) for record in outcome.records if record.test_scores is not None]
    arrays["trace_epochs"] = np.array([epoch for epoch, _ in traced], dtype=np.int64)
    arrays["trace"] = np.array([scores for _, scores in traced], dtype=np.float32).reshape(len(traced), len(test))
    if heldout is not None:
        scored = score_heldout(model, heldout)
        arrays["heldout_tuples"] = scored.tuple_scores
        arrays["heldout_sizes"] = scored.sizes
        arrays["heldout_counts"] = scored.counts
        arrays["heldout_unlabeled"] = scored.unlabeled_scores
    return arrays


def _write_history(staging: Staging, outcome: Outcome) -> None:
    staging.add_bytes(HISTORY, json_lines([dict(r.fields) for r in outcome.records]), rows=len(outcome.records))
    timing = [
        {"epoch": r.epoch, "seconds": r.seconds, "instances_per_second": r.instances / max(r.seconds, 1e-9)}
        for r in outcome.records
    ]
    staging.add_unhashed(TIMING, json_lines(timing))


def _summary(config: TrainConfig, label: str, tuples: Artifact, job: Job, outcome: Outcome) -> dict[str, Any]:
    info = tuples.summary
    strata = info["strata"]["train"]
    selected = outcome.records[outcome.selected_epoch - 1].fields
    single = strata[0] if len(strata) == 1 else {"n": None, "m": None}
    return {
        "method": label,
        "dataset": info["dataset"],
        "tuples": "+".join(tuples.manifest.config["tuples"]),
        "n": single["n"],
        "m": single["m"],
        "mean_rate": info["mean_rate"],
        "prior": config.prior,
        "unlabeled_prior": info["prior"],
        "tuples_seed": tuples.manifest.seed,
        "tuples_config": tuples.manifest.config,
        "model": config.model,
        "parameters": sum(p.numel() for p in job.model.parameters()),
        "instance": info["instance"],
        "epochs": config.epochs,
        "batch_size": job.data.batch_size,
        "selected_epoch": outcome.selected_epoch,
        "loss": selected["loss"],
        "heldout_risk": selected["heldout_risk"],
    }
