"""One entry point for every training: of the train stage, of cross-fitting, of `NTMPClassifier`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.batches import TrainingData
from ntmp_cli.learning.closed_form import discriminant_targets, prior_weights
from ntmp_cli.learning.fitting import fit_data
from ntmp_cli.learning.lengths import with_length
from ntmp_cli.learning.loop import Environment, Job, train_epochs
from ntmp_cli.learning.method import FittedMethod, GradientMethod, Method, methods
from ntmp_cli.learning.models import Scorer, build_scorer, predict, snapshot
from ntmp_cli.learning.orientation import Orientation
from ntmp_cli.learning.rank_shares import RankShares
from ntmp_cli.learning.rated_source import RatedSource, source_for
from ntmp_cli.learning.results import EpochRecord, Trained, TrainingResult, score_heldout
from ntmp_cli.learning.teacher import Teacher, teacher_targets
from ntmp_cli.learning.training_data import (
    Batching,
    InstanceTargets,
    input_normalisation,
    orientation_sample,
    training_sample,
    training_shares,
)
from ntmp_cli.progress import long_step
from ntmp_cli.tuple_source import TupleSource

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Training:
    """A training and its data: `data` is a fold with all targets that its method needs; None means the whole source."""

    config: TrainConfig
    source: TupleSource
    data: Sequence[TrainingData] | None = None
    init_seed: int | None = None
    """Seed of the initial weights, if it differs from the config's."""
    initial_weights: Mapping[str, Tensor] | None = None
    """Initial weights, if they are not random."""
    prior_is_known: bool = True
    """Whether the prior was given, and not estimated from the counts of these tuples."""
    true_labels: Callable[[Method], InstanceTargets] | None = None
    """Labels of the training instances, for oracles alone."""
    teacher: Teacher | None = None
    """Scores of training instances by another run, for the warm-up."""
    environment: Environment = field(default_factory=Environment)


def train_scorer(training: Training) -> Trained:
    """Train the configured method; the scorer has the weights of the selected epoch."""
    needed = methods.get(training.config.method).counts_needed
    source = source_for(training.config.method, needed, training.source)
    if isinstance(source, RatedSource):
        all_tuples = sum(tuples for *_, tuples in training.source.task.strata)
        what = "count" if needed == "exact" else "rate"
        log.warning(
            "method %s uses the %d of %d tuples whose %s is known",
            training.config.method,
            source.tuples,
            all_tuples,
            what,
        )
    config = with_length(training.config, source.instance, source.task)
    training = replace(training, config=config, source=source)
    method = methods.get(training.config.method)(training.config, training.source.task)
    if isinstance(method, FittedMethod):
        return _fit(method, training)
    assert isinstance(method, GradientMethod), "a method is trained or fitted"
    job = assemble(method, training)
    outcome, watcher = TrainingResult(), training.environment.watcher
    for record in train_epochs(job, outcome):
        if watcher:
            watcher.epoch(record)
    return finished(job, outcome)


def finished(job: Job, outcome: TrainingResult) -> Trained:
    """The scorer with the weights of the selected epoch."""
    method = job.method
    job.model.load_state_dict(outcome.weights)
    if method.sets_intercept:
        share = job.data.shares[(job.data.local_ranks or [0])[0]]
        job.model.move_scores(method.intercept(score_heldout(job.model, training_sample(share))))
    return Trained(type(method), method.model_name(), "network", job.model, outcome, job.data.batch_size)


def assemble(method: GradientMethod, training: Training) -> Job:
    """What the loop needs, before the first epoch."""
    config, source, processes = training.config, training.source, training.environment.processes
    data = training.data
    method.study(source)
    if data is None:
        batching = Batching(method.batch, method.smallest_batch, _targets(method, training), method.batch_assignment())
        data = training_shares(source, config, config.ranks or 1, batching)
    model = _scorer(method, training, data)
    if training.initial_weights is not None:
        model.load_state_dict(training.initial_weights)
    first = processes.rank == 0  # scores for all ranks
    heldout = source.heldout() if first else None
    test = source.test_instances() if first and config.trace_every else np.empty(0)
    oriented = any(isinstance(callback, Orientation) for callback in method.callbacks())
    orientation = (heldout or orientation_sample(data[0])) if first and oriented else None
    local_ranks = [processes.rank] if processes.size > 1 else []
    return Job(config, method, model, RankShares(data, local_ranks), heldout, test, orientation, training.environment)


def _targets(method: GradientMethod, training: Training) -> InstanceTargets | None:
    targets = method.targets()
    if targets == "labels":
        if training.true_labels is None or not method.is_oracle:
            raise UsageError(
                f"method {training.config.method} learns from true labels, which these data do not have",
                hint="It is an upper bound for simulated tuples; use the method count on real ones.",
            )
        return training.true_labels(method)
    if targets == "teacher":
        if training.teacher is None:
            raise UsageError("warmup: teacher needs the run of a teacher", hint="Use another warm-up.")
        with long_step("scoring training instances by the teacher"):
            return teacher_targets(training.config, training.source, training.teacher)
    with long_step("fitting the closed form"):
        if targets == "weights":
            return prior_weights(training.config, training.source)
        return discriminant_targets(training.config, training.source) if targets == "discriminant" else None


def _scorer(method: Method, training: Training, data: Sequence[TrainingData]) -> Scorer:
    config, source = training.config, training.source
    seed = config.seed if training.init_seed is None else training.init_seed
    factor, shift = input_normalisation(source, data, config.normalize if method.normalises else "none")
    return build_scorer(method.network, source.instance.shape, factor, shift, seed)


def _fit(method: FittedMethod, training: Training) -> Trained:
    """The scorer of a method without epochs, recorded as if it had one."""
    started = time.perf_counter()
    config, source = training.config, training.source
    data = training.data or training_shares(source, config)
    scorer = _scorer(method, training, data)
    heldout, test = source.heldout(), source.test_instances()
    with long_step(f"fitting the method {config.method}"):
        fit = method.fit(fit_data(data[0], scorer, heldout))
    scorer.set_linear(fit.weight, fit.bias)
    with long_step("scoring held-out tuples"):
        risk = None if heldout is None else method.heldout_risk(score_heldout(scorer, heldout))
    fields = {"epoch": 1, "loss": None, **fit.fields, "heldout_risk": None if risk is None else risk.value}
    instances = source.task.instances + source.task.unlabeled
    record = EpochRecord(1, fields, predict(scorer, test), time.perf_counter() - started, instances)
    outcome = TrainingResult([record], 1, weights=snapshot(scorer))
    return Trained(type(method), method.model_name(), "network", scorer, outcome)
