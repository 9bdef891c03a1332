from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.learning.encoders import (
    Encoder,
    EncoderRequest,
    build_encoder,
    encoder_choices,
    encoders,
    get_encoder,
    principal_components,
)

GREY, COLOUR, VECTOR = (1, 6, 6), (3, 8, 8), (5,)


def instances(shape: tuple[int, ...], count: int = 60, seed: int = 0) -> Tensor:
    """Values in [0, 1] whose spread falls from the first to the last."""
    spread = np.linspace(1, 0.1, int(np.prod(shape))).reshape(shape)
    return torch.from_numpy((np.random.default_rng(seed).random((count, *shape)) * spread).astype(np.float32))


def in_pieces(x: Tensor, size: int = 17) -> Callable[[], Iterator[Tensor]]:
    return lambda: iter(torch.split(x, size))


def build(spec: str, shape: tuple[int, ...] = COLOUR, seed: int = 0) -> Encoder:
    return build_encoder(spec, EncoderRequest(shape, seed=seed, pieces=in_pieces(instances(shape))))


SPECS = ["pixels", "random", "pca", "patches:filters=12,size=3,components=9", "torchvision:resnet18"]


def test_the_registry_holds_the_encoders_without_a_prefix() -> None:
    assert encoders.names() == ["patches", "pca", "pixels", "random"]
    families = ["patches:SETTINGS", "clip", "torchvision:NAME", "run:DIR"]
    assert encoder_choices() == ["patches", "pca", "pixels", "random", *families]
    assert all(encoders.summaries().values())


@pytest.mark.parametrize("spec", SPECS)
def test_every_encoder_gives_dim_features_per_instance(spec: str) -> None:
    encoder = build(spec)
    features = encoder(instances(COLOUR))
    assert features.shape == (60, encoder.dim)
    assert features.dtype == torch.float32
    assert not features.requires_grad
    assert features.std(dim=0).max() > 0


@pytest.mark.parametrize("spec", SPECS)
def test_nothing_in_an_encoder_can_be_trained(spec: str) -> None:
    encoder = build(spec)
    parent = nn.Sequential(encoder, nn.Linear(encoder.dim, 1)).train()
    assert parent.training
    assert not any(module.training for module in encoder.modules())
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    parent(instances(COLOUR)).sum().backward()
    assert all(torch.equal(before[key], value) for key, value in encoder.state_dict().items())


@pytest.mark.parametrize("spec", SPECS)
def test_a_restored_encoder_gives_the_same_features(spec: str) -> None:
    encoder = build(spec)
    restored = build_encoder(spec, EncoderRequest(COLOUR, seed=99, dim=encoder.dim))
    restored.load_state_dict(encoder.state_dict())
    x = instances(COLOUR, seed=1)
    assert restored.dim == encoder.dim
    assert torch.equal(restored(x), encoder(x))


@pytest.mark.parametrize("spec", ["random", "pca", "torchvision:resnet18"])
def test_the_same_seed_gives_the_same_bytes(spec: str) -> None:
    torch.manual_seed(1)
    first = build(spec).state_dict()
    torch.manual_seed(2)
    second = build(spec).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("spec", ["random", "torchvision:resnet18"])
def test_another_seed_gives_other_features(spec: str) -> None:
    x = instances(COLOUR)
    assert not torch.allclose(build(spec, seed=0)(x), build(spec, seed=1)(x))


@pytest.mark.parametrize("spec", SPECS)
def test_building_leaves_the_global_random_state_alone(spec: str) -> None:
    torch.manual_seed(11)
    expected = torch.rand(4)
    torch.manual_seed(11)
    build(spec)
    assert torch.equal(torch.rand(4), expected)


def test_pixels_are_the_flattened_instance() -> None:
    x = instances(GREY)
    assert torch.equal(build("pixels", GREY)(x), x.reshape(60, 36))


def test_random_features_are_rectified_projections_of_unit_scale() -> None:
    encoder = build("random", COLOUR)
    x = instances(COLOUR)
    assert encoder.dim == 512
    projection = encoder.get_buffer("projection")
    assert torch.allclose(encoder(x), (x.reshape(60, 192) @ projection).clamp(min=0), atol=1e-6)
    assert float(projection.std()) == pytest.approx(192**-0.5, rel=0.02)


