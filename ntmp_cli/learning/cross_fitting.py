"""Scores of tuples and of U by models that were not trained on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.config import EstimatePriorConfig, TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.discriminant import fit
from ntmp_cli.learning.fitting import fit_data
from ntmp_cli.learning.folds import fold_tuples
from ntmp_cli.learning.groups import rate_shift, usable_rate
from ntmp_cli.learning.loop import Environment
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.models import build_scorer
from ntmp_cli.learning.moments import Moments
from ntmp_cli.learning.prior_free import score_model
from ntmp_cli.learning.repeats import repeated_share
from ntmp_cli.learning.results import Watching
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.learning.training_data import Batching, input_normalisation, training_folds, training_shares
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.tuple_source import HeldoutData, TupleSource

log = logging.getLogger(__name__)

# Raw instances to scores.
Score = Callable[[NDArray[np.generic]], NDArray[Any]]


@dataclass(frozen=True)
class CrossFit:
    """The device on which networks are trained, and the progress display of each."""

    device: torch.device
    watching: Watching = lambda epochs: nullcontext()

    def network(self, config: TrainConfig, source: TupleSource, data: TrainingData, number: int) -> Score:
        """The network that these data train; fold `number` has other initial weights."""
        with self.watching(config.known_epochs) as watcher:
            environment = Environment(self.device, watcher=watcher)
            trained = train_scorer(Training(config, source, [data], config.seed + number, environment=environment))
        return trained.scorer.score


def scores_without_prior(config: EstimatePriorConfig, source: TupleSource, how: CrossFit) -> list[ScoredTuples]:
    """Scores of tuples and U by prior-free models of other tuples: of the held-out tuples, or fold by fold."""
    task, heldout = source.task, source.heldout()
    settings = score_model(config, task)

    def fitted(data: TrainingData, number: int) -> Score:
        if config.score == "discriminant":
            return _closed_form(source, data)
        if config.warmup == "discriminant":
            data = _with_targets(data, _closed_form(source, data), config.count_noise)
        return how.network(settings, source, data, number)

    batching = _batching(settings)
    if heldout is not None and config.folds is None:
        (data,) = training_shares(source, settings, 1, batching)
        blocks = source.blocks()
        held_blocks = None if blocks is None else blocks[-len(heldout.sizes) :]
        return [replace(_score_heldout(data, heldout, fitted(data, 0), config.count_noise), blocks=held_blocks)]
    folds = training_folds(source, settings, config.folds or 2, batching)
    # Rows of different tuples that happen to be equal are different items.
    instances = ((chunk.load()[0] for chunk in fold.tuple_chunks) for fold in folds)
    if source.shares_instances and (repeated := repeated_share(instances)):
        log.warning(
            "%.0f %% of the instances are in tuples of more than one fold: scores of training instances mislead",
            100 * repeated,
        )
    noise = config.count_noise
    scored = [score_fold(fold, fitted(rest, number), noise) for number, fold, rest in with_other_folds(folds)]
    return _with_blocks(source, scored)


def scores_at_tuple_rate(config: TrainConfig, source: TupleSource, folds: int, how: CrossFit) -> list[ScoredTuples]:
    """All training tuples, fold by fold, scored at the tuples' rate by a network trained on the other folds."""
    data = training_folds(source, config, folds, _batching(config))
    shift = rate_shift(config.known_prior(), source.task.rate, source.task.instances)
    noise: float = getattr(config.settings, "count_noise", 0.0)
    scored = []
    for number, fold, rest in with_other_folds(data):
        scores = score_fold(fold, how.network(config, source, rest, number), noise)
        scored.append(replace(scores, scores=scores.scores - shift, unlabeled=scores.unlabeled - shift))
    return _with_blocks(source, scored)


def _batching(config: TrainConfig) -> Batching:
    kind = methods.get(config.method)
    return Batching(kind.batch, kind.smallest_batch) if issubclass(kind, GradientMethod) else Batching()


