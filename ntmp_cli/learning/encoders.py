"""Frozen encoders: maps from instances in [0, 1] to features that are never trained.

An encoder is named by a word of the registry (`pixels`, `random`, `pca`, `patches`), by `patches:SETTINGS`,
`torchvision:NAME`, `clip`, or `run:DIR`, the last hidden layer of a trained network, which a run knows as
`penultimate:MODEL`. What an encoder fitted or sampled lies in its state dict, normalisation included, so that building
it again with `dim` and loading the state needs neither the instances nor the weights file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod, sqrt
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ntmp_cli.errors import ArtifactError, DataError, UsageError, did_you_mean
from ntmp_cli.registry import REGISTRIES, Facts, Registry

RANDOM_DIM = 512
PCA_DIM = 100
# The second moments take k² numbers of eight bytes: 134 MB at this limit.
PCA_LIMIT = 4096

TORCHVISION = "torchvision:"
PATCHES = "patches"
# Encoders that are fitted on instances; the weights of an earlier fit can be given instead.
FITTED = ("pca", PATCHES)
ENCODER_FILE = "encoder.safetensors"
CLIP = "clip"
RUN = "run:"
PENULTIMATE = "penultimate:"

Pieces = Callable[[], Iterator[Tensor]]


class Encoder(nn.Module):
    """Instances in [0, 1], float32 of shape (N, *shape), to features (N, dim); without anything to train."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def train(self, mode: bool = True) -> Self:
        """Stay in evaluation mode: a BatchNorm that trains would change features that were stored before."""
        return super().train(False)

    def freeze(self) -> Self:
        """Last step of every constructor: no gradients, evaluation mode in all modules."""
        return self.requires_grad_(False).eval()


@dataclass(frozen=True)
class EncoderRequest:
    """What a builder may need: `pieces` yields the instances that `pca` and `patches` are fitted on.

    A `dim` without instances or weights stands for an encoder to be restored by `load_state_dict`.
    """

    shape: tuple[int, ...]
    seed: int
    weights: str | None = None
    pieces: Pieces | None = None
    clip_model: str | None = None
    dim: int | None = None


Builder = Callable[[EncoderRequest], Encoder]

encoders: Registry[Builder, Facts] = REGISTRIES["encoders"]


def encoder_choices() -> list[str]:
    """Every way to name an encoder, for messages and lists."""
    return [*encoders.names(), *encoders.families]


def get_encoder(spec: str) -> Builder:
    """The builder behind a name such as `pca`, `clip` or `torchvision:resnet18`."""
    if spec.startswith(TORCHVISION):
        return _torchvision(spec.removeprefix(TORCHVISION))
    if spec == CLIP:
        return _clip
    if spec.startswith(PENULTIMATE):
        return _penultimate(spec.removeprefix(PENULTIMATE))
    name, _, settings = spec.partition(":")
    if name == PATCHES:
        return _fitted_before(spec, partial(_patches, settings=settings))
    if spec not in encoders.names():
        raise UsageError(
            f"unknown encoder '{spec}'; {did_you_mean(spec, encoder_choices())}",
            hint=f"The encoders are {', '.join(encoder_choices())}.",
        )
    if spec in FITTED:
        return _fitted_before(spec, encoders.get(spec))
    return _without_weights(spec, encoders.get(spec))


def _fitted_before(spec: str, builder: Builder) -> Builder:
    """An encoder that is fitted on the request's instances, or read from a file of weights that was fitted before."""

    def build(request: EncoderRequest) -> Encoder:
        if request.weights is None:
            return builder(request)
        path, hint = Path(request.weights), f"Give the {ENCODER_FILE} of a run or of features by the encoder {spec}."
        if not path.is_file():
            raise ArtifactError(f"{path}: no such weights file", hint=hint)
        try:
            state = load_file(path)
        except Exception as error:  # a foreign file can fail in any way inside the reader
            raise ArtifactError(f"{path}: not a file of weights ({type(error).__name__})", hint=hint) from error
        components = state.get("components", torch.empty(0))
        dim = components.shape[1] if components.ndim == 2 else 1
        encoder = builder(replace(request, weights=None, pieces=None, dim=dim))
        expected = {name: value.shape for name, value in encoder.state_dict().items()}
        if expected != {name: value.shape for name, value in state.items()}:
            raise ArtifactError(
                f"{path}: not weights of the encoder {spec} for instances of shape {request.shape}", hint=hint
            )
        encoder.load_state_dict(state)
        return encoder

    return build


def _without_weights(spec: str, builder: Builder) -> Builder:
    def build(request: EncoderRequest) -> Encoder:
        if request.weights is not None:
            raise UsageError(
                f"encoder {spec} takes no weights, but got '{request.weights}'",
                hint=f"Weights belong to {CLIP}, {TORCHVISION}NAME, {', '.join(FITTED)}.",
            )
        return builder(request)

    return build


def build_encoder(spec: str, request: EncoderRequest) -> Encoder:
    """The encoder named `spec`; the global random state is left as it was."""
    builder = get_encoder(spec)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)
        return builder(request)


@encoders.register("pixels")
def pixels(request: EncoderRequest) -> Encoder:
    """The values of the instance itself, flattened."""
    return Pixels(request.shape)


@encoders.register("random")
def random(request: EncoderRequest) -> Encoder:
    """512 random projections of the flattened instance, then ReLU."""
    return RandomProjection(request.shape, request.seed)


