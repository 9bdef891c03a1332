"""Training instances for methods that are computed at once, and the closed form as a teacher of networks."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.artifacts import Artifact
from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.batches import TrainingData
from ntmp_cli.learning.method import FitData
from ntmp_cli.learning.methods.discriminant import ClosedForm
from ntmp_cli.learning.models import Scorer, build_scorer
from ntmp_cli.stages.training_data import InstanceTargets, input_normalisation, read_task, training_data

log = logging.getLogger(__name__)


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
    pieces = _pieces(config, source)
    scores = ClosedForm(config, read_task(source)).discriminant(pieces).scores
    inside = [count_posterior(scores(x), CountObservations(n, m)) for x, n, m in pieces.tuples()]
    outside = [expit(scores(x)) for x in pieces.unlabeled()]
    return np.concatenate(inside).astype(np.float32), np.concatenate(outside).astype(np.float32)


def prior_weights(config: TrainConfig, source: Artifact) -> InstanceTargets:
    """Weights that move U to the prior π that is trained with, where its own prior ρ is not within π ± ε₀; else ones.

    U = ρp₊ + (1−ρ)p₋, weighted by q π/ρ + (1−q)(1−π)/(1−ρ), is πp₊ + (1−π)p₋ exactly if q(x) is P(y=1|x) at ρ. Both ρ
    and q are the closed form's (SPEC 4b): ρ by the covariance within tuples, which a wrong π does not mislead. Tuple
    instances keep a weight of one.
    """
    task, pieces, prior = read_task(source), _pieces(config, source), config.prior
    ones = np.ones(task.instances, dtype=np.float32), np.ones(task.unlabeled, dtype=np.float32)
    found = None
    if not task.symmetric:
        found = ClosedForm(config, task).discriminant(pieces, trusts_prior=False).prior_estimate
    if found is None or not 0 < found < 1:
        raise NotIdentifiableError(
            "--margin-policy reweight: the prior of the unlabeled pool cannot be estimated from these tuples",
            hint="It takes enough tuples with 0 < m < n and n other than 2m; or use --margin-policy resample.",
        )
    told = f"the prior of the unlabeled pool is {found:.3f} by the closed form"
    if abs(found - prior) <= config.margin:
        log.info("%s, within %g ± %g", told, prior, config.margin)
        return ones
    log.info("%s, not within %g ± %g: its instances are weighted to %g", told, prior, config.margin, prior)
    at_own_prior = ClosedForm(config.model_copy(update={"prior": found}), task)
    scores = at_own_prior.discriminant(pieces, trusts_prior=False).scores
    q = np.concatenate([expit(scores(x)) for x in pieces.unlabeled()])
    weights = q * prior / found + (1 - q) * (1 - prior) / (1 - found)
    return ones[0], (weights / weights.mean()).astype(np.float32)


def _pieces(config: TrainConfig, source: Artifact) -> FitData:
    (data,) = training_data(source, config)
    method = ClosedForm(config, read_task(source))
    factor, shift = input_normalisation(source, [data], config.normalize)
    scorer = build_scorer(method.network, source.summary["instance"]["shape"], factor, shift, config.seed)
    return fit_data(data, scorer)
