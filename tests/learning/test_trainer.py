"""The one entry point of every training: what it assembles, refuses and gives back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning import trainer
from ntmp_cli.learning.loop import Environment
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.models import predict
from ntmp_cli.learning.processes import OneProcess
from ntmp_cli.learning.results import EpochRecord
from ntmp_cli.learning.trainer import Training, assemble, train_scorer
from ntmp_cli.learning.training_data import Batching, training_shares
from ntmp_cli.tuple_source import ArraySource, HeldoutData

DIM = 3
FAST: dict[str, Any] = {"prior": 0.7, "model": "mlp", "epochs": 3, "batch_size": 60, "lr": 0.05, "trace_every": 0}


def sampled(seed: int, tuples: int = 60, unlabeled: int = 120) -> tuple[Any, Any, Any, Any]:
    """Tuples of three with one positive, and a pool, of two Gaussians three apart."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.tile([1, 0, 0], tuples), rng.random(unlabeled) < 0.7])
    x = rng.standard_normal((len(y), DIM)).astype(np.float32) + 3 * (y[:, None] - 0.5).astype(np.float32)
    return x[: 3 * tuples], np.full(tuples, 3), np.ones(tuples, np.int64), x[3 * tuples :]


@pytest.fixture(scope="module")
def source() -> ArraySource:
    return ArraySource(*sampled(0), HeldoutData(*sampled(1)))


def job_of(source: ArraySource, environment: Environment | None = None, **settings: Any) -> Any:
    config = TrainConfig.model_validate({**FAST, **settings})
    method = methods.get(config.method)(config, source.task)
    assert isinstance(method, GradientMethod)
    return assemble(method, Training(config, source, environment=environment or Environment()))


def test_the_scorer_has_the_weights_of_the_selected_epoch(source):
    done = train_scorer(
        Training(TrainConfig(**FAST, method="ure", select="best", schedule="constant", ema=0.0), source)
    )
    risks = [record.fields["heldout_risk"] for record in done.outcome.records]
    assert done.outcome.selected_epoch == int(np.argmin(risks)) + 1
    for key, value in done.scorer.state_dict().items():
        assert torch.equal(value, done.outcome.weights[key])
    assert done.batch_size == 60


def test_a_watcher_hears_of_every_step_and_epoch(source):
    class Watcher:
        steps = 0

        def __init__(self) -> None:
            self.epochs: list[int] = []

        def step(self, epoch: int, step: int, steps: int, loss: torch.Tensor) -> None:
            self.steps += 1

        def epoch(self, record: EpochRecord) -> None:
            self.epochs.append(record.epoch)

    watcher = Watcher()
    train_scorer(Training(TrainConfig(**FAST), source, environment=Environment(watcher=watcher)))
    assert watcher.epochs == [1, 2, 3]
    assert watcher.steps == 3 * job_of(source).data.epoch(1)[0]


def test_a_fold_is_trained_on_instead_of_everything_with_initial_weights_of_its_own(source):
    config = TrainConfig(**FAST)
    folds = training_shares(source, config, 2)
    whole, fold, again, other = (
        train_scorer(training).outcome.weights
        for training in (
            Training(config, source),
            Training(config, source, [folds[0]]),
            Training(config, source, [folds[0]], init_seed=config.seed),
            Training(config, source, [folds[0]], init_seed=5),
        )
    )
    key = "network.1.weight"
    assert torch.equal(fold[key], again[key])
    assert not torch.equal(fold[key], whole[key])
    assert not torch.equal(fold[key], other[key])


def test_targets_of_a_fold_are_those_that_it_came_with(source, monkeypatch):
    """They are computed of the other folds; those of the whole source would know the fold that is scored."""
    config = TrainConfig(**FAST, warmup="discriminant")
    task = source.task
    targets = tuple(np.full(size, 0.25, dtype=np.float32) for size in (task.instances, task.unlabeled))
    folds = training_shares(source, config, 2, Batching(60, targets=targets))

    def refuse(*given: object) -> None:
        raise AssertionError("the whole source was fitted")

    monkeypatch.setattr(trainer, "discriminant_targets", refuse)
    done = train_scorer(Training(config, source, [folds[0]]))
    assert done.outcome.records[0].fields["closed_form"] > 0
    with pytest.raises(AssertionError, match="the whole source"):
        train_scorer(Training(config, source))


def test_ranks_in_one_process_are_read_side_by_side(source):
    job = job_of(source, ranks=3)
    assert len(job.data.shares) == 3
    assert train_scorer(Training(TrainConfig(**FAST, ranks=3), source)).outcome.selected_epoch > 0


def test_orientation_is_decided_by_heldout_data_or_else_by_some_of_training(source):
    assert job_of(source).orientation is source.heldout()
    alone = job_of(replace(source, heldout_data=None))
    assert alone.heldout is None
    assert np.array_equal(alone.orientation.tuples, source.tuples)
    assert alone.orientation.unlabeled.shape[1:] == (DIM,)


@pytest.mark.parametrize("method", ["ure", "count-plain"])
def test_methods_that_need_no_orientation_read_no_data_for_it(source, method):
    assert job_of(replace(source, heldout_data=None), method=method).orientation is None


class OtherRank(OneProcess):
    rank, size = 1, 2


def test_other_ranks_score_nothing(source):
    job = job_of(source, Environment(processes=OtherRank()), ranks=2)
    assert (job.heldout, job.orientation, len(job.test)) == (None, None, 0)
    assert list(job.data.local_ranks) == [1]


def test_a_method_that_is_computed_at_once_is_recorded_as_one_epoch(source):
    done = train_scorer(Training(TrainConfig(prior=0.7, method="discriminant"), source))
    (record,) = done.outcome.records
    assert (record.epoch, record.fields["loss"], done.outcome.selected_epoch, done.batch_size) == (1, None, 1, None)
    assert record.instances == source.task.instances + source.task.unlabeled
    x, *_ = sampled(7)
    right = (predict(done.scorer, x) > 0) == np.tile([1, 0, 0], len(x) // 3)
    assert right.mean() > 0.95


def test_a_method_that_is_computed_at_once_has_no_ranks(source):
    with pytest.raises(UsageError, match="method kmeans has no gradient steps: it runs in one process"):
        train_scorer(Training(TrainConfig(prior=0.7, method="kmeans", ranks=2), source))
