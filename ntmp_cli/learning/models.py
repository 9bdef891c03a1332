"""Networks that map instances to one score each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import pairwise
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.registry import REGISTRIES, Facts, Registry

ATTENTION_WIDTH = 128
WEIGHTS_FILE = "model.safetensors"

# A builder takes the shape of one instance and returns a network with one output.
models: Registry[Callable[[tuple[int, ...]], nn.Module], Facts] = REGISTRIES["models"]


@models.register("linear")
def linear(shape: tuple[int, ...]) -> nn.Module:
    """A linear score of the instance; on tables fitted to whole tuples at once."""
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), 1))


@models.register("mlp")
def mlp(shape: tuple[int, ...]) -> nn.Module:
    """Four hidden layers of 300 units with BatchNorm and ReLU, as in the paper."""
    widths = [prod(shape), 300, 300, 300, 300]
    hidden: list[nn.Module] = []
    for before, after in pairwise(widths):
        # BatchNorm has a shift, so the bias would be redundant.
        hidden += [nn.Linear(before, after, bias=False), nn.BatchNorm1d(after), nn.ReLU(inplace=True)]
    return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(300, 1))


class ResidualBlock(nn.Module):
    """A basic residual block; the shortcut is projected where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, 1, 1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.main(x) + self.shortcut(x))


@models.register("resnet20")
def resnet20(shape: tuple[int, ...]) -> nn.Module:
    """ResNet-20: nine residual blocks of 16, 32 and 64 channels, for images."""
    if len(shape) != 3:
        raise UsageError(f"model resnet20 needs images, but an instance has shape {shape}", hint="Use the model mlp.")
    layers: list[nn.Module] = [
        nn.Conv2d(shape[0], 16, 3, 1, 1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(inplace=True),
    ]
    before = 16
    for width in (16, 32, 64):
        for block in range(3):
            layers.append(ResidualBlock(before, width, 2 if block == 0 and width > 16 else 1))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 1))


@models.register("convnet")
def convnet(shape: tuple[int, ...]) -> nn.Module:
    """Four convolutions of 32 to 256 channels, for images: a third of the work of ResNet-20."""
    if len(shape) != 3:
        raise UsageError(f"model convnet needs images, but an instance has shape {shape}", hint="Use the model mlp.")
    # Half the resolution at once: most of the work of ResNet-20 is in its full-sized maps.
    layers: list[nn.Module] = [nn.Conv2d(shape[0], 32, 5, 2, 2, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True)]
    for before, after in pairwise((32, 64, 128, 256)):
        layers += [nn.Conv2d(before, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        if after < 256:
            layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 1))


