"""Two processes of torchrun train what one process trains, on 127.0.0.1, with nothing left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_tuples import StoredTuples
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.rank_shares import RankShares, union_of_batches
from ntmp_cli.learning.training_data import training_shares
from ntmp_cli.stages.make_tuples import make_tuples

# Small steps of plain descent: larger or adaptive ones blow the rounding of sums up, step by step, in any order.
GENTLE = ["--optimizer", "sgd", "--lr", "0.005", "--epochs", "1", "--batch-size", "256", "--threads", "1"]


@pytest.fixture(scope="module")
def tuples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tuples of several lengths in several shards, so that shares of two processes cut through a shard."""
    path = tmp_path_factory.mktemp("torchrun") / "tuples"
    make_tuples(
        MakeTuplesConfig(dataset="digits", tuples=("3:1", "4:2@0.3"), prior=0.7, shard_size=170, num_tuples=300), path
    )
    return path


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    return {**kept, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def torchrun(*words: str) -> subprocess.CompletedProcess[str]:
    # --standalone: the store of torchrun chooses its port itself.
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    command = [*launcher, "--nproc-per-node", "2", "-m", "ntmp_cli", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)


def alone(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ntmp_cli", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=300)


def history(ended: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert ended.returncode == 0, ended.stderr
    found: list[dict[str, Any]] = json.loads(ended.stdout)["history"]  # one JSON object: only one process speaks
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["--method", "count", "--model", "mlp", "--epochs", "2"],
        ["--clamp", "abs", "--clamp-scope", "source", "--model", "mlp"],
        ["--method", "supervised", "--model", "linear"],
    ],
    ids=["count", "abs by source", "supervised"],
)
def test_two_processes_follow_the_course_of_one(tuples: Path, tmp_path: Path, settings: list[str]) -> None:
    words = ["train", "--tuples", str(tuples), "--prior", "0.7", *GENTLE, *settings, "--json"]
    together = history(torchrun(*words, "--out", str(tmp_path / "two")))
    single = history(alone(*words, "--ranks", "2", "--out", str(tmp_path / "one")))
    assert len(together) == len(single)
    for a, b in zip(together, single, strict=True):
        assert a.keys() == b.keys()
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-5)
        if b["heldout_risk"] is not None:
            assert a["heldout_risk"] == pytest.approx(b["heldout_risk"], abs=1e-5)
        for key in b.get("risk_terms", {}):
            assert a["risk_terms"][key] == pytest.approx(b["risk_terms"][key], abs=1e-5)
    scores = [read_scores(open_artifact(tmp_path / name))["test"] for name in ("two", "one")]
    assert np.allclose(*scores, atol=1e-3)
    assert scores[0].std() > 1e-3


@pytest.mark.slow
def test_an_error_is_said_once_and_nothing_is_published(tuples: Path, tmp_path: Path) -> None:
    words = ["train", "--tuples", str(tuples), "--prior", "0.7", "--method", "kmeans", "--out", str(tmp_path / "out")]
    ended = torchrun(*words)
    assert ended.returncode != 0
    assert ended.stderr.count("error: method kmeans has no gradient steps: it runs in one process") == 1
    assert list(tmp_path.iterdir()) == []


def test_every_process_reads_its_own_share_and_all_of_it_is_read_once(tuples: Path) -> None:
    artifact = open_artifact(tuples, "tuples")
    config = TrainConfig(prior=0.7, batch_size=200, seed=3)
    shares = training_shares(StoredTuples(artifact), config, 3)
    info = artifact.summary
    assert sum(share.tuples for share in shares) == info.tuples.train
    assert sum(share.unlabeled for share in shares) == info.unlabeled.train
    assert max(share.tuples for share in shares) - min(share.tuples for share in shares) <= 1

    whole_steps, whole = RankShares(shares).epoch(1)
    ranks = [RankShares(shares, [rank]).epoch(1) for rank in range(3)]
    assert {steps for steps, _ in ranks} == {whole_steps}
    for batch, *per_rank in zip(whole, *(batches for _, batches in ranks), strict=True):
        union = union_of_batches(per_rank)
        assert torch.equal(batch.x, union.x)
        assert np.array_equal(batch.sizes, union.sizes)
        assert np.array_equal(batch.counts, union.counts)
        assert (batch.tuple_instances, batch.unlabeled) == (union.tuple_instances, union.unlabeled)


def test_a_union_of_batches_has_tuples_first() -> None:
    def batch(first: int, sizes: list[int], rest: int) -> Batch:
        inside = sum(sizes)
        x = torch.arange(first, first + inside + rest, dtype=torch.float32)[:, None]
        return Batch(x, np.array(sizes), np.array(sizes) - 1, inside, rest, x[:, 0] / 10)

    union = union_of_batches([batch(0, [2, 1], 2), batch(100, [3], 1)])
    assert union.x[:, 0].tolist() == [0, 1, 2, 100, 101, 102, 3, 4, 103]
    assert union.targets is not None
    assert torch.equal(union.targets, union.x[:, 0] / 10)
    assert (union.sizes.tolist(), union.counts.tolist()) == ([2, 1, 3], [1, 0, 2])
    assert (union.tuple_instances, union.unlabeled) == (6, 3)
