"""train: tuples become a scorer, with its history and its scores on test and held-out instances."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
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
    content_sha256,
    describe_input,
    kept_output,
    open_artifact,
    publishing,
    refuse_overlap,
)
from ntmp_cli.artifacts.checkpoints import CheckpointStore, Resume
from ntmp_cli.artifacts.jsonlines import json_lines
from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, HELDOUT_LABELS, HISTORY, MAPPING, TEST_LABELS, TIMING, WEIGHTS
from ntmp_cli.artifacts.scores import write_scores
from ntmp_cli.config import SPECIAL_SETTINGS, TrainConfig
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.learning.batches import TrainingData
from ntmp_cli.learning.loop import (
    EpochRecord,
    HeldoutData,
    Job,
    Outcome,
    score_heldout,
    snapshot,
    train_epochs,
)
from ntmp_cli.learning.method import FittedMethod, GradientMethod, Method, methods
from ntmp_cli.learning.models import Scorer, build_scorer, predict
from ntmp_cli.learning.parts import PartedData
from ntmp_cli.learning.processes import OneProcess, process_group
from ntmp_cli.learning.resuming import UnfitStateError
from ntmp_cli.ranks import is_first_process, local_rank, number_of_processes
from ntmp_cli.stages.features import WEIGHTS_FILES, encode_tuples, file_identity, weights_files
from ntmp_cli.stages.prior_lookup import prior_of
from ntmp_cli.stages.teacher import discriminant_targets, fit_data, prior_weights
from ntmp_cli.stages.training_data import (
    InstanceTargets,
    heldout_data,
    input_normalisation,
    read_task,
    read_test_instances,
    some_training_data,
    training_data,
)
from ntmp_cli.stages.true_labels import true_targets

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
    features: Path | None = None,
    prior_from: Path | None = None,
) -> Artifact:
    """Train on a tuples directory and publish a run directory.

    Features of a frozen encoder are kept in the folder `features`, by default beside `out`, and used again.
    `prior_from` is the prior directory that `config.prior` was read from, for the lineage.
    """
    tuples = open_artifact(tuples_path, "tuples")
    kind = methods.get(config.method)
    config = config.model_copy(update={"parts": _parts(config)})
    estimate = None if prior_from is None else _used_estimate(config, prior_from, tuples)
    plan = training_plan(config, tuples, estimate)
    refuse_overlap(out, () if prior_from is None else (prior_from,))  # also where --prior was given over it
    store = CheckpointStore(out, plan, resume=resume, every_seconds=checkpoint_seconds, writes=is_first_process())
    if kept := kept_output(out, plan, if_exists):
        store.remove()
        return kept
    if resume == "yes" and not store.exists():
        log.info("%s: no checkpoint to resume from; starting at the first epoch", out)
    if store.exists() and resume == "no":
        log.warning("%s: a checkpoint of an earlier, unfinished run is ignored; --resume continues it", out)

    method = kind(config, read_task(tuples))
    if estimate is None:
        _warn_of_other_prior(config, tuples)
    _warn_of_unused(config, method)
    chosen = choose_device(device)
    with process_group(chosen) as processes:
        source = _source(tuples, method.encoder or config.encoder, config, features or out.parent, chosen, processes)
        test, heldout = read_test_instances(source), heldout_data(source)
        batch_size: int | None = None
        if isinstance(method, GradientMethod):
            job = _assemble(config, method, tuples, source, test, heldout, chosen, store, processes)
            batch_size = job.data.batch_size
            with stop_requested() as job.stop:
                model, outcome = _run(job, watcher, store)
        else:
            model, outcome = _fit(config, method, source, test, heldout)
        if processes.rank == 0:
            with publishing(out, plan, if_exists=if_exists) as staging:
                _write(staging, outcome, tuples, source, _scores(model, test, heldout, outcome))
                summary = _summary(config, method, tuples, source, model, outcome, estimate is not None)
                staging.summary = {**summary, "batch_size": batch_size}
            store.remove()
        processes.agree("published")
    return open_artifact(out)


def _used_estimate(config: TrainConfig, path: Path, tuples: Artifact) -> Artifact | None:
    """The prior directory, unless another prior was given over it."""
    estimate, value = prior_of(path, tuples)
    if config.prior == value:
        return estimate
    log.info("prior %g is used instead of the estimate %.4f in %s", config.prior, value, path)
    return None


def training_plan(config: TrainConfig, tuples: Artifact, estimate: Artifact | None = None) -> Plan:
    """What a training with these settings on these tuples is known by."""
    inputs = (tuples,) if estimate is None else (tuples, estimate)
    settings = {**config.model_dump(mode="json"), "parts": _parts(config)}
    files = {name: file_identity(settings[name]) for name in WEIGHTS_FILES}
    reads = (*(each.path for each in inputs), *weights_files(config))
    return Plan("run", {**settings, **files}, config.seed, tuple(map(describe_input, inputs)), reads)


def _parts(config: TrainConfig) -> int:
    """One part of the data per process, unless one process is to read several."""
    processes = number_of_processes()
    if config.parts not in (None, processes) and processes > 1:
        raise UsageError(f"--parts {config.parts}: {processes} processes read {processes} parts", hint="Leave it out.")
    return config.parts or processes


def _source(
    tuples: Artifact,
    encoder: str | None,
    config: TrainConfig,
    folder: Path,
    device: torch.device,
    processes: OneProcess,
) -> Artifact:
    """What is trained on: the tuples as they are, or their features."""
    if encoder is None:
        return tuples
    return processes.first_then_all(lambda: encode_tuples(tuples, encoder, config, folder, device))


def _assemble(
    config: TrainConfig,
    method: GradientMethod,
    tuples: Artifact,
    source: Artifact,
    test: Tensor,
    heldout: HeldoutData | None,
    device: torch.device,
    store: CheckpointStore,
    processes: OneProcess,
) -> Job:
    targets = _targets(config, method, tuples, source)
    parts = training_data(source, config, config.parts or 1, targets, method.batch, method.dealing())
    model = _scorer(config, method, source, parts)
    if heldout is None and config.select != "last" and processes.rank == 0:
        log.warning("%s: no held-out tuples were set aside, so the last epoch is kept", tuples.path)
    asked = None
    if method.oriented_by_data() and processes.rank == 0:
        asked = heldout or some_training_data(parts[0])
    if processes.rank > 0:  # the first process scores for all
        test, heldout = test[:0], None
    mine = [processes.rank] if processes.size > 1 else []
    return Job(config, method, model, PartedData(parts, mine), heldout, test, device, store, processes, asked)


def _scorer(config: TrainConfig, method: Method, source: Artifact, data: Sequence[TrainingData]) -> Scorer:
    factor, shift = input_normalisation(source, data, config.normalize if method.normalises else "none")
    return build_scorer(method.network, source.summary["instance"]["shape"], factor, shift, config.seed)


def _targets(config: TrainConfig, method: GradientMethod, tuples: Artifact, source: Artifact) -> InstanceTargets | None:
    wanted = method.targets()
    if wanted == "truth":
        return true_targets(tuples, method)
    if wanted == "weights":
        return prior_weights(config, source)
    return discriminant_targets(config, source) if wanted == "discriminant" else None


def _run(job: Job, watcher: Watcher | None, store: CheckpointStore) -> tuple[Scorer, Outcome]:
    outcome = Outcome()
    if watcher:
        job.on_step = watcher.step
    try:
        for record in train_epochs(job, outcome):
            if watcher:
                watcher.epoch(record)
    except UnfitStateError as error:
        raise store.unusable(error.message) from None
    job.model.load_state_dict(outcome.weights)
    return job.model, outcome


def _fit(
    config: TrainConfig, method: Method, source: Artifact, test: Tensor, heldout: HeldoutData | None
) -> tuple[Scorer, Outcome]:
    """The scorer of a method without epochs, recorded as if it had one."""
    assert isinstance(method, FittedMethod), "a method is trained or fitted"
    started = time.perf_counter()
    if config.parts != 1:
        raise UsageError(f"--method {config.method} is computed at once: there is nothing to share in parts")
    (data,) = training_data(source, config)
    model = _scorer(config, method, source, [data])
    fit = method.fit(fit_data(data, model))
    model.set_line(fit.weight, fit.bias)
    risk = None if heldout is None else method.heldout_risk(score_heldout(model, heldout))
    fields = {"epoch": 1, "loss": None, **fit.fields, "heldout_risk": None if risk is None else risk.value}
    instances = source.summary["instances"]["train"] + source.summary["unlabeled"]["train"]
    record = EpochRecord(1, fields, predict(model, test), time.perf_counter() - started, instances)
    return model, Outcome([record], 1, weights=snapshot(model))


def _write(
    staging: Staging, outcome: Outcome, tuples: Artifact, source: Artifact, scores: dict[str, NDArray[Any]]
) -> None:
    staging.add_bytes(WEIGHTS, save_safetensors(outcome.weights))
    if source is not tuples:
        staging.carry(source, ENCODER_WEIGHTS)
    write_scores(staging, scores)
    for name in (TEST_LABELS, MAPPING):
        if tuples.has(name):
            staging.carry(tuples, name)
    if tuples.has(HELDOUT_LABELS):
        try:
            staging.carry(tuples, HELDOUT_LABELS)
        except ArtifactError as error:  # no training should be lost for what only calibration can use
            log.warning("%s; the run will have no temperature by labels", error.message)
    _write_history(staging, outcome)


def choose_device(name: str) -> torch.device:
    """`auto` takes an accelerator where there is one; of several processes each its own GPU."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device("cuda", local_rank()) if name == "cuda" else torch.device(name)
        float(torch.zeros(1, device=device))
    # A wrong name is a RuntimeError; a torch built without this device raises any of the three.
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"--device {name}: not usable here ({reason})", hint="Use --device auto or cpu.") from None
    return device


