"""Two processes compute the gradient of one, to the last digits of double precision."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import NtmpError, UsageError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.models import build_network
from ntmp_cli.learning.processes import OneProcess, process_group
from ntmp_cli.learning.rank_shares import union_of_batches
from ntmp_cli.tuple_source import Task

SHAPE = (3, 8, 8)
SETTINGS: dict[str, dict[str, Any]] = {
    "count": {"method": "count"},
    "source": {"clamp": "relu", "clamp_scope": "source"},
    "attention": {"method": "attention-mil"},
}


def shares() -> list[Batch]:
    """What two processes have of one batch: tuples of other lengths, another number of them, another share of U."""
    rng = torch.Generator().manual_seed(0)

    def share(sizes: list[int], counts: list[int], unlabeled: int) -> Batch:
        x = torch.randn(sum(sizes) + unlabeled, *SHAPE, generator=rng, dtype=torch.float64) + 3
        return Batch(x, np.array(sizes), np.array(counts), sum(sizes), unlabeled)

    return [share([3, 4, 3], [1, 2, 1], 7), share([3, 4], [1, 2], 4)]


def gradient(processes: OneProcess, batch: Batch, settings: dict[str, Any]) -> dict[str, torch.Tensor]:
    """Gradients of the loss of the whole batch, and the statistics of BatchNorm after it."""
    config = TrainConfig(prior=0.7, model="resnet20", **settings)
    method = methods.get(config.method)(config, Task([(3, 1, 30), (4, 2, 20)], 60))
    assert isinstance(method, GradientMethod)
    torch.manual_seed(0)
    network = method.network(SHAPE) if config.method == "attention-mil" else build_network("resnet20", SHAPE)
    network = network.double().train()
    forward = processes.forward(network)
    whole, _ = processes.all_gather_batch(batch, False)
    scores = forward(batch.x).squeeze(-1)
    loss, _ = method.loss(processes.all_gather(scores), method.prepare(whole, 0.1))
    (loss * processes.size).backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"loss": loss.detach()[None], **gradients, **dict(network.named_buffers())}


def join_group(rank: int, port: int) -> None:
    """The environment that torchrun gives to one of two processes; the store is that of the test."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "GLOO_SOCKET_IFNAME": "lo"}


def threads() -> list[str]:
    return sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))


def compute(rank: int, folder: Path) -> dict[str, Any]:
    before = threads()
    with process_group(torch.device("cpu")) as processes:
        gradients = {name: gradient(processes, shares()[rank], settings) for name, settings in SETTINGS.items()}
        stop = processes.all_gather_batch(shares()[rank], rank == 1)[1]
        broadcast = processes.broadcast(f"I am {rank}")
    ended = {"threads before": before, "threads after": threads(), "initialised": dist.is_initialized()}
    return {"gradients": gradients, "stop": stop, "broadcast": broadcast, **ended}


def leave(rank: int, folder: Path) -> bool:
    """Whether the other process had done its work when this one left."""
    with process_group(torch.device("cpu")) as processes:
        processes.broadcast("begin")
        if rank == 0:
            time.sleep(0.5)  # time for the other process to leave too early
            (folder / "last work").touch()
    return (folder / "last work").exists()


def fail(rank: int, folder: Path, failing: int) -> str | None:
    """What this process says when one of the two fails while the other is done."""
    try:
        with process_group(torch.device("cpu")) as processes:
            processes.broadcast("begin")
            if rank == failing:
                raise UsageError("this rank fails")
    except NtmpError as error:
        return error.message
    return None


GROUPS: dict[str, Callable[[int, Path], Any]] = {
    "compute": compute,
    "leave": leave,
    "first fails": partial(fail, failing=0),
    "second fails": partial(fail, failing=1),
}


def work(rank: int, ports: list[int], folder: Path) -> None:
    """One group after the other."""
    results = {}
    for port, (name, job) in zip(ports, GROUPS.items(), strict=True):
        join_group(rank, port)
        results[name] = job(rank, folder)
    torch.save(results, folder / f"{rank}.pt")


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What every one of two processes has to report of every group: they start only once."""
    folder = tmp_path_factory.mktemp("processes")
    # Port 0: every store chooses its port itself.
    stores = [dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) for _ in GROUPS]
    mp.spawn(work, args=([store.port for store in stores], folder), nprocs=2)
    ranks = [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]
    return {name: [report[name] for report in ranks] for name in GROUPS}


@pytest.mark.slow
def test_every_rank_gets_the_value_of_rank_0_and_any_stop(reports: Any) -> None:
    assert [(report["stop"], report["broadcast"]) for report in reports["compute"]] == [(True, "I am 0")] * 2


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are listed in /proc")
def test_nothing_of_the_group_outlives_it(reports: Any) -> None:
    """A thread of the group that lives until the interpreter ends aborts the process: exit code 134 after the work."""
    for report in reports["compute"]:
        assert not report["initialised"]
        assert report["threads after"] == report["threads before"]


@pytest.mark.slow
def test_no_process_leaves_before_all_are_done(reports: Any) -> None:
    assert reports["leave"] == [True, True]


@pytest.mark.slow
def test_a_process_that_is_done_does_not_wait_for_one_that_failed(reports: Any) -> None:
    other = "another process of this training failed; see its error message"
    assert reports["first fails"] == ["this rank fails", other]
    assert reports["second fails"] == [other, "this rank fails"]


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_the_gradient_of_two_processes_is_that_of_one(name: str, reports: Any) -> None:
    gradients = reports["compute"][0]["gradients"][name]
    one = gradient(OneProcess(), union_of_batches(shares()), SETTINGS[name])
    assert gradients.keys() == one.keys()
    for key, value in one.items():
        assert torch.allclose(gradients[key].double(), value.double(), rtol=1e-9, atol=1e-12), key
    assert max(float(value.abs().max()) for key, value in one.items() if key.endswith("weight")) > 1e-4
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in build_network("resnet20", SHAPE).modules())