def with_other_folds(folds: Sequence[TrainingData]) -> Sequence[tuple[int, TrainingData, TrainingData]]:
    """(number, fold, union of the other folds)."""
    return [(i, fold, _union([other for other in folds if other is not fold])) for i, fold in enumerate(folds)]


def _union(folds: Sequence[TrainingData]) -> TrainingData:
    return replace(
        folds[0],
        tuple_chunks=[chunk for fold in folds for chunk in fold.tuple_chunks],
        unlabeled_chunks=[chunk for fold in folds for chunk in fold.unlabeled_chunks],
        share=0,
        _all_data=None,
    )


def _closed_form(source: TupleSource, data: TrainingData) -> Score:
    """The linear discriminant from tuples alone: U, whose rate is to be estimated, is left out."""
    factor, shift = input_normalisation(source, [data], "auto")
    scorer = build_scorer("linear", source.instance.shape, factor, shift, 0)
    moments: Moments | None = None
    for x, sizes, counts in fit_data(data, scorer).tuples():
        moments = moments or Moments(x.shape[1])
        moments.add_tuples(x, sizes, counts)
    assert moments is not None, "a fold holds tuples"
    try:
        discriminant = fit(moments, usable_rate(source.task.rate, source.task.instances))
    except (ZeroDivisionError, ValueError) as error:
        raise NotIdentifiableError(
            f"these tuples do not identify the class means: {error}",
            hint="Use tuples with more than one member, or of several rates.",
        ) from None
    return lambda raw: discriminant.scores(scorer.inputs(torch.from_numpy(raw)).flatten(1).numpy())


def _with_targets(data: TrainingData, score: Score, noise: float) -> TrainingData:
    """The same data with the closed form's probability of every instance, given its tuple's count."""

    def inside(chunk: TupleChunk) -> NDArray[np.float32]:
        raw, n, m = chunk.load()
        return count_posterior(score(raw), CountObservations(n, m, count_noise(noise))).astype(np.float32)

    def outside(chunk: UnlabeledChunk) -> NDArray[np.float32]:
        probabilities: NDArray[np.float32] = expit(score(chunk.load())).astype(np.float32)
        return probabilities

    return replace(
        data,
        tuple_chunks=[replace(chunk, targets=partial(inside, chunk)) for chunk in data.tuple_chunks],
        unlabeled_chunks=[replace(chunk, targets=partial(outside, chunk)) for chunk in data.unlabeled_chunks],
    )


def _with_blocks(source: TupleSource, scored: Sequence[ScoredTuples]) -> list[ScoredTuples]:
    """Folds with the blocks of their tuples."""
    blocks = source.blocks()
    if blocks is None:
        return list(scored)
    folds = zip(scored, fold_tuples(source, len(scored)), strict=True)
    return [replace(fold, blocks=blocks[positions]) for fold, positions in folds]


def _score_heldout(data: TrainingData, heldout: HeldoutData, score: Score, noise: float) -> ScoredTuples:
    """Held-out tuples and all of U, which no model was trained on, except through BatchNorm's means."""
    unlabeled = [score(chunk.load()) for chunk in data.unlabeled_chunks] + [score(heldout.unlabeled)]
    return ScoredTuples(
        _concatenated([score(heldout.tuples)]), heldout.sizes, heldout.counts, _concatenated(unlabeled), noise
    )


def score_fold(fold: TrainingData, score: Score, noise: float) -> ScoredTuples:
    scores, sizes, counts = [], [], []
    for chunk in fold.tuple_chunks:
        raw, n, m = chunk.load()
        scores.append(score(raw))
        sizes.append(n)
        counts.append(m)
    unlabeled = [score(chunk.load()) for chunk in fold.unlabeled_chunks]
    return ScoredTuples(
        _concatenated(scores), np.concatenate(sizes), np.concatenate(counts), _concatenated(unlabeled), noise
    )


def _concatenated(scores: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    return np.concatenate(scores).astype(np.float64)