def _warn_of_other_prior(config: TrainConfig, tuples: Artifact) -> None:
    """A wrong prior biases the risk; simulated tuples know theirs."""
    known = tuples.summary.get("prior")
    if known is not None and abs(known - config.prior) > 0.005:
        log.warning("--prior %g differs from the unlabeled pool's own prior %.4g", config.prior, known)


def _warn_of_unused(config: TrainConfig, method: Method) -> None:
    """No setting is silently without effect."""
    given = config.model_fields_set
    encoder = method.encoder or config.encoder
    used = set(method.uses) | ({"clip_model", "clip_weights"} if encoder == "clip" else set())
    unused = given & (SPECIAL_SETTINGS - used)
    if config.model != method.model_name():
        unused |= given & {"model"}
    if encoder != config.encoder:
        unused |= given & {"encoder"}
    if not (encoder or "").startswith("torchvision:"):
        unused |= given & {"encoder_weights"}
    if unused := {name for name in unused if getattr(config, name) is not None}:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(unused))
        log.warning("--method %s does not use %s", config.method, options)


def _scores(model: Scorer, test: Tensor, heldout: HeldoutData | None, outcome: Outcome) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {"test": predict(model, test).astype(np.float32)}
    traced = [(record.epoch, record.test_scores) for record in outcome.records if record.test_scores is not None]
    arrays["trace_epochs"] = np.array([epoch for epoch, _ in traced], dtype=np.int64)
    arrays["trace"] = np.array([scores for _, scores in traced], dtype=np.float32).reshape(len(traced), len(test))
    if heldout is not None:
        scored = score_heldout(model, heldout)
        arrays["heldout_tuples"] = scored.tuple_scores.astype(np.float32)
        arrays["heldout_sizes"] = scored.sizes
        arrays["heldout_counts"] = scored.counts
        arrays["heldout_unlabeled"] = scored.unlabeled_scores.astype(np.float32)
    return arrays


