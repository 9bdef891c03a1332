from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from ntmp_cli.errors import UsageError
from ntmp_cli.learning.models import Scorer, build_scorer, models, normalisation, predict, standardises

GREY, COLOUR, VECTOR = (1, 8, 8), (3, 16, 16), (5,)


def scorer(model: str, shape: tuple[int, ...], seed: int = 0) -> Scorer:
    channels = shape[0]
    return build_scorer(model, shape, *normalisation(shape, np.zeros(channels), np.ones(channels)), seed)


def raw(shape: tuple[int, ...], count: int = 12, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32))


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        *[("linear", GREY), ("linear", VECTOR), ("mlp", GREY), ("mlp", COLOUR), ("mlp", VECTOR)],
        *[("resnet20", GREY), ("resnet20", COLOUR), ("convnet", GREY), ("convnet", COLOUR)],
    ],
)
def test_every_model_gives_one_score_per_instance(model: str, shape: tuple[int, ...]) -> None:
    scores = scorer(model, shape)(raw(shape))
    assert scores.shape == (12,)
    assert scores.std() > 0


def test_the_registered_models_are_those_of_the_specification() -> None:
    assert {"linear", "mlp", "resnet20", "convnet"} <= set(models.names())


def test_a_linear_score_is_the_weighted_sum_of_the_flattened_instance() -> None:
    model = scorer("linear", GREY)
    weight, bias = (p.detach().numpy() for p in model.parameters())
    x = raw(GREY)
    expected = x.numpy().reshape(12, 64) @ weight[0] + bias[0]
    assert np.allclose(model(x).detach().numpy(), expected, atol=1e-6)


def test_the_mlp_has_four_hidden_layers_of_300_with_batchnorm() -> None:
    network = scorer("mlp", GREY).network
    widths = [(m.in_features, m.out_features) for m in network.modules() if isinstance(m, nn.Linear)]
    assert widths == [(64, 300), (300, 300), (300, 300), (300, 300), (300, 1)]
    assert [m.num_features for m in network.modules() if isinstance(m, nn.BatchNorm1d)] == [300] * 4
    assert sum(isinstance(m, nn.ReLU) for m in network.modules()) == 4
    # Hidden weights without bias, a scale and a shift per BatchNorm unit, and the last layer.
    assert parameters(network) == 64 * 300 + 3 * 300 * 300 + 4 * 2 * 300 + 301


