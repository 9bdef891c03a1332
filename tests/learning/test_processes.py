"""Two processes compute the gradient of one, to the last digits of double precision."""

from __future__ import annotations

import os
import socket
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.models import build_network
from ntmp_cli.learning.parts import joined
from ntmp_cli.learning.processes import OneProcess, process_group
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
    whole, _ = processes.whole(batch, False)
    scores = forward(batch.x).squeeze(-1)
    loss, _ = method.loss(processes.gather(scores), method.prepare(whole, 0.1))
    (loss * processes.size).backward()
    found = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {"loss": loss.detach()[None], **found, **dict(network.named_buffers())}


def work(rank: int, port: int, out: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    with process_group(torch.device("cpu")) as processes:
        found = {name: gradient(processes, shares()[rank], settings) for name, settings in SETTINGS.items()}
        stop = processes.whole(shares()[rank], rank == 1)[1]
        said = processes.agree(f"I am {rank}")
    if rank == 0:
        torch.save({"found": found, "stop": stop, "said": said}, out)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What two processes found, of all settings: they start but once."""
    out = tmp_path_factory.mktemp("processes") / "out.pt"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(work, args=(port, str(out)), nprocs=2)
    return torch.load(out, weights_only=True)


def test_two_processes_agree(told: Any) -> None:
    assert (told["stop"], told["said"]) == (True, "I am 0")
    assert not dist.is_initialized()


@pytest.mark.parametrize("name", SETTINGS)
def test_the_gradient_of_two_processes_is_that_of_one(name: str, told: Any) -> None:
    found, one = told["found"][name], gradient(OneProcess(), joined(shares()), SETTINGS[name])
    assert found.keys() == one.keys()
    for key, value in one.items():
        assert torch.allclose(found[key].double(), value.double(), rtol=1e-9, atol=1e-12), key
    assert max(float(value.abs().max()) for key, value in one.items() if key.endswith("weight")) > 1e-4
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in build_network("resnet20", SHAPE).modules())
