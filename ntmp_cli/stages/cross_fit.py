"""Scores of tuples and of U by models that were not trained on them, and that know nothing of the prior."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.artifacts import Artifact
from ntmp_cli.config import EstimatePriorConfig, TrainConfig
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.discriminant import Moments, fit
from ntmp_cli.learning.groups import rate_shift, usable_rate
from ntmp_cli.learning.loop import HeldoutData, Job, Outcome, train_epochs
from ntmp_cli.learning.method import GradientMethod, Task, methods
from ntmp_cli.learning.models import build_scorer, predict
from ntmp_cli.learning.parts import PartedData
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.prior.score_model import prior_free_settings
from ntmp_cli.stages.teacher import fit_data
from ntmp_cli.stages.train import Watcher
from ntmp_cli.stages.training_data import (
    heldout_data,
    input_normalisation,
    read_task,
    some_training_data,
    training_data,
)

log = logging.getLogger(__name__)

Watching = Callable[[int], AbstractContextManager[Watcher | None]]
# Raw instances to scores.
Score = Callable[[NDArray[np.generic]], NDArray[Any]]


def cross_fitted(
    config: EstimatePriorConfig, source: Artifact, device: torch.device, watching: Watching
) -> list[ScoredTuples]:
    """Tuples and U scored by models of other tuples (SPEC section 5): held-out tuples, or one part after the other."""
    task, heldout = read_task(source), heldout_data(source)
    settings = score_model(config, task)
    kind = methods.get(settings.method)
    batch = kind.batch if issubclass(kind, GradientMethod) else 1024

    def fitted(data: TrainingData, number: int) -> Score:
        if config.score == "discriminant":
            return _closed_form(source, data, task)
        if config.warmup == "discriminant":
            data = _taught(data, _closed_form(source, data, task))
        with watching(settings.epochs) as watcher:
            return _network(settings, source, data, task, heldout, device, number, watcher)

    if heldout is not None and config.folds is None:
        (data,) = training_data(source, settings, batch=batch)
        return [_score_heldout(data, heldout, fitted(data, 0), config.count_noise)]
    parts = training_data(source, settings, config.folds or 2, batch=batch)
    if repeated := repeated_share(parts):
        log.warning(
            "%.0f %% of the instances are in tuples of more than one part: scores of what was trained on mislead",
            100 * repeated,
        )
    scored = []
    for number, part in enumerate(parts):
        others = _union([other for other in parts if other is not part])
        scored.append(_score_part(part, fitted(others, number), config.count_noise))
    return scored


def cross_scored(
    config: TrainConfig, source: Artifact, folds: int, device: torch.device, watching: Watching
) -> list[ScoredTuples]:
    """All training tuples, part after part, each scored at their own rate by a network that the others trained.

    Unlike `cross_fitted` this is a training as of `ntmp train`, with its prior, for who knows one.
    """
    task, heldout = read_task(source), heldout_data(source)
    kind = methods.get(config.method)
    assert issubclass(kind, GradientMethod)
    parts = training_data(source, config, folds, batch=kind.batch)
    shift = rate_shift(config.prior, task.rate)
    scored = []
    for number, part in enumerate(parts):
        others = _union([other for other in parts if other is not part])
        with watching(config.epochs) as watcher:
            score = _network(config, source, others, task, heldout, device, number, watcher)
        found = _score_part(part, score, config.count_noise)
        scored.append(replace(found, scores=found.scores - shift, unlabeled=found.unlabeled - shift))
    return scored


def repeated_share(parts: Sequence[TrainingData]) -> float:
    """Share of the distinct tuple instances that occur in more than one part, by 64-bit sums of their bytes."""
    seen = [np.unique(np.concatenate([_digests(chunk.load()[0]) for chunk in part.tuple_chunks])) for part in parts]
    _, uses = np.unique(np.concatenate(seen), return_counts=True)
    return float((uses > 1).mean())


def _digests(raw: NDArray[np.generic]) -> NDArray[np.uint64]:
    flat = np.ascontiguousarray(raw).reshape(len(raw), -1).view(np.uint8)
    factors = np.random.default_rng(0).integers(2**63, size=flat.shape[1], dtype=np.uint64)
    found: NDArray[np.uint64] = flat.astype(np.uint64) @ factors
    return found


def score_model(config: EstimatePriorConfig, task: Task) -> TrainConfig:
    """The count likelihood alone, its scores left at the tuples' own rate, so that no prior is needed."""
    shared = {
        name: getattr(config, name)
        for name in (
            *("model", "encoder", "encoder_weights", "clip_model", "clip_weights"),
            *("epochs", "batch_size", "lr", "count_noise", "memory_mb"),
        )
    }
    return TrainConfig(**{**prior_free_settings(task), **shared, "warmup": config.warmup, "seed": config.seed})