def test_resnet20_has_nine_residual_blocks_and_its_known_size() -> None:
    network = scorer("resnet20", (3, 32, 32)).network
    blocks = [m for m in network.modules() if hasattr(m, "shortcut")]
    assert len(blocks) == 9
    convolutions = [m for b in blocks for m in b.main if isinstance(m, nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [16] * 6 + [32] * 6 + [64] * 6
    assert [c.stride[0] for c in convolutions] == [1] * 6 + [2] + [1] * 5 + [2] + [1] * 5
    # 19 convolutions and the last layer make 20.
    assert 1 + len(convolutions) + 1 == 20
    assert parameters(network) == pytest.approx(0.27e6, rel=0.02)


def test_a_residual_block_adds_its_input() -> None:
    """With the last BatchNorm scale at 0 a block that keeps its shape is relu(x)."""
    network = scorer("resnet20", COLOUR).network
    block = next(m for m in network.modules() if hasattr(m, "shortcut"))
    nn.init.zeros_(block.main[-1].weight)
    x = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(block(x), x.relu())


def test_resnet20_refuses_vectors() -> None:
    with pytest.raises(UsageError) as error:
        scorer("resnet20", VECTOR)
    assert error.value.message == "model resnet20 needs images, but an instance has shape (5,)"
    assert error.value.hint == "Use the model mlp."


def test_an_unknown_model_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown model 'resnet2'; did you mean 'resnet20'"):
        scorer("resnet2", COLOUR)


@pytest.mark.parametrize("model", ["linear", "mlp", "resnet20", "convnet"])
def test_the_seed_decides_the_initial_weights(model: str) -> None:
    first, again, other = (scorer(model, COLOUR, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)


def test_building_a_model_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    scorer("mlp", GREY, seed=5)
    assert torch.equal(torch.rand(4), expected)


def test_the_global_random_state_does_not_change_initial_weights() -> None:
    torch.manual_seed(1)
    first = scorer("mlp", VECTOR).state_dict()
    torch.manual_seed(2)
    second = scorer("mlp", VECTOR).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


class Identity(nn.Module):
    """Shows what the network would see."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.unsqueeze(-1)


def seen(raw_input: torch.Tensor, shape: tuple[int, ...], centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    factor, shift = normalisation(shape, centre, spread)
    return Scorer(Identity(), torch.from_numpy(factor), torch.from_numpy(shift))(raw_input).numpy()


def test_byte_images_are_normalised_per_channel() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (6, 3, 4, 4)).astype(np.uint8)
    centre, spread = np.array([100.0, 120.5, 90.25]), np.array([50.0, 60.0, 71.5])
    expected = (pixels.astype(np.float64) - centre[:, None, None]) / spread[:, None, None]
    inputs = seen(torch.from_numpy(pixels), (3, 4, 4), centre, spread)
    assert inputs.dtype == np.float32
    assert np.allclose(inputs, expected, atol=1e-5)


def test_features_are_normalised_one_by_one() -> None:
    x = np.random.default_rng(1).standard_normal((7, 4)).astype(np.float32) * 5 + 3
    centre, spread = x.mean(axis=0).astype(np.float64), x.std(axis=0).astype(np.float64)
    expected = (x - centre) / spread
    assert np.allclose(seen(torch.from_numpy(x), (4,), centre, spread), expected, atol=1e-5)


def test_without_standardisation_pixels_are_divided_by_their_scale() -> None:
    pixels = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    inputs = seen(torch.from_numpy(pixels), (1, 4, 4), np.zeros(1), np.full(1, 16.0))
    assert np.array_equal(inputs, pixels / np.float32(16))


def test_a_constant_channel_is_shifted_but_not_blown_up() -> None:
    inputs = seen(torch.full((2, 3), 4.0), (3,), np.full(3, 4.0), np.array([0.0, 2.0, 0.0]))
    assert np.array_equal(inputs, np.zeros((2, 3), dtype=np.float32))


@pytest.mark.parametrize(
    ("kind", "shape", "expected"),
    [
        ("auto", GREY, False),
        ("auto", COLOUR, True),
        ("auto", VECTOR, True),
        ("auto", (1,), True),
        ("channel", GREY, True),
        ("none", COLOUR, False),
        ("none", VECTOR, False),
    ],
)
def test_grey_images_alone_stay_as_they_are_by_default(kind: str, shape: tuple[int, ...], expected: bool) -> None:
    assert standardises(kind, shape) is expected


@pytest.mark.parametrize("training", [True, False])
def test_predicting_changes_neither_mode_nor_statistics(training: bool) -> None:
    model = scorer("mlp", GREY)
    model(raw(GREY, 64))
    model.train(training)
    before = copy.deepcopy(model.state_dict())
    predict(model, raw(GREY, 50, seed=9).numpy() * 100)
    assert all(module.training is training for module in model.modules())
    after = model.state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)


def test_predicting_restores_the_mode_after_a_failure() -> None:
    model = scorer("mlp", GREY).train()
    with pytest.raises(RuntimeError):
        predict(model, raw(VECTOR).numpy())
    assert model.training


def test_predictions_are_those_of_evaluation_mode_in_any_batch_size() -> None:
    model = scorer("mlp", GREY)
    model(raw(GREY, 64) * 3 + 1)
    x = raw(GREY, 50)
    with torch.no_grad():
        expected = copy.deepcopy(model).eval()(x).numpy()
    for batch in (1, 7, 50, 4096):
        assert np.allclose(predict(model, x.numpy(), batch), expected, atol=1e-5)
    # BatchNorm in training mode would see the batch itself.
    assert not np.allclose(model.train()(x).detach().numpy(), expected, atol=1e-2)


def test_predicting_nothing_gives_nothing() -> None:
    assert predict(scorer("linear", VECTOR), raw(VECTOR, 0).numpy()).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_linear_score_does_not_depend_on_the_rows_beside_it(dtype: torch.dtype) -> None:
    shape = (3, 40, 40)
    model = build_scorer("linear", shape, *normalisation(shape, np.full(3, 0.5), np.full(3, 0.3)), 0)
    x = (raw(shape, 300).abs() * 100).to(dtype).numpy()
    weight = model.network.state_dict()["1.weight"].numpy()[0].astype(np.float64)
    inputs = x * model.factor.numpy().astype(np.float64) - model.shift.numpy().astype(np.float64)
    expected = inputs.reshape(300, -1) @ weight + float(model.network.state_dict()["1.bias"])
    for batch in (1, 7, 64, 4096):
        assert np.allclose(predict(model, x, batch), expected, rtol=1e-12, atol=1e-12)
    assert {p.dtype for p in model.parameters()} == {torch.float32}  # the scorer itself is left as it was