def _write_history(staging: Staging, outcome: Outcome) -> None:
    staging.add_bytes(HISTORY, json_lines([dict(r.fields) for r in outcome.records]), rows=len(outcome.records))
    timing = [
        {
            "epoch": r.epoch,
            "seconds": r.seconds,
            "instances_per_second": r.instances / max(r.seconds, 1e-9),
            "threads": torch.get_num_threads(),
        }
        for r in outcome.records
    ]
    staging.add_unhashed(TIMING, json_lines(timing))


def _summary(
    config: TrainConfig,
    method: Method,
    tuples: Artifact,
    source: Artifact,
    model: Scorer,
    outcome: Outcome,
    estimated: bool,
) -> dict[str, Any]:
    info = tuples.summary
    strata = info["strata"]["train"]
    selected = outcome.records[outcome.selected_epoch - 1].fields
    single = strata[0] if len(strata) == 1 else {"n": None, "m": None}
    return {
        "method": method.label(config),
        "ceiling": method.ceiling,
        "dataset": info["dataset"],
        "tuples": info.get("spec") or "+".join(tuples.manifest.config["tuples"]),
        "n": single["n"],
        "m": single["m"],
        "task": {
            "strata": [[row["n"], row["m"], row["tuples"]] for row in strata],
            "unlabeled": info["unlabeled"]["train"],
        },
        "mean_rate": info["mean_rate"],
        # Results are compared at the prior that the pool has, whatever was estimated for it.
        "prior": info["prior"] if estimated and info["prior"] is not None else config.prior,
        "prior_estimated": estimated,
        "tuple_rate": method.task.rate,
        "unlabeled_prior": info["prior"],
        "tuples_seed": tuples.manifest.seed,
        "tuples_config": tuples.manifest.config,
        "tuples_content": content_sha256(tuples),
        "model": method.model_name(),
        "encoder": source.summary.get("encoder"),
        "parameters": sum(p.numel() for p in model.parameters()),
        "instance": info["instance"],
        "features": source.summary["instance"],
        "epochs": len(outcome.records),
        "selected_epoch": outcome.selected_epoch,
        "loss": selected["loss"],
        "heldout_risk": selected["heldout_risk"],
    }