class AttentionHead(nn.Module):
    """Margins vᵀtanh(W z); in training the attention logits wᵀtanh(W z) beside them."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Flatten(), nn.Linear(features, ATTENTION_WIDTH, bias=False), nn.Tanh())
        self.attention = nn.Linear(ATTENTION_WIDTH, 1, bias=False)
        # Training starts at the mean of a bag: random attention may converge to the wrong class.
        nn.init.zeros_(self.attention.weight)
        self.margin = nn.Linear(ATTENTION_WIDTH, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            return self.margins_and_logits(x)
        margin: Tensor = self.margin(self.hidden(x))
        return margin

    def margins_and_logits(self, x: Tensor) -> Tensor:
        """(N, 2)."""
        h = self.hidden(x)
        return torch.cat([self.margin(h), self.attention(h)], dim=1)


class Scorer(nn.Module):
    """A network with the normalisation it was trained with: raw instances in, scores out."""

    factor: Tensor
    shift: Tensor

    def __init__(self, network: nn.Module, factor: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("factor", factor)
        self.register_buffer("shift", shift)
        self._shifts = bool((shift != 0).any())
        # Convolutions on images in channels-last order take a sixth less time on one CPU thread.
        self._channels_last = any(isinstance(layer, nn.Conv2d) for layer in network.modules())
        if self._channels_last:
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def inputs(self, raw: Tensor) -> Tensor:
        """The normalised input of the network."""
        x = raw * self.factor
        return x - self.shift if self._shifts else x

    @property
    def blank(self) -> Tensor:
        """The raw instance whose normalised input is zero."""
        return self.shift / self.factor

    def forward(self, raw: Tensor) -> Tensor:
        x = self.inputs(raw)
        if self._channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        scores: Tensor = self.network(x).squeeze(-1)
        return scores

    @property
    def is_linear(self) -> bool:
        """Whether the network is one linear layer."""
        layers = [layer for layer in self.network.modules() if not isinstance(layer, nn.Sequential | nn.Flatten)]
        return len(layers) == 1 and isinstance(layers[0], nn.Linear)

    def score(self, raw: NDArray[np.generic]) -> NDArray[np.float64]:
        """Scores of raw instances, in evaluation mode."""
        return predict(self, raw)

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.parameters())

    def files(self) -> dict[str, bytes]:
        """All weights and statistics, as safetensors."""
        from safetensors.torch import save

        return {WEIGHTS_FILE: save(snapshot(self))}

    def flip(self, centre: float) -> list[Tensor]:
        """Exchange the classes, score → 2·centre − score, in the last layer; returns what was negated."""
        last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
        with torch.no_grad():
            last.weight.neg_()
            last.bias.neg_().add_(2 * centre)
        return [last.weight, last.bias]

    def move_scores(self, by: float) -> None:
        """Add a constant to all scores, in the last layer."""
        last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
        with torch.no_grad():
            last.bias.add_(by)

    def set_linear(self, weight: NDArray[np.float64], bias: float) -> None:
        """Make the last layer score = input·weight + bias; for networks of this one layer."""
        last = [layer for layer in self.network.modules() if isinstance(layer, nn.Linear)][-1]
        with torch.no_grad():
            last.weight.copy_(torch.from_numpy(weight)[None])
            last.bias.fill_(bias)


def snapshot(model: nn.Module) -> dict[str, Tensor]:
    """A copy of all weights and statistics, in the order of memory that a file has."""
    return {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }


def require_network(name: str) -> None:
    """Refuse an unknown name before any work is done."""
    kind, _, inner = name.partition(":")
    if kind == "torchvision":
        from ntmp_cli.learning.torchvision_models import torchvision_names

        if inner not in (names := torchvision_names()):
            raise UsageError(f"unknown torchvision model '{inner}'; {did_you_mean(inner, names)}")
    else:
        models.get(name)


def build_network(name: str, shape: tuple[int, ...]) -> nn.Module:
    """A freshly initialised network with one output: a registered model, or `torchvision:NAME`."""
    kind, _, inner = name.partition(":")
    if kind == "torchvision":
        from ntmp_cli.learning.torchvision_models import torchvision_network

        return torchvision_network(inner, shape)
    return models.get(name)(shape)


def build_scorer(
    network: str | Callable[[tuple[int, ...]], nn.Module],
    shape: Sequence[int],
    factor: NDArray[np.float32],
    shift: NDArray[np.float32],
    seed: int,
) -> Scorer:
    """A freshly initialised scorer of a named or given network; the global random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        built = build_network(network, tuple(shape)) if isinstance(network, str) else network(tuple(shape))
    return Scorer(built, torch.from_numpy(factor), torch.from_numpy(shift))


def standardises(kind: str, shape: Sequence[int]) -> bool:
    """Whether inputs are standardised. `auto` leaves single-channel images in [0, 1], as the paper does."""
    return kind == "channel" or (kind == "auto" and (len(shape) == 1 or shape[0] > 1))


def normalisation(
    shape: Sequence[int], centre: NDArray[np.float64], spread: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """(factor, shift) with network input = raw·factor − shift, per channel (images) or feature (vectors)."""
    view = (-1, *[1] * (len(shape) - 1))
    factor = 1 / np.where(spread > 0, spread, 1.0)
    return factor.reshape(view).astype(np.float32), (centre * factor).reshape(view).astype(np.float32)


def predict(model: nn.Module, raw: NDArray[np.generic], batch: int = 512) -> NDArray[np.float64]:
    """Scores in evaluation mode, in batches; leaves the model's mode as it was.

    A linear scorer computes in double precision. In single precision the rounding of a long sum depends on the other
    rows of the batch.
    """
    if not len(raw):
        return np.empty(0)
    if isinstance(model, Scorer) and model.is_linear:
        model = deepcopy(model).to("cpu", torch.float64)  # not every accelerator has double precision
    device = next(model.parameters()).device
    was_training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            scores = [model(piece.to(device)).cpu().double() for piece in torch.split(torch.from_numpy(raw), batch)]
    finally:
        model.train(was_training)
    return torch.cat(scores).numpy()
