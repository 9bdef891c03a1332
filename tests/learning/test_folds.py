"""Folds of training tuples: even, and never through a block."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from ntmp_cli.config import EstimatePriorConfig, TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.batches import TrainingData
from ntmp_cli.learning.cross_fitting import CrossFit, Score, scores_at_tuple_rate, scores_without_prior
from ntmp_cli.learning.folds import fold_tuples
from ntmp_cli.learning.training_data import training_folds
from ntmp_cli.tuple_source import ArraySource, TupleSource

TUPLES = 40
# Tuple t is of block t mod 7: every block is scattered over the stored order.
BLOCKS = np.arange(TUPLES) % 7


def source(blocks: np.ndarray | None = None) -> ArraySource:
    """Tuple t has two or three members, whose features are t."""
    sizes = 2 + np.arange(TUPLES) % 2
    x = np.repeat(np.arange(TUPLES), sizes).astype(np.float32)[:, None]
    pool = -1 - np.arange(30, dtype=np.float32)[:, None]
    return ArraySource(x, sizes, np.arange(TUPLES) % 3 % sizes, pool, tuple_blocks=blocks)


def test_folds_without_blocks_are_even_shares_in_stored_order() -> None:
    folds = fold_tuples(source(), 3)
    assert [len(fold) for fold in folds] == [13, 13, 14]
    assert np.concatenate(folds).tolist() == list(range(TUPLES))


@pytest.mark.parametrize("folds", [2, 3, 7])
def test_a_block_is_in_one_fold_and_folds_are_about_even(folds: int) -> None:
    # Blocks of held-out tuples follow those of the training tuples; they are of no fold.
    positions = fold_tuples(source(np.concatenate([BLOCKS, [0, 0, 99]])), folds)
    assert sorted(np.concatenate(positions)) == list(range(TUPLES))
    blocks = [set(BLOCKS[fold].tolist()) for fold in positions]
    assert sum(map(len, blocks)) == len(set().union(*blocks)) == 7
    sizes = [len(fold) for fold in positions]
    assert max(sizes) - min(sizes) <= 6


def test_fewer_blocks_than_folds_are_refused() -> None:
    with pytest.raises(UsageError, match="the arrays: there are 7 blocks of tuples, and a block is not divided"):
        fold_tuples(source(BLOCKS), 8)
    with pytest.raises(UsageError, match="all training tuples are of one block"):
        fold_tuples(source(np.zeros(TUPLES, np.int64)), 2)


def test_chunks_of_a_fold_hold_its_tuples_with_their_sizes_and_counts() -> None:
    data = source(BLOCKS)
    for fold, positions in zip(training_folds(data, TrainConfig(), 3), fold_tuples(data, 3), strict=True):
        (chunk,) = fold.tuple_chunks
        x, sizes, counts = chunk.load()
        assert fold.tuples == chunk.tuples == len(positions)
        assert sizes.tolist() == data.sizes[positions].tolist()
        assert counts.tolist() == data.counts[positions].tolist()
        assert x[:, 0].tolist() == np.repeat(positions, sizes).tolist()


@dataclass(frozen=True)
class NotedTrainings(CrossFit):
    """Notes the tuples that every network is trained on."""

    trained: list[set[int]] = field(default_factory=list)

    def network(self, config: TrainConfig, source: TupleSource, data: TrainingData, number: int) -> Score:
        members = np.concatenate([chunk.load()[0] for chunk in data.tuple_chunks])
        self.trained.append({int(value) for value in members[:, 0]})
        return super().network(config, source, data, number)


@pytest.mark.parametrize("stage", ["audit", "estimate-prior"])
def test_a_network_scores_no_tuple_of_a_block_that_it_was_trained_on(stage: str) -> None:
    data, how = source(BLOCKS), NotedTrainings(torch.device("cpu"))
    if stage == "audit":
        scored = scores_at_tuple_rate(TrainConfig(prior=0.5, epochs=1, self_training=0.0), data, 3, how)
    else:
        scored = scores_without_prior(EstimatePriorConfig(folds=3, epochs=1, model="linear", warmup="none"), data, how)
    assert sum(len(fold.sizes) for fold in scored) == TUPLES
    for fold, trained in zip(scored, how.trained, strict=True):
        judged = set(range(TUPLES)) - trained
        assert len(fold.sizes) == len(judged)
        assert not {BLOCKS[t] for t in judged} & {BLOCKS[t] for t in trained}
