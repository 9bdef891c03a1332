"""Networks scored by NumPy against the same networks in torch."""

from __future__ import annotations

import numpy as np
import pytest
from filled_networks import filled_scorer
from safetensors.torch import save
from torch import nn

from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.dense_network import ROWS, dense_network
from ntmp_cli.learning.models import WEIGHTS_FILE, AttentionHead, Scorer, models, snapshot

IMAGES, TABLE = (2, 9, 9), (7,)


def scorer_of(network: nn.Module, shape: tuple[int, ...]) -> Scorer:
    """With variances at which the term that BatchNorm adds to them matters."""
    return filled_scorer(network, shape, variance=1e-3)


@pytest.mark.parametrize("rows", [1, ROWS, ROWS + 3])
@pytest.mark.parametrize(("model", "shape"), [("mlp", TABLE), ("mlp", IMAGES), ("linear", IMAGES)])
def test_scores_are_those_of_torch(model, shape, rows):
    scorer = scorer_of(models.get(model)(shape), shape)
    raw = np.random.default_rng(1).integers(0, 256, (rows, *shape)).astype(np.uint8)
    dense = dense_network(scorer.files()[WEIGHTS_FILE], shape)
    expected = scorer.score(raw)
    np.testing.assert_allclose(dense.score(raw), expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("model", ["resnet20", "convnet"])
def test_convolutions_stay_with_torch(model):
    assert dense_network(scorer_of(models.get(model)(IMAGES), IMAGES).files()[WEIGHTS_FILE], IMAGES) is None


def test_other_heads_stay_with_torch():
    assert dense_network(scorer_of(AttentionHead(*TABLE), TABLE).files()[WEIGHTS_FILE], TABLE) is None


@pytest.mark.parametrize("shape", [(8,), (7, 1, 1), (1, 7, 1)])
def test_weights_of_another_shape_are_left_to_torch_and_its_error(shape):
    content = scorer_of(models.get("mlp")(TABLE), TABLE).files()[WEIGHTS_FILE]
    assert dense_network(content, shape) is None


def test_a_weight_that_is_not_finite_is_an_error():
    weights = snapshot(scorer_of(models.get("mlp")(TABLE), TABLE))
    weights["network.4.weight"][2, 3] = float("nan")
    with pytest.raises(ArtifactError, match=r"'network\.4\.weight' has values that are not finite"):
        dense_network(save(weights), TABLE)


def test_what_is_no_safetensors_file_is_left_to_torch():
    assert dense_network(b"nothing", TABLE) is None
