"""The classification networks of torchvision, as scorers to train and as frozen encoders.

Scorers start from random weights and see images as they are. Encoders have their head removed and
may hold published weights; then they also do the normalisation that those weights expect.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ntmp_cli.errors import ArtifactError, UsageError, did_you_mean
from ntmp_cli.learning.encoders import TORCHVISION, Encoder, require_images, three_channels
from ntmp_cli.vision import torchvision_module

DEFAULT_WEIGHTS = "default"

# Networks with extra heads that only help their original training.
_AUXILIARY = ("googlenet", "inception_v3")
_AUXILIARY_KEYS = ("aux1.", "aux2.", "AuxLogits.")

# Features of images below this size carry little information: the networks halve an image five times, so that 28
# pixels end as one cell made of padding, and published filters respond to larger strokes than that.
_SMALLEST_SIDE = 64

# The published DenseNets are older than today's names of their layers, as in `norm.1` for `norm1`.
_OLD_DENSENET_KEY = re.compile(r"(denselayer\d+\.(?:norm|conv))\.([12]\.)")

_FORMAT_HINT = "Pass the file of `torch.save(network.state_dict(), FILE)` (.pth, .pt), or a .safetensors file."


def torchvision_names() -> list[str]:
    """The names of all classification networks."""
    zoo = _zoo()
    names: list[str] = zoo.list_models(module=zoo)
    return names


def torchvision_network(name: str, shape: tuple[int, ...], outputs: int = 1) -> nn.Module:
    """The network `name` for images of `shape`, randomly initialised, with `outputs` outputs."""
    require_images(TORCHVISION + name, shape, hint="Use the model mlp.")
    network = _Network(_build(name, outputs))
    _try_out(network, name, shape)
    return network


def torchvision_features(name: str, shape: tuple[int, ...], weights: str | None) -> Encoder:
    """The network `name` without its head, frozen.

    `weights` is None (random), `default` (those that torchvision publishes) or a file with a state
    dict, whose head may have any size.
    """
    require_images(TORCHVISION + name, shape, hint="Use the encoder pixels.")
    network = _build(name, 1)
    head = _remove_head(network)
    mean, std = [0.0] * 3, [1.0] * 3
    if weights is not None:
        source, state = _read_weights(name, weights)
        _load(network, name, _without_heads(network, head, state), source)
        mean, std = _published_normalisation(name)
    features = _Features(network, mean, std)
    features.dim = _try_out(features, name, shape).shape[1]
    return features


class _Network(nn.Module):
    """A network of torchvision that also takes grey images."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.network(three_channels(images))
        return outputs


class _Features(Encoder):
    """A headless network behind its preprocessing: images in [0, 1] to features.

    The normalisation is part of the state, so that a restored encoder does not depend on where its weights came from.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__(dim=0)  # known after the first images
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).reshape(3, 1, 1))
        self.register_buffer("std", torch.tensor(std).reshape(3, 1, 1))
        self.freeze()

    def forward(self, images: Tensor) -> Tensor:
        x = (_enlarge(three_channels(images)) - self.mean) / self.std
        features: Tensor = self.network(x).flatten(1)
        return features


def _enlarge(images: Tensor) -> Tensor:
    """Images whose shorter side has at least 64 pixels, bilinearly, with the same aspect ratio."""
    height, width = images.shape[-2:]
    shorter = min(height, width)
    if shorter >= _SMALLEST_SIDE:
        return images
    size = [round(side * _SMALLEST_SIDE / shorter) for side in (height, width)]
    return functional.interpolate(images, size, mode="bilinear", align_corners=False)


def _zoo() -> Any:
    return torchvision_module().models


def _build(name: str, outputs: int) -> nn.Module:
    """A fresh network whose last Linear layer is its head."""
    names = torchvision_names()
    if name not in names:
        raise UsageError(
            f"unknown torchvision model '{name}'; {did_you_mean(name, names)}",
            hint=f"Write {TORCHVISION}NAME with a classification network, such as {TORCHVISION}resnet18.",
        )
    # Without the auxiliary heads these networks return plain logits in training mode too.
    options = {"aux_logits": False, "init_weights": True} if name in _AUXILIARY else {}
    network: nn.Module = _zoo().get_model(name, weights=None, num_classes=outputs, **options)
    if _last_linear(network) is None:
        _give_linear_head(network, outputs)
    return network


def _give_linear_head(network: Any, outputs: int) -> None:
    """SqueezeNet's head, a 1×1 convolution before the average, as the same map after the average.

    Its closing ReLU goes: a score must be able to be negative, and ReLU has no gradient once it is 0.
    """
    dropout, convolution = network.classifier[0], network.classifier[1]
    linear = nn.Linear(convolution.in_channels, outputs)
    nn.init.normal_(linear.weight, std=0.01)
    nn.init.zeros_(linear.bias)
    network.classifier = nn.Sequential(dropout, nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)


def _last_linear(network: nn.Module) -> str | None:
    names = [name for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
    return names[-1] if names else None


def _remove_head(network: nn.Module) -> str:
    """Replace the last Linear layer by the identity; returns its name."""
    head = _last_linear(network)
    assert head is not None  # _build sees to it
    network.set_submodule(head, nn.Identity())
    return head


def _try_out(network: nn.Module, name: str, shape: tuple[int, ...]) -> Tensor:
    """The outputs for one black image; refuses images of a size that the network cannot take."""
    was_training = network.training
    network.eval()
    try:
        with torch.no_grad():
            outputs: Tensor = network(torch.zeros(1, *shape))
    except (RuntimeError, ValueError, AssertionError) as error:
        raise UsageError(
            f"{TORCHVISION}{name} cannot take images of {shape[1]}×{shape[2]} pixels",
            hint="Resize them to 224 pixels a side, or choose another model.",
        ) from error
    finally:
        network.train(was_training)
    return outputs


def _published_normalisation(name: str) -> tuple[list[float], list[float]]:
    """(mean, std) that the published weights expect of images in [0, 1]; ImageNet's for most."""
    if name in _AUXILIARY:
        # torchvision's `transform_input` undoes ImageNet's normalisation in favour of this one.
        return [0.5] * 3, [0.5] * 3
    preset = _zoo().get_model_weights(name).DEFAULT.transforms()
    return list(preset.mean), list(preset.std)


