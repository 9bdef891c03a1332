"""Training instances for methods that are computed at once, and the closed form as a teacher of networks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.artifacts import Artifact
from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.batches import TrainingData
from ntmp_cli.learning.counts import count_posterior
from ntmp_cli.learning.method import FitData
from ntmp_cli.learning.methods.discriminant import ClosedForm
from ntmp_cli.learning.models import Scorer, build_scorer
from ntmp_cli.stages.training_data import InstanceTargets, input_normalisation, read_task, training_data


def fit_data(data: TrainingData, scorer: Scorer) -> FitData:
    """Chunks of training data as the scorer's network sees them, flattened."""

    def inputs(raw: NDArray[np.generic]) -> NDArray[np.float32]:
        return np.ascontiguousarray(scorer.inputs(torch.from_numpy(raw)).flatten(1).numpy())

    def tuples() -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]]:
        for chunk in data.tuple_chunks:
            raw, sizes, counts = chunk.load()
            yield inputs(raw), sizes, counts

    def unlabeled() -> Iterator[NDArray[np.float32]]:
        for chunk in data.unlabeled_chunks:
            yield inputs(chunk.load())

    return FitData(tuples, unlabeled)


def discriminant_targets(config: TrainConfig, source: Artifact) -> InstanceTargets:
    """P(y=1) of every training instance by the closed form of SPEC 4b: given its tuple's count, or the prior of U."""
    (data,) = training_data(source, config)
    method = ClosedForm(config, read_task(source))
    factor, shift = input_normalisation(source, [data], config.normalize)
    scorer = build_scorer(method.network, source.summary["instance"]["shape"], factor, shift, config.seed)
    pieces = fit_data(data, scorer)
    line = method.fit(pieces)

    def scores(x: NDArray[np.float32]) -> NDArray[np.float64]:
        z: NDArray[np.float64] = x @ line.weight + line.bias
        return z

    inside = [
        count_posterior(torch.from_numpy(scores(x)), torch.from_numpy(n), torch.from_numpy(m)).numpy()
        for x, n, m in pieces.tuples()
    ]
    outside = [expit(scores(x)) for x in pieces.unlabeled()]
    return np.concatenate(inside).astype(np.float32), np.concatenate(outside).astype(np.float32)
