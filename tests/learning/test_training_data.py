from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.oracle import read_labels, read_oracle
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.data.labelled import load_labelled
from ntmp_cli.learning.training_data import input_normalisation, training_shares
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

CPU = TrainOptions(device="cpu")
GAUSSIANS = "gaussians:dim=3,size=1200,test=100"
CONFIG = TrainConfig(prior=0.5)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    config = MakeTuplesConfig(dataset="digits", tuples=("2-4:1",), shard_size=90, prior=0.6)
    return make_tuples(config, tmp_path_factory.mktemp("digits") / "tuples")


@pytest.fixture(scope="module")
def gaussians(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    config = MakeTuplesConfig(dataset=GAUSSIANS, tuples=("3:1",), shard_size=64)
    return make_tuples(config, tmp_path_factory.mktemp("gaussians") / "tuples")


def training_instances(tuples: Artifact, dataset: str) -> np.ndarray:
    """All training instances, from the labelled source and the oracle's indices."""
    source = [read_oracle(tuples, f"oracle/train-{what}.h5")["source"] for what in ("tuples", "unlabeled")]
    return load_labelled(dataset).x_train[np.concatenate(source)]


def test_chunks_hold_the_published_data_in_order(digits: Artifact) -> None:
    (data,) = training_shares(StoredTuples(digits), CONFIG)
    loaded = [chunk.load() for chunk in data.tuple_chunks]
    x = np.concatenate([*[x for x, _, _ in loaded], *[chunk.load() for chunk in data.unlabeled_chunks]])
    assert np.array_equal(x, training_instances(digits, "digits"))
    assert [len(sizes) for _, sizes, _ in loaded] == [chunk.tuples for chunk in data.tuple_chunks]
    assert data.tuples == digits.summary.tuples.train
    assert data.unlabeled == digits.summary.unlabeled.train
    assert np.concatenate([counts for _, _, counts in loaded]).tolist() == [1] * data.tuples
    # Unlabeled data are cut finer than their files, because no epoch has more windows than chunks.
    assert len(data.unlabeled_chunks) > 50


def test_the_task_lists_the_strata_of_the_training_tuples(digits: Artifact) -> None:
    task = StoredTuples(digits).task
    sizes = np.concatenate([chunk.load()[1] for chunk in training_shares(StoredTuples(digits), CONFIG)[0].tuple_chunks])
    assert list(task.strata) == [(n, 1, np.count_nonzero(sizes == n)) for n in (2, 3, 4)]
    assert task.unlabeled == digits.summary.unlabeled.train


def test_heldout_and_test_instances_are_those_of_the_oracle(digits: Artifact) -> None:
    data, held = load_labelled("digits"), StoredTuples(digits).heldout()
    assert held is not None
    sources = [read_oracle(digits, f"oracle/heldout-{what}.h5")["source"] for what in ("tuples", "unlabeled")]
    assert np.array_equal(held.tuples, data.x_train[sources[0]])
    assert np.array_equal(held.unlabeled, data.x_train[sources[1]])
    assert held.sizes.sum() == len(sources[0])
    assert np.array_equal(StoredTuples(digits).test_instances(), data.x_test)


def test_vectors_are_standardised_per_feature_over_all_training_instances(gaussians: Artifact) -> None:
    factor, shift = input_normalisation(
        StoredTuples(gaussians), training_shares(StoredTuples(gaussians), CONFIG), "auto"
    )
    x = training_instances(gaussians, GAUSSIANS).astype(np.float64)
    assert np.allclose(factor, 1 / x.std(axis=0), rtol=1e-5)
    assert np.allclose(x * factor - shift, (x - x.mean(axis=0)) / x.std(axis=0), atol=1e-5)


def test_grey_pixels_are_only_scaled_unless_set(digits: Artifact) -> None:
    data, x = training_shares(StoredTuples(digits), CONFIG), training_instances(digits, "digits").astype(np.float64)
    for kind in ("auto", "none"):
        factor, shift = input_normalisation(StoredTuples(digits), data, kind)
        assert (factor.item(), shift.item()) == (1 / 16, 0.0)
    factor, shift = input_normalisation(StoredTuples(digits), data, "channel")
    assert factor.shape == shift.shape == (1, 1, 1)
    assert np.allclose(x * factor - shift, (x - x.mean()) / x.std(), atol=1e-5)


@pytest.mark.parametrize(
    ("size", "expected"),
    # T and U instances are a tenth less than 1.5 times the split; in 16 steps, from 32 to 1024.
    [(100, 32), (1200, 109), (60_000, 1024)],
)
def test_by_default_small_data_are_seen_in_sixteen_steps(tmp_path: Path, size: int, expected: int) -> None:
    config = MakeTuplesConfig(dataset=f"gaussians:size={size},test=2", tuples=("2:1",))
    (data,) = training_shares(StoredTuples(make_tuples(config, tmp_path / "tuples")), CONFIG)
    assert data.batch_size == expected
    if expected == 109:
        assert data.epoch(1)[0] == 16


def test_an_asked_batch_size_and_memory_are_obeyed(gaussians: Artifact) -> None:
    (data,) = training_shares(StoredTuples(gaussians), TrainConfig(prior=0.5, batch_size=48, memory_mb=3, seed=7))
    assert (data.batch_size, data.budget_bytes, data.seed) == (48, 3 * 2**20, 7)
    assert data.instance_bytes == 12
    assert data.mean_size == 3.0


def test_training_in_windows_sees_all_data_and_learns(tmp_path: Path) -> None:
    """Data of 1.4 MB in 1 MB of memory: two windows per epoch."""
    data = MakeTuplesConfig(dataset="gaussians:dim=40,separation=4,size=7000,test=900", shard_size=200, prior=0.8)
    tuples = make_tuples(data, tmp_path / "tuples")
    config = TrainConfig(prior=0.8, method="ure", model="linear", lr=0.1, epochs=3, memory_mb=1)
    (windowed,) = training_shares(StoredTuples(tuples), config)
    assert windowed.windows == 2
    seen = torch.cat([batch.x for batch in windowed.epoch(1)[1]]).numpy()
    everything = training_instances(tuples, data.dataset)
    assert np.array_equal(np.sort(seen, axis=None), np.sort(everything, axis=None))
    run = train(config, tmp_path / "tuples", tmp_path / "run", CPU)
    scores, labels = read_scores(run)["test"], read_labels(run)
    assert roc_auc_score(labels, scores) > 0.88