def test_pca_agrees_with_the_singular_value_decomposition() -> None:
    x = instances(GREY)
    flat = x.reshape(60, 36).numpy().astype(np.float64)
    centred = flat - flat.mean(axis=0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    expected = centred @ directions.T / (singular[0] / np.sqrt(60))
    projected = build("pca", GREY)(x).numpy()
    assert projected.shape == (60, 36)
    signs = np.sign((projected * expected).sum(axis=0))
    assert np.allclose(projected, expected * signs, atol=1e-5)


def test_pca_is_centred_and_scaled_but_not_whitened() -> None:
    features = build("pca", GREY)(instances(GREY)).numpy()
    spread = features.std(axis=0)
    assert np.allclose(features.mean(axis=0), 0, atol=1e-5)
    assert spread[0] == pytest.approx(1, abs=1e-5)
    assert (np.diff(spread) < 1e-5).all()
    assert spread[-1] < 0.3


def test_the_largest_loading_of_each_component_is_positive() -> None:
    components = build("pca", GREY).get_buffer("components")
    largest = components.gather(0, components.abs().argmax(dim=0, keepdim=True))
    assert (largest > 0).all()


def test_pca_does_not_depend_on_how_the_instances_are_cut() -> None:
    x = instances(GREY)
    one, many = (principal_components(iter(torch.split(x, size)), 36) for size in (60, 7))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, many, strict=True))


def test_pca_has_at_most_100_components_and_at_most_the_rank() -> None:
    assert build_encoder("pca", EncoderRequest(COLOUR, seed=0, pieces=in_pieces(instances(COLOUR, 150)))).dim == 100
    assert build_encoder("pca", EncoderRequest(COLOUR, seed=0, pieces=in_pieces(instances(COLOUR, 9)))).dim == 8
    flat = instances(VECTOR, 50)
    flat[:, 3:] = flat[:, :2]
    assert build_encoder("pca", EncoderRequest(VECTOR, seed=0, pieces=in_pieces(flat))).dim == 3


def test_pca_keeps_its_rank_where_the_mean_is_much_larger_than_the_spread() -> None:
    x = torch.ones(50, 5)
    x[:, 1] -= instances((1,), 50)[:, 0] * 1e-3
    assert build_encoder("pca", EncoderRequest(VECTOR, seed=0, pieces=in_pieces(x))).dim == 1


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.full((7, 5), 0.3), "encoder pca cannot be fitted: all instances are equal"),
        (torch.rand(1, 5), "encoder pca cannot be fitted: all instances are equal"),
        (torch.empty(0, 5), "encoder pca has no instances to be fitted on"),
    ],
)
def test_pca_refuses_instances_without_variance(x: Tensor, message: str) -> None:
    with pytest.raises(DataError) as error:
        build_encoder("pca", EncoderRequest(VECTOR, seed=0, pieces=in_pieces(x)))
    assert error.value.message == message


def test_pca_refuses_large_instances() -> None:
    with pytest.raises(UsageError) as error:
        build_encoder("pca", EncoderRequest((3, 64, 64), seed=0, dim=10))
    assert error.value.message == (
        "encoder pca takes up to 4096 values, but an instance of shape (3, 64, 64) has 12288"
    )
    assert "Resize the images to 32 pixels a side" in str(error.value.hint)


def test_pca_without_instances_and_without_dim_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="needs instances"):
        build_encoder("pca", EncoderRequest(VECTOR, seed=0))


@pytest.mark.parametrize(
    ("spec", "suggestion"),
    [
        ("pixel", "did you mean 'pixels'?"),
        ("vae", "choose from: clip, patches, patches:SETTINGS, pca, pixels, random, run:DIR, torchvision:NAME"),
        ("torchvision", "did you mean 'torchvision:NAME'?"),
    ],
)
def test_an_unknown_encoder_is_refused_with_the_choices(spec: str, suggestion: str) -> None:
    with pytest.raises(UsageError) as error:
        get_encoder(spec)
    assert error.value.message == f"unknown encoder '{spec}'; {suggestion}"
    names = "patches, pca, pixels, random, patches:SETTINGS, clip, torchvision:NAME, run:DIR"
    assert error.value.hint == f"The encoders are {names}."


def test_an_unknown_torchvision_encoder_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="unknown torchvision model 'resnet17'; did you mean 'resnet1"):
        build("torchvision:resnet17")


def test_an_encoder_without_weights_refuses_a_weights_file() -> None:
    with pytest.raises(UsageError, match=r"encoder pixels takes no weights, but got 'x\.pth'"):
        build_encoder("pixels", EncoderRequest(GREY, seed=0, weights="x.pth"))


@pytest.mark.parametrize("spec", ["clip", "torchvision:resnet18"])
def test_encoders_of_images_refuse_vectors(spec: str) -> None:
    with pytest.raises(UsageError) as error:
        build_encoder(spec, EncoderRequest(VECTOR, seed=0, weights="default"))
    assert error.value.message == f"{spec} needs images with 1 or 3 channels, but an instance has shape (5,)"
    assert error.value.hint == "Use the encoder pixels."
