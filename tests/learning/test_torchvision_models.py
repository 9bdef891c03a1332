from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.error import URLError

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ntmp_cli.errors import ArtifactError, NtmpError, UsageError
from ntmp_cli.learning.models import Scorer
from ntmp_cli.learning.torchvision_models import torchvision_features, torchvision_names, torchvision_network
from ntmp_cli.vision import torchvision_module

GREY, COLOUR = (1, 28, 28), (3, 32, 32)
SMALL = ["resnet18", "mobilenet_v3_small", "squeezenet1_0", "googlenet"]
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])


def images(shape: tuple[int, ...], count: int = 4, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).random((count, *shape)).astype(np.float32))


def zoo() -> Any:
    return torchvision_module().models


def original(name: str, classes: int, **options: Any) -> nn.Module:
    """The network as torchvision makes it, with BatchNorm statistics that differ from the initial ones."""
    torch.manual_seed(0)
    network: nn.Module = zoo().get_model(name, weights=None, num_classes=classes, **options)
    for layer in network.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(std=0.1)
            layer.running_var.uniform_(0.5, 1.5)
    return network.eval()


def saved(network: nn.Module, path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file(network.state_dict(), path)
    else:
        torch.save(network.state_dict(), path)
    return str(path)


def normalised(x: Tensor, mean: list[float], std: list[float]) -> Tensor:
    return (x - torch.tensor(mean).reshape(3, 1, 1)) / torch.tensor(std).reshape(3, 1, 1)


def refused(name: str, weights: str) -> NtmpError:
    with pytest.raises(ArtifactError) as error:
        torchvision_features(name, (3, 64, 64), weights)
    assert "\n" not in error.value.message
    assert error.value.hint is not None
    return error.value


def test_the_names_are_those_of_classification_networks() -> None:
    names = torchvision_names()
    assert set(SMALL) | {"vit_b_16", "densenet121"} <= set(names)
    assert not any("segmentation" in name or "rcnn" in name or "quantized" in name for name in names)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", [GREY, COLOUR])
@pytest.mark.parametrize("name", SMALL)
def test_a_network_gives_one_output_in_training_and_evaluation_mode(name: str, shape: tuple[int, ...]) -> None:
    network = torchvision_network(name, shape)
    assert network.training
    outputs = network(images(shape))
    assert outputs.shape == (4, 1)
    outputs.sum().backward()
    gradients = [parameter.grad for parameter in network.parameters()]
    assert all(gradient is not None for gradient in gradients)
    assert sum(float(gradient.abs().sum()) for gradient in gradients if gradient is not None) > 0
    assert network.eval()(images(shape)).shape == (4, 1)


def test_the_number_of_outputs_is_free() -> None:
    assert torchvision_network("resnet18", COLOUR, outputs=7)(images(COLOUR)).shape == (4, 7)


@pytest.mark.parametrize("name", SMALL)
def test_the_state_of_a_network_can_be_restored(name: str) -> None:
    first, second = torchvision_network(name, COLOUR), torchvision_network(name, COLOUR)
    first(images(COLOUR))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.eval()(images(COLOUR)), second.eval()(images(COLOUR)))


def test_a_grey_image_is_a_colour_image_with_equal_channels() -> None:
    network = torchvision_network("resnet18", GREY).eval()
    x = images(GREY)
    assert torch.equal(network(x), network(x.repeat(1, 3, 1, 1)))


def test_squeezenet_scores_have_both_signs() -> None:
    torch.manual_seed(0)
    network = torchvision_network("squeezenet1_0", COLOUR, outputs=64).eval()
    scores = network(images(COLOUR))
    assert scores.min() < 0 < scores.max()


@pytest.mark.parametrize("name", SMALL)
def test_the_classes_of_a_scorer_can_be_exchanged(name: str) -> None:
    """Scorer.flip negates the last Linear layer, so this must be the one that makes the score."""
    scorer = Scorer(torchvision_network(name, COLOUR), torch.ones(1), torch.zeros(1)).eval()
    x = images(COLOUR)
    with torch.no_grad():
        before = scorer(x)
        scorer.flip(0.5)
        assert torch.allclose(scorer(x), 1 - before, atol=1e-5)