def _union(parts: Sequence[TrainingData]) -> TrainingData:
    return replace(
        parts[0],
        tuple_chunks=[chunk for part in parts for chunk in part.tuple_chunks],
        unlabeled_chunks=[chunk for part in parts for chunk in part.unlabeled_chunks],
        part=0,
        _everything=None,
    )


def _network(
    config: TrainConfig,
    source: Artifact,
    data: TrainingData,
    task: Task,
    heldout: HeldoutData | None,
    device: torch.device,
    number: int,
    watcher: Watcher | None,
) -> Score:
    method = methods.get(config.method)(config, task)
    assert isinstance(method, GradientMethod)
    factor, shift = input_normalisation(source, [data], config.normalize)
    model = build_scorer(method.network, source.summary["instance"]["shape"], factor, shift, config.seed + number)
    asked = (heldout or some_training_data(data)) if method.oriented_by_data() else None
    test = torch.empty(0)
    job = Job(config, method, model, PartedData([data]), heldout, test, device, asked=asked)
    outcome = Outcome()
    for record in train_epochs(job, outcome):
        if watcher:
            watcher.epoch(record)
    model.load_state_dict(outcome.weights)
    return lambda raw: predict(model, torch.from_numpy(raw))


def _closed_form(source: Artifact, data: TrainingData, task: Task) -> Score:
    """The linear discriminant from tuples alone: U, whose rate is what we want to know, says nothing here."""
    factor, shift = input_normalisation(source, [data], "auto")
    scorer = build_scorer("linear", source.summary["instance"]["shape"], factor, shift, 0)
    moments: Moments | None = None
    for x, sizes, counts in fit_data(data, scorer).tuples():
        moments = moments or Moments(x.shape[1])
        moments.add_tuples(x, sizes, counts)
    assert moments is not None, "a part holds tuples"
    try:
        found = fit(moments, usable_rate(task.rate))
    except (ZeroDivisionError, ValueError) as error:
        raise NotIdentifiableError(
            f"no class means can be told from these tuples: {error}",
            hint="Use tuples with more than one member, or of several rates.",
        ) from None
    return lambda raw: found.scores(scorer.inputs(torch.from_numpy(raw)).flatten(1).numpy())


def _taught(data: TrainingData, score: Score) -> TrainingData:
    """The same data with what the closed form believes of every instance, given its tuple's count."""

    def inside(chunk: TupleChunk) -> NDArray[np.float32]:
        raw, n, m = chunk.load()
        return count_posterior(score(raw), CountObservations(n, m)).astype(np.float32)

    def outside(chunk: UnlabeledChunk) -> NDArray[np.float32]:
        believed: NDArray[np.float32] = expit(score(chunk.load())).astype(np.float32)
        return believed

    return replace(
        data,
        tuple_chunks=[replace(chunk, targets=partial(inside, chunk)) for chunk in data.tuple_chunks],
        unlabeled_chunks=[replace(chunk, targets=partial(outside, chunk)) for chunk in data.unlabeled_chunks],
    )


def _score_heldout(data: TrainingData, heldout: HeldoutData, score: Score, noise: float) -> ScoredTuples:
    """Held-out tuples and all of U, of which no model is told anything but the means that BatchNorm takes."""
    unlabeled = [score(chunk.load()) for chunk in data.unlabeled_chunks] + [score(heldout.unlabeled.numpy())]
    return ScoredTuples(
        _joined([score(heldout.tuples.numpy())]), heldout.sizes, heldout.counts, _joined(unlabeled), noise
    )


def _score_part(part: TrainingData, score: Score, noise: float) -> ScoredTuples:
    scores, sizes, counts = [], [], []
    for chunk in part.tuple_chunks:
        raw, n, m = chunk.load()
        scores.append(score(raw))
        sizes.append(n)
        counts.append(m)
    unlabeled = [score(chunk.load()) for chunk in part.unlabeled_chunks]
    return ScoredTuples(_joined(scores), np.concatenate(sizes), np.concatenate(counts), _joined(unlabeled), noise)


def _joined(pieces: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    return np.concatenate(pieces).astype(np.float64)
