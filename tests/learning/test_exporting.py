"""A network as a graph: what is exported is what the network gives."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn

from ntmp_cli.learning.exporting import torchscript


class Pair(nn.Module):
    """Two outputs; with `noise` they do not depend on the input alone."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.noise = noise

    def forward(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        score = rows.sum(1)
        score = score + self.noise * torch.rand_like(score)
        return score, torch.sigmoid(score)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_graph_that_gives_other_scores_is_warned_of(noise: float, caplog: pytest.LogCaptureFixture) -> None:
    rows = torch.arange(6.0).reshape(2, 3)
    graph = torch.jit.load(io.BytesIO(torchscript(Pair(noise).eval(), rows)))
    assert ("does not give the scores of the network" in caplog.text) == (noise > 0)
    if noise == 0:
        assert torch.equal(graph(rows)[0], rows.sum(1))
