"""The intercept by known rates: as many positives are called as counts and prior say."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.learning.intercepts import share_intercept
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.stages.make_tuples import make_tuples


@given(st.integers(1, 40), st.integers(1, 80), st.integers(0, 3), st.floats(0.05, 0.95), st.integers(0, 2**32))
def test_as_many_are_called_positive_as_there_are(tuples: int, pool: int, m: int, prior: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = HeldoutScores(rng.normal(3, 2, 3 * tuples), np.full(tuples, 3), np.full(tuples, m), rng.normal(3, 2, pool))
    b = share_intercept(scores, prior)
    called = sum(int((z + b > 1e-9).sum()) for z in (scores.tuple_scores, scores.unlabeled_scores))
    assert abs(called - (m * tuples + prior * pool)) <= 1


def test_the_scorer_of_a_training_is_moved_and_the_ranking_is_not(tmp_path: Path) -> None:
    data = MakeTuplesConfig(dataset="gaussians", tuples=("3:1",), prior=0.2, num_tuples=100, unlabeled_size=200)
    source = StoredTuples(make_tuples(data, tmp_path / "tuples"))
    trained = {}
    for intercept in ("none", "shares"):
        config = TrainConfig(method="ure", prior=0.2, model="linear", epochs=2, trace_every=0, intercept=intercept)
        trained[intercept] = train_scorer(Training(config, source)).scorer
    test = source.test_instances()
    moved = trained["shares"].score(test) - trained["none"].score(test)
    assert np.ptp(moved) < 1e-5
    ((tuple_shard, count),), ((pool_shard, size),) = source.tuple_shards(), source.unlabeled_shards()
    x, _, counts = source.read_tuples(tuple_shard, 0, count)
    u = source.read_unlabeled(pool_shard, 0, size)
    called = sum(int((trained["shares"].score(rows) > 0).sum()) for rows in (x, u))
    assert called == pytest.approx(counts.sum() + 0.2 * len(u), abs=1.5)
