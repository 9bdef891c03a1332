"""Networks as chains of layers: the chain scores as the network does, and its norms bound the scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ntmp_cli.learning.layer_norms import chain, norm_class
from ntmp_cli.learning.models import AttentionHead, build_network


@pytest.mark.parametrize("name", ["linear", "mlp"])
def test_the_chain_scores_as_the_network_does_and_its_norms_bound_the_scores(name: str) -> None:
    torch.manual_seed(0)
    network = build_network(name, (2, 3, 3))
    x = torch.randn(200, 2, 3, 3)
    network.train()
    for _ in range(20):  # BatchNorm learns means and variances
        network(2 * x + 1)
    network.eval()
    layers = chain(network)
    assert layers is not None
    h = x.reshape(200, -1).double().numpy()
    augmented = np.sqrt((h**2).sum(axis=1) + 1)
    for number, (weight, bias) in enumerate(layers):
        h = h @ weight.T + bias
        if number < len(layers) - 1:
            h = np.maximum(h, 0)
    scores = network(x).detach().double().numpy()[:, 0]
    assert h[:, 0] == pytest.approx(scores, abs=1e-5)
    norms = norm_class(layers)
    assert len(norms.norms) == (1 if name == "linear" else 5)
    assert (np.abs(scores) <= [norms.largest_score(radius) for radius in augmented]).all()


@pytest.mark.parametrize("network", [build_network("resnet20", (3, 8, 8)), AttentionHead(4), torch.nn.ReLU()])
def test_other_networks_are_no_chain(network: torch.nn.Module) -> None:
    assert chain(network) is None