@encoders.register("pca")
def pca(request: EncoderRequest) -> Encoder:
    """The first 100 principal components of the instances."""
    size = prod(request.shape)
    if size > PCA_LIMIT:
        raise UsageError(
            f"encoder pca takes up to {PCA_LIMIT} values, but an instance of shape {request.shape} has {size}",
            hint="Resize the images to 32 pixels a side, or use another encoder.",
        )
    if request.pieces is not None:
        return PrincipalComponents(*principal_components(request.pieces(), size))
    if request.dim is None:
        raise ValueError("pca needs instances to be fitted on, or the dim of the encoder to restore")
    return PrincipalComponents(torch.zeros(size), torch.zeros(size, request.dim))


@encoders.register(PATCHES)
def patches(request: EncoderRequest) -> Encoder:
    """Responses of images to 800 filters learned from their patches without labels, as 800 principal components."""
    return _patches(request, "")


def _patches(request: EncoderRequest, settings: str) -> Encoder:
    from ntmp_cli.learning.patches import patch_features

    return patch_features(request, settings)


def _torchvision(name: str) -> Builder:
    from ntmp_cli.learning.torchvision_models import torchvision_features

    return lambda request: torchvision_features(name, request.shape, request.weights)


def _penultimate(model: str) -> Builder:
    from ntmp_cli.learning.penultimate import Penultimate

    return lambda request: Penultimate.restored(model, request)


def _clip(request: EncoderRequest) -> Encoder:
    from ntmp_cli.learning.clip import DEFAULT_MODEL, clip_architecture, load_clip

    require_images(CLIP, request.shape, hint="Use the encoder pixels.")
    model = request.clip_model or DEFAULT_MODEL
    if request.weights is None and request.dim is not None:
        return clip_architecture(model, seed=request.seed).image_encoder
    return load_clip(model, request.weights, seed=request.seed).image_encoder


class Pixels(Encoder):
    """The flattened instance."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(prod(shape))
        self.freeze()

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


class RandomProjection(Encoder):
    """relu(xG / √k) with a fixed Gaussian matrix G of k × 512."""

    projection: Tensor

    def __init__(self, shape: tuple[int, ...], seed: int) -> None:
        super().__init__(RANDOM_DIM)
        size = prod(shape)
        # A separate generator, so that the matrix depends on nothing but the seed.
        gaussian = torch.randn(size, RANDOM_DIM, generator=torch.Generator().manual_seed(seed))
        self.register_buffer("projection", gaussian / sqrt(size))
        self.freeze()

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x.flatten(1) @ self.projection)


class PrincipalComponents(Encoder):
    """(x − mean)V / σ₁: centred projections, all divided by the spread σ₁ of the first component.

    One common scale makes the values O(1). It is not whitening, which would blow up the last components, mostly
    noise, to the size of the first; `normalize: none` keeps it so, the default standardises every component.
    """

    mean: Tensor
    components: Tensor

    def __init__(self, mean: Tensor, components: Tensor) -> None:
        super().__init__(components.shape[1])
        self.register_buffer("mean", mean)
        self.register_buffer("components", components)
        self.freeze()

    def forward(self, x: Tensor) -> Tensor:
        return (x.flatten(1) - self.mean) @ self.components


def principal_components(pieces: Iterator[Tensor], size: int) -> tuple[Tensor, Tensor]:
    """(mean, V/σ₁) in one pass: the eigenvectors of the covariance, largest first, at most 100.

    The sums are float64. Each component's sign is chosen so that its largest absolute loading is
    positive; eigenvectors have no natural sign, and equal input should give equal bytes.
    """
    from scipy.linalg import eigh  # only here: a network without this encoder starts faster

    count, total, moment = 0, torch.zeros(size, dtype=torch.float64), torch.zeros(size, size, dtype=torch.float64)
    for piece in pieces:
        x = piece.flatten(1).to("cpu", torch.float64)
        count += len(x)
        total += x.sum(dim=0)
        moment.addmm_(x.T, x)
    if count == 0:
        raise DataError("encoder pca has no instances to be fitted on", hint="Use the encoder pixels or random.")
    mean = (total / count).numpy()
    second = (moment / count).numpy()
    covariance = second - np.outer(mean, mean)
    first = max(size - PCA_DIM, 0)
    values, vectors = eigh(covariance, subset_by_index=[first, size - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    # What lies below the rounding of the subtraction above is not variance.
    rank = min(int((values > np.trace(second) * size * np.finfo(np.float64).eps).sum()), count - 1)
    if rank == 0:
        raise DataError(
            "encoder pca cannot be fitted: all instances are equal", hint="Use the encoder pixels or random."
        )
    vectors = vectors[:, :rank]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(rank)])
    scaled = np.ascontiguousarray(vectors * signs / np.sqrt(values[0]))
    return torch.from_numpy(mean).float(), torch.from_numpy(scaled).float()


def require_images(what: str, shape: tuple[int, ...], *, hint: str) -> None:
    """Refuse instances that are not grey or colour images."""
    if len(shape) != 3 or shape[0] not in (1, 3):
        raise UsageError(f"{what} needs images with 1 or 3 channels, but an instance has shape {shape}", hint=hint)


def three_channels(images: Tensor) -> Tensor:
    """Grey images as colour images; colour images as they are."""
    return images.expand(-1, 3, -1, -1)