@pytest.mark.parametrize("build", [torchvision_network, lambda name, shape: torchvision_features(name, shape, None)])
def test_an_unknown_name_is_refused_with_a_suggestion(build: Any) -> None:
    with pytest.raises(UsageError) as error:
        build("resnet_18", COLOUR)
    assert error.value.message == "unknown torchvision model 'resnet_18'; did you mean 'resnet18'?"
    assert error.value.hint == ("Write torchvision:NAME with a classification network, such as torchvision:resnet18.")


@pytest.mark.parametrize("shape", [(5,), (28, 28), (2, 32, 32), (4, 32, 32)])
def test_other_shapes_than_images_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UsageError) as error:
        torchvision_network("resnet18", shape)
    assert error.value.message == (
        f"torchvision:resnet18 needs images with 1 or 3 channels, but an instance has shape {shape}"
    )
    assert error.value.hint == "Use the model mlp."


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", ["alexnet", "vit_b_32", "inception_v3"])
def test_images_that_are_too_small_are_refused(name: str) -> None:
    with pytest.raises(UsageError) as error:
        torchvision_network(name, GREY)
    assert error.value.message == f"torchvision:{name} cannot take images of 28×28 pixels"
    assert error.value.hint == "Resize them to 224 pixels a side, or choose another model."


@pytest.mark.parametrize(
    ("name", "dim"), [("resnet18", 512), ("mobilenet_v3_small", 1024), ("squeezenet1_0", 512), ("googlenet", 1024)]
)
def test_features_are_what_the_head_would_see(name: str, dim: int) -> None:
    features = torchvision_features(name, GREY, None)
    assert features.dim == dim
    assert features(images(GREY)).shape == (4, dim)


def test_small_images_are_enlarged_and_large_ones_left_alone() -> None:
    features = torchvision_features("resnet18", COLOUR, None)
    small, large = images((3, 32, 48)), images((3, 70, 66))
    enlarged = nn.functional.interpolate(small, (64, 96), mode="bilinear", align_corners=False)
    assert torch.equal(features(small), features(enlarged))
    network = features.get_submodule("network")
    assert torch.equal(features(large), network(large))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "mnasnet0_5"])
def test_features_from_a_file_are_those_of_the_network_that_was_saved(name: str, suffix: str, tmp_path: Path) -> None:
    network = original(name, classes=9)
    weights = saved(network, tmp_path / f"weights{suffix}")
    head = [key for key, layer in network.named_modules() if isinstance(layer, nn.Linear)][-1]
    x = images((3, 64, 64))
    seen: list[Tensor] = []
    network.get_submodule(head).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network(normalised(x, *IMAGENET))
    assert torch.allclose(torchvision_features(name, (3, 64, 64), weights)(x), seen[0], atol=1e-5)


def test_features_of_googlenet_are_those_with_its_own_normalisation(tmp_path: Path) -> None:
    """The published weights come with auxiliary heads, and with inputs that torchvision transforms."""
    network = original("googlenet", classes=9, aux_logits=True, transform_input=True, init_weights=False)
    weights = saved(network, tmp_path / "weights.pth")
    network.fc = nn.Identity()
    x = images((3, 64, 64))
    with torch.no_grad():
        expected = network(normalised(x, *IMAGENET))
    assert torch.allclose(torchvision_features("googlenet", (3, 64, 64), weights)(x), expected, atol=1e-4)


def test_features_of_squeezenet_are_the_averages_before_its_convolution(tmp_path: Path) -> None:
    network = original("squeezenet1_1", classes=9)
    weights = saved(network, tmp_path / "weights.pth")
    x = images((3, 64, 64))
    with torch.no_grad():
        expected = network.get_submodule("features")(normalised(x, *IMAGENET)).mean(dim=(2, 3))
    assert torch.allclose(torchvision_features("squeezenet1_1", (3, 64, 64), weights)(x), expected, atol=1e-5)


