"""Tuples in memory and tuples on disk are one to the trainer: the same chunks, batches and weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.trainer import Trained, Training, train_scorer
from ntmp_cli.learning.training_data import Batching, input_normalisation, training_shares
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.tuple_source import ArraySource, Task, TupleSource

DATASET = "gaussians:dim=3,separation=3,size=500,test=40"
FAST = {"prior": 0.6, "epochs": 2, "batch_size": 64, "trace_every": 0}


def in_memory(stored: StoredTuples) -> ArraySource:
    """Everything that a directory holds, as arrays."""
    tuples = [stored.read_tuples(name, 0, rows) for name, rows in stored.tuple_shards()]
    pool = [stored.read_unlabeled(name, 0, rows) for name, rows in stored.unlabeled_shards()]
    x, sizes, counts = (np.concatenate(column) for column in zip(*tuples, strict=True))
    return ArraySource(x, sizes, counts, np.concatenate(pool), stored.heldout())


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    config = MakeTuplesConfig(dataset=DATASET, tuples=("2-4:~0.4",), prior=0.6)
    return make_tuples(config, tmp_path_factory.mktemp("source") / "tuples")


@pytest.fixture(scope="module")
def stored(artifact: Artifact) -> StoredTuples:
    return StoredTuples(artifact)


@pytest.fixture(scope="module")
def arrays(stored: StoredTuples) -> ArraySource:
    return in_memory(stored)


def test_both_describe_the_same_task_and_instances(stored, arrays):
    assert arrays.task == stored.task
    assert arrays.instance == stored.instance
    assert stored.instance.nbytes == 12


@pytest.mark.parametrize("shares", [1, 3])
def test_both_give_the_same_chunks_with_the_same_targets(stored, arrays, shares):
    task = stored.task
    targets = tuple(np.arange(size, dtype=np.float32) for size in (task.instances, task.unlabeled))
    config = TrainConfig(**FAST)
    one, other = (training_shares(source, config, shares, Batching(64, targets=targets)) for source in (stored, arrays))
    assert len(one) == len(other) == shares
    for mine, theirs in zip(one, other, strict=True):
        for a, b in zip(mine.tuple_chunks, theirs.tuple_chunks, strict=True):
            assert all(np.array_equal(x, y) for x, y in zip(a.load(), b.load(), strict=True))
            assert np.array_equal(a.targets(), b.targets())
        for a, b in zip(mine.unlabeled_chunks, theirs.unlabeled_chunks, strict=True):
            assert np.array_equal(a.load(), b.load())
            assert np.array_equal(a.targets(), b.targets())
    seen = np.concatenate([chunk.targets() for share in one for chunk in share.tuple_chunks])
    assert np.array_equal(seen, targets[0])


def test_shares_of_several_shards_are_those_of_one_array(tmp_path: Path):
    """However a directory is cut into shards, a rank reads the same rows."""
    config = MakeTuplesConfig(dataset=DATASET, tuples=("2-4:~0.4",), prior=0.6, shard_size=17)
    sharded = StoredTuples(make_tuples(config, tmp_path / "tuples"))
    assert len(sharded.tuple_shards()) > 5
    for mine, theirs in zip(
        *(training_shares(source, TrainConfig(**FAST), 4) for source in (sharded, in_memory(sharded))), strict=True
    ):
        joined = [
            [np.concatenate(column) for column in zip(*(chunk.load() for chunk in data.tuple_chunks), strict=True)]
            for data in (mine, theirs)
        ]
        assert all(np.array_equal(a, b) for a, b in zip(*joined, strict=True))


def trained(source: TupleSource, **settings: object) -> Trained:
    return train_scorer(Training(TrainConfig.model_validate({**FAST, **settings}), source))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "count"},
        {"method": "count", "warmup": "discriminant"},
        {"method": "ure", "clamp": "abs", "margin_policy": "resample"},
        {"method": "ure", "margin_policy": "reweight", "prior": 0.9},
        {"method": "discriminant"},
        {"method": "kmeans++"},
        {"method": "llp-bagce"},
        {"method": "attention-mil"},
    ],
    ids=str,
)
def test_both_train_the_same_weights(stored, arrays, settings):
    one, other = trained(stored, **settings), trained(arrays, **settings)
    assert one.outcome.weights.keys() == other.outcome.weights.keys()
    assert all(torch.equal(value, other.outcome.weights[key]) for key, value in one.outcome.weights.items())
    assert [r.fields for r in one.outcome.records] == [r.fields for r in other.outcome.records]


def test_both_normalise_inputs_alike(stored, arrays):
    one, other = (input_normalisation(s, training_shares(s, TrainConfig(**FAST)), "auto") for s in (stored, arrays))
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_arrays_read_any_range_of_tuples(arrays):
    x, sizes, counts = arrays.read_tuples("tuples", 3, 7)
    start, stop = arrays.sizes[:3].sum(), arrays.sizes[:7].sum()
    assert np.array_equal(x, arrays.tuples[start:stop])
    assert (sizes.tolist(), counts.tolist()) == (arrays.sizes[3:7].tolist(), arrays.counts[3:7].tolist())
    assert len(arrays.test_instances()) == 0


def test_what_is_set_aside_and_tested_on_is_read_once(artifact):
    source = StoredTuples(artifact)
    assert source.heldout() is source.heldout()
    assert source.test_instances() is source.test_instances()


def test_data_that_cannot_be_divided_among_so_many_ranks_are_refused(arrays):
    with pytest.raises(UsageError, match="the arrays: fewer tuples than the 10000 ranks or folds"):
        training_shares(arrays, TrainConfig(**FAST), 10_000)


def test_a_task_knows_its_rate_and_whether_counts_tell_the_classes_apart():
    task = Task([(3, 1, 10), (4, 2, 5)], 30)
    assert (task.instances, task.rate, task.symmetric) == (50, 20 / 50, False)
    assert Task([(2, 1, 10), (4, 2, 5)], 30).symmetric


def test_an_oracle_is_refused_where_there_are_no_labels(arrays):
    with pytest.raises(UsageError, match="method supervised learns from true labels, which these data do not have"):
        trained(arrays, method="supervised")
