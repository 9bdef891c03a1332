"""One training epoch against a bare loop: the same steps on batches that are already gathered in memory."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fake_data import images
from benchmarks.timing import Ratio, take_turns
from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.artifacts.true_labels import true_targets
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.data.labelled import LabelledData, load_labelled
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.learning.loop import Job, make_optimizer, train_epochs
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.results import TrainingResult
from ntmp_cli.learning.trainer import Training, assemble
from ntmp_cli.stages.make_tuples import tuples_from_labelled


def ratios() -> Iterator[Ratio]:
    mnist = images("fake-mnist", 60_000, 100, (1, 28, 28))
    cifar = images("fake-cifar10", 2_400, 100, (3, 32, 32))  # fewer: what is compared is the work per step
    yield _compare("epoch of mlp on data of MNIST's size", mnist, "mlp", rounds=11, allowed=1.08)
    yield _compare("epoch of resnet20 on images of CIFAR-10's size", cifar, "resnet20", rounds=3, allowed=1.08)
    # By default so few instances are in one or two batches: then the record of an epoch outweighs its steps.
    yield _compare("epoch of linear on digits", load_labelled("digits"), "linear", rounds=200, allowed=1.5, batch=128)


def _compare(
    what: str, data: LabelledData, model: str, *, rounds: int, allowed: float, batch: int | None = None
) -> Ratio:
    with tempfile.TemporaryDirectory() as folder:
        config = MakeTuplesConfig(prior=0.5, heldout_share=0.0)
        tuples = tuples_from_labelled(config, [parse_spec("3:1")], data, Path(folder) / "tuples")
        # Far more epochs than are run, so that the generator never ends; nothing but training is timed.
        settings = TrainConfig(
            prior=0.5, method="ure", model=model, epochs=10_000, batch_size=batch, trace_every=0, select="last"
        )
        job = make_job(tuples, settings)
        epochs = train_epochs(job, TrainingResult())
        bare = _bare_epoch(make_job(tuples, settings))
        return Ratio(what, *take_turns(lambda: next(epochs), bare, rounds), allowed)


def make_job(tuples: Artifact, config: TrainConfig) -> Job:
    """A training without anything to score after an epoch: only its steps are timed."""
    source = StoredTuples(tuples)
    method = methods.get(config.method)(config, source.task)
    assert isinstance(method, GradientMethod)
    job = assemble(method, Training(config, source, true_labels=partial(true_targets, tuples)))
    return replace(job, heldout=None, orientation=None)


def _bare_epoch(job: Job) -> Any:
    """Forward, loss, backward and step on normalised float batches, and nothing else."""
    model = copy.deepcopy(job.model)
    optimizer = make_optimizer(model, job.config)
    _, batches = job.data.epoch(1)
    ready = [(batch.x * model.factor - model.shift, job.method.prepare(batch, 0.0)) for batch in batches]
    model.train()

    def epoch() -> None:
        for x, prepared in ready:
            loss, _ = job.method.loss(model.network(x).squeeze(-1), prepared)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()

    return epoch