def _read_weights(name: str, weights: str) -> tuple[str, Mapping[str, Tensor]]:
    """(what to call the source in messages, its state dict)."""
    if weights == DEFAULT_WEIGHTS:
        return f"the published weights of {TORCHVISION}{name}", _download(name)
    path = Path(weights)
    if not path.is_file():
        raise ArtifactError(
            f"{path}: no such weights file",
            hint=f"{_FORMAT_HINT} `{DEFAULT_WEIGHTS}` stands for the weights that torchvision publishes.",
        )
    return str(path), _read_state(path)


def _download(name: str) -> Mapping[str, Tensor]:
    try:
        state: Mapping[str, Tensor] = (
            _zoo().get_model_weights(name).DEFAULT.get_state_dict(progress=False, check_hash=True)
        )
    except (OSError, RuntimeError) as error:  # no network, or a file that is not what was promised
        raise ArtifactError(
            f"the published weights of {TORCHVISION}{name} could not be downloaded: {error}",
            hint="Download them where there is a network, and pass the file instead of `default`.",
        ) from error
    return state


def _read_state(path: Path) -> Mapping[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a foreign file can fail in any way inside the readers
        raise ArtifactError(f"{path}: not a file of weights ({type(error).__name__})", hint=_FORMAT_HINT) from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ArtifactError(f"{path}: not a state dict of names and tensors", hint=_FORMAT_HINT)
    return state


def _without_heads(network: nn.Module, head: str, state: Mapping[str, Tensor]) -> OrderedDict[str, Tensor]:
    """The weights of the features alone, with the versions of their layers."""
    # The head of `_give_linear_head` replaces all of the classifier.
    original = head.partition(".")[0] if isinstance(network, _zoo().SqueezeNet) else head
    dropped = (f"{original}.", *_AUXILIARY_KEYS)
    kept = OrderedDict(
        (_OLD_DENSENET_KEY.sub(r"\1\2", key), value) for key, value in state.items() if not key.startswith(dropped)
    )
    # safetensors keeps no versions, and MNASNet refuses a state without one: then it is today's.
    today = {"": {"version": getattr(network, "_version", 1)}}
    kept._metadata = getattr(state, "_metadata", today)  # type: ignore[attr-defined]
    return kept


def _load(network: nn.Module, name: str, state: OrderedDict[str, Tensor], source: str) -> None:
    """Load all weights, or say which do not fit."""
    expected = network.state_dict()
    # Taken out first, because load_state_dict raises for these instead of reporting them with the rest.
    misshapen = [key for key in state if key in expected and state[key].shape != expected[key].shape]
    for key in misshapen:
        del state[key]
    # Not strict, but all is reported: old names of layers are translated on the way.
    missing, unexpected = network.load_state_dict(state, strict=False)
    problems = {
        "missing": [key for key in missing if key not in misshapen],
        "unexpected": unexpected,
        "of another shape": misshapen,
    }
    differences = [f"{problem}: {_first_few(keys)}" for problem, keys in problems.items() if keys]
    if differences:
        raise ArtifactError(
            f"{source}: not weights of {TORCHVISION}{name}; {'; '.join(differences)}", hint=_FORMAT_HINT
        )


def _first_few(keys: list[str], most: int = 3) -> str:
    rest = len(keys) - most
    return ", ".join(keys[:most]) + (f" and {rest} more" if rest > 0 else "")
