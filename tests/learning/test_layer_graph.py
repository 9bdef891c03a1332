"""Graphs that are written layer by layer against the networks themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from filled_networks import filled_scorer
from torch import nn

from ntmp_cli.learning.layer_graph import UnknownLayer, layer_graph
from ntmp_cli.learning.models import AttentionHead, models

IMAGES, TABLE = (2, 13, 13), (7,)


@pytest.mark.parametrize(
    ("network", "shape"),
    [(name, IMAGES) for name in ("linear", "mlp", "resnet20", "convnet")] + [("mlp", TABLE), ("attention", TABLE)],
)
def test_a_graph_gives_the_scores_of_its_network(network, shape):
    runtime = pytest.importorskip("onnxruntime")
    scorer = filled_scorer(AttentionHead(*shape) if network == "attention" else models.get(network)(shape), shape)
    rows = torch.randint(0, 256, (5, *shape), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    session = runtime.InferenceSession(layer_graph(scorer, None, 2.0, rows))
    with torch.no_grad():
        expected = scorer(rows).numpy()
    score, probability = session.run(["score", "probability"], {"rows": rows.numpy()})
    np.testing.assert_allclose(score, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-expected / 2)), rtol=1e-4, atol=1e-5)
    assert len(session.run(["score"], {"rows": rows.numpy()[:1]})[0]) == 1


def test_a_linear_layer_takes_inputs_of_any_rank():
    runtime = pytest.importorskip("onnxruntime")
    scorer = filled_scorer(
        nn.Sequential(nn.Linear(13, 3), nn.ReLU(), nn.Flatten(), nn.Linear(78, 1, bias=False)), IMAGES
    )
    rows = torch.randint(0, 256, (4, *IMAGES), generator=torch.Generator().manual_seed(2)).to(torch.uint8)
    session = runtime.InferenceSession(layer_graph(scorer, None, 1.0, rows))
    with torch.no_grad():
        expected = scorer(rows).numpy()
    np.testing.assert_allclose(session.run(["score"], {"rows": rows.numpy()})[0], expected, rtol=1e-4, atol=1e-5)


class Doubled(nn.Linear):
    """A layer that is a common one by name only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "layer", [nn.GELU(), nn.Flatten(0), Doubled(7, 1), nn.BatchNorm1d(7, affine=False)], ids=lambda layer: str(layer)
)
def test_a_layer_without_a_node_of_its_own_is_left_to_torch(layer):
    pytest.importorskip("onnx")
    scorer = filled_scorer(nn.Sequential(layer, nn.Linear(7, 1)), TABLE)
    with pytest.raises(UnknownLayer):
        layer_graph(scorer, None, 1.0, torch.zeros(2, 7))


def test_a_network_that_is_no_plain_scorer_is_left_to_torch():
    pytest.importorskip("onnx")
    with pytest.raises(UnknownLayer):
        layer_graph(nn.Linear(7, 1), None, 1.0, torch.zeros(2, 7))