@pytest.mark.slow
def test_old_names_of_densenet_layers_are_understood(tmp_path: Path) -> None:
    network = original("densenet121", classes=2)
    new, old = tmp_path / "new.pth", tmp_path / "old.pth"
    saved(network, new)
    state = network.state_dict()
    renamed = {
        key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2.") if "denselayer" in key else key: value
        for key, value in state.items()
        if "num_batches_tracked" not in key
    }
    assert renamed.keys() != state.keys()
    torch.save(renamed, old)
    x = images((3, 64, 64), count=2)
    expected, features = (torchvision_features("densenet121", (3, 64, 64), str(path))(x) for path in (new, old))
    assert torch.equal(expected, features)


def test_weights_other_than_imagenets_bring_their_own_normalisation() -> None:
    from ntmp_cli.learning.torchvision_models import _published_normalisation

    assert _published_normalisation("resnet18") == IMAGENET
    assert _published_normalisation("efficientnet_v2_l") == ([0.5] * 3, [0.5] * 3)


def test_restored_features_keep_the_normalisation_of_their_weights(tmp_path: Path) -> None:
    weights = saved(original("resnet18", classes=2), tmp_path / "weights.pth")
    features = torchvision_features("resnet18", COLOUR, weights)
    restored = torchvision_features("resnet18", COLOUR, None)
    restored.load_state_dict(features.state_dict())
    assert torch.equal(restored(images(COLOUR)), features(images(COLOUR)))


def test_published_weights_are_used_where_they_can_be_had(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    network = original("resnet18", classes=1000)
    monkeypatch.setattr(zoo().ResNet18_Weights, "get_state_dict", lambda *_, **__: network.state_dict())
    expected = torchvision_features("resnet18", COLOUR, saved(network, tmp_path / "weights.pth"))
    features = torchvision_features("resnet18", COLOUR, "default")
    assert torch.equal(expected(images(COLOUR)), features(images(COLOUR)))


def test_weights_that_cannot_be_downloaded_are_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no route")

    monkeypatch.setattr(zoo().ResNet18_Weights, "get_state_dict", unreachable)
    error = refused("resnet18", "default")
    assert error.message == (
        "the published weights of torchvision:resnet18 could not be downloaded: <urlopen error no route>"
    )
    assert error.hint == "Download them where there is a network, and pass the file instead of `default`."


def test_a_weights_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    error = refused("resnet18", str(tmp_path / "none.pth"))
    assert error.message == f"{tmp_path / 'none.pth'}: no such weights file"


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
def test_a_file_that_holds_no_weights_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(b"no weights at all, only text that goes on for a while")
    assert refused("resnet18", str(path)).message.startswith(f"{path}: not a file of weights (")


@pytest.mark.parametrize("content", [torch.ones(3), {"state_dict": {"fc.weight": torch.ones(3)}}, [1, 2]])
def test_a_file_that_holds_something_else_is_refused(content: object, tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    torch.save(content, path)
    assert refused("resnet18", str(path)).message == f"{path}: not a state dict of names and tensors"


def test_weights_of_another_network_are_refused_with_the_names_that_differ(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    state = original("resnet18", classes=2).state_dict()
    state["extra"] = state.pop("conv1.weight")
    state["bn1.weight"] = torch.ones(3)
    torch.save(state, path)
    assert refused("resnet18", str(path)).message == (
        f"{path}: not weights of torchvision:resnet18; missing: conv1.weight; unexpected: extra; "
        "of another shape: bn1.weight"
    )


def test_a_long_list_of_names_is_cut_short(tmp_path: Path) -> None:
    weights = saved(original("squeezenet1_1", classes=2), tmp_path / "weights.pth")
    message = refused("resnet18", weights).message
    assert "missing: conv1.weight, bn1.weight, bn1.bias and " in message
    assert len(message) < 400 + len(weights)
