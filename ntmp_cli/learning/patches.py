"""Unsupervised patch features of images (Coates and Ng 2012): no label, no download, no gradient.

An image with its own contrast normalised is convolved with directions that spherical k-means finds among whitened
patches. The responses pass a soft threshold, both signs apart, and are averaged over a grid of regions; principal
components, whitened, are what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from ntmp_cli.errors import DataError, UsageError, did_you_mean
from ntmp_cli.learning.encoders import Encoder, EncoderRequest, Pieces, require_images
from ntmp_cli.randomness import stream

# Number of patches sampled for the directions, and of images for the principal components.
PATCHES = 200_000
IMAGES = 16_000
# Added to the variance of an image with values in [0, 1], so that a blank one stays blank.
LEAST_VARIANCE = 1e-4
# Added to the eigenvalues of the patches' covariance, whose pixels have a variance of about one.
ZCA_FLOOR = 0.01
KMEANS_ROUNDS = 10
# A response counts from this many of its standard deviations on.
THRESHOLD = 0.5
# Responses that are computed at once: so few that they stay in the second cache of a processor.
RESPONSES_AT_ONCE = 2**17
ROWS = 20_000
# Larger covariances have their leading eigenvectors by subspace iteration, with this many extra directions.
ALL_AT_ONCE = 2048
SPARE_DIRECTIONS = 100
SUBSPACE_ROUNDS = 5

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PatchSettings:
    """What `patches:KEY=VALUE,…` may say."""

    filters: int = 800
    size: int = 6
    grid: int = 2
    components: int = 800
    views: int = 1

    @classmethod
    def parse(cls, text: str) -> Self:
        """Settings from `filters=1600,components=1200`; an empty text means the defaults."""
        values: dict[str, int] = {}
        names = [field.name for field in fields(cls)]
        for item in filter(None, text.split(",")):
            name, _, value = (word.strip() for word in item.partition("="))
            if name not in names:
                raise UsageError(
                    f"encoder patches has no setting '{name}'; {did_you_mean(name, names)}",
                    hint="Write for instance patches:filters=1600,components=1200; "
                    f"the settings are {', '.join(names)}.",
                )
            if not value.isdecimal() or int(value) < 1:
                raise UsageError(
                    f"encoder patches: {name} is '{value}'; it must be a whole number from 1 on",
                    hint=f"Write for instance patches:{name}={getattr(cls(), name)}.",
                )
            values[name] = int(value)
        if values.get("views", 1) > 2:
            raise UsageError(
                f"encoder patches: views is {values['views']}; an image has one view, or two with its mirror image",
                hint="Write patches:views=2 for photographs, and leave it out for digits and letters.",
            )
        return cls(**values)

    @property
    def responses(self) -> int:
        """Averaged responses of one image: both signs of every filter, in every region."""
        return 2 * self.filters * self.grid**2


class PatchFeatures(Encoder):
    """Averaged, thresholded responses to patch filters, projected on their whitened principal components."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    components: Tensor

    def __init__(self, settings: PatchSettings, channels: int, dim: int) -> None:
        super().__init__(dim)
        self.grid, self.views = settings.grid, settings.views
        self.register_buffer("weight", torch.zeros(settings.filters, channels, settings.size, settings.size))
        self.register_buffer("bias", torch.zeros(settings.filters))
        self.register_buffer("mean", torch.zeros(settings.responses))
        self.register_buffer("components", torch.zeros(settings.responses, dim))
        self.freeze()

    def forward(self, x: Tensor) -> Tensor:
        return (self.responses(x) - self.mean) @ self.components

    def responses(self, x: Tensor) -> Tensor:
        """(N, 2·filters·grid²): means of max(r − 1, 0) and of max(−r − 1, 0), r in units of its threshold.

        With two views they are averaged over the image and its mirror image, so that both have the same features.
        """
        images = normalised(x)
        if self.views == 1:
            return self._view(images)
        return (self._view(images) + self._view(images.flip(3))) / 2

    def _view(self, images: Tensor) -> Tensor:
        if torch.jit.is_tracing() or torch.compiler.is_compiling():  # type: ignore[attr-defined, no-untyped-call]
            return self._as_graph(images)
        size = self.weight.shape[2]
        rows, columns = (side - size + 1 for side in images.shape[2:])
        regions = region_means(rows, columns, self.grid).to(images)
        places, filters = rows * columns, len(self.weight)
        weight, at_once = self.weight.flatten(1).T.contiguous(), max(1, RESPONSES_AT_ONCE // places)
        pooled = images.new_empty(len(images), 2, len(regions), filters)
        for number, image in enumerate(images):
            windows = image.unfold(1, size, 1).unfold(2, size, 1).permute(1, 2, 0, 3, 4).reshape(places, -1)
            for first in range(0, filters, at_once):
                some = slice(first, first + at_once)
                r = torch.addmm(self.bias[some], windows, weight[:, some])
                # The mean of max(r, 1) is that of max(r − 1, 0) and one more.
                torch.sub(regions @ r.clamp(min=1.0), 1.0, out=pooled[number, 0, :, some])
                torch.sub(-1.0, regions @ r.clamp_(max=-1.0), out=pooled[number, 1, :, some])
        return pooled.transpose(2, 3).reshape(len(images), -1)

    def _as_graph(self, images: Tensor) -> Tensor:
        """The same without a loop over images, for exported graphs of any number of rows: about half as fast."""
        shrunk = F.softshrink(F.conv2d(images, self.weight, self.bias), 1.0)
        difference = F.adaptive_avg_pool2d(shrunk, self.grid)
        # max(r − 1, 0) − max(−r − 1, 0) is the shrunk response, so that one more average gives both signs.
        positive = F.adaptive_avg_pool2d(shrunk.relu(), self.grid)
        return torch.cat([positive, positive - difference], dim=1).flatten(1)


def patch_features(request: EncoderRequest, text: str) -> Encoder:
    """The encoder `patches`, fitted on the request's instances or to be restored."""
    settings = PatchSettings.parse(text)
    require_images("encoder patches", request.shape, hint="Use the encoder pca.")
    channels, height, width = request.shape
    if settings.size + settings.grid - 1 > min(height, width):
        raise UsageError(
            f"encoder patches: patches of {settings.size} pixels on a grid of {settings.grid} "
            f"do not fit into images of {height} × {width}",
            hint="Use smaller patches, such as patches:size=3.",
        )
    if request.pieces is None:
        if request.dim is None:
            raise ValueError("patches needs instances to be fitted on, or the dim of the encoder to restore")
        return PatchFeatures(settings, channels, request.dim)
    return _fitted(settings, request.pieces, channels, request.seed)


def normalised(x: Tensor) -> Tensor:
    """Images with mean 0 and variance 1, each by its own pixels."""
    flat = x.flatten(1)
    variance, mean = torch.var_mean(flat, dim=1, keepdim=True, correction=0)
    return ((flat - mean) / (variance + LEAST_VARIANCE).sqrt()).view_as(x)


def _fitted(settings: PatchSettings, pieces: Pieces, channels: int, seed: int) -> Encoder:
    images = sum(len(piece) for piece in pieces())
    if images < 2:
        raise DataError("encoder patches needs at least two images to be fitted on", hint="Use the encoder pixels.")
    rng = stream(seed, "patches")
    patches = _sample_patches(pieces(), images, settings.size, rng)
    shift, whitening = zca(patches)
    white = (patches - shift) @ whitening
    directions = spherical_kmeans(white, settings.filters, rng)
    spread = np.maximum(np.sqrt(_mean_square(white, directions)), 1e-6)
    weight = (whitening @ directions.T / (THRESHOLD * spread)).T
    shape = (settings.filters, channels, settings.size, settings.size)
    raw = PatchFeatures(settings, channels, 0)
    raw.weight.copy_(torch.from_numpy(weight.reshape(shape)))
    raw.bias.copy_(torch.from_numpy(-weight @ shift))
    mean, components = _whitened_components(raw, pieces(), images, settings.components, rng)
    fitted = PatchFeatures(settings, channels, components.shape[1])
    state = {"weight": raw.weight, "bias": raw.bias}
    state |= {"mean": torch.from_numpy(mean), "components": torch.from_numpy(components)}
    fitted.load_state_dict(state)  # copies, so that a restored encoder has the same layout in memory
    return fitted


def _sample_patches(pieces: Iterator[Tensor], images: int, size: int, rng: np.random.Generator) -> Floats:
    """(P, channels·size²) patches at random places, as many of every image."""
    each = max(1, PATCHES // images)
    step = max(1, images // PATCHES)
    sampled, position = [], 0
    for piece in pieces:
        x = normalised(piece[-position % step :: step].to("cpu", torch.float32)).numpy()
        position += len(piece)
        rows, columns = (rng.integers(0, side - size + 1, (len(x), each)) for side in x.shape[2:])
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(2, 3))
        # windows[image, channel, row, column] is a patch of one channel.
        chosen = windows[np.arange(len(x))[:, None], :, rows, columns]
        sampled.append(chosen.reshape(-1, x.shape[1] * size * size))
    return np.concatenate(sampled).astype(np.float64)


def region_means(rows: int, columns: int, grid: int) -> Tensor:
    """(grid², rows·columns): the mean over each region of a map; regions of an uneven side share a row or column."""

    def of(side: int) -> Tensor:
        at = torch.arange(side)
        means = [(at >= k * side // grid) & (at < -(-(k + 1) * side // grid)) for k in range(grid)]
        return torch.stack([mean / mean.sum() for mean in means])

    return torch.kron(of(rows), of(columns))


def zca(rows: Floats) -> tuple[Floats, Floats]:
    """(μ, V(Λ + ε)^(−½)Vᵀ): rows minus μ, times the matrix, have nearly unit covariance and stay near themselves."""
    shift = rows.mean(axis=0)
    values, vectors = scipy.linalg.eigh(np.cov(rows, rowvar=False, bias=True))
    return shift, (vectors / np.sqrt(np.maximum(values, 0) + ZCA_FLOOR)) @ vectors.T


def spherical_kmeans(rows: Floats, count: int, rng: np.random.Generator) -> Floats:
    """Unit directions; a row belongs to the one with the largest |cosine|, and adds its projection to it."""
    x = torch.from_numpy(rows).float()
    directions = _unit(torch.from_numpy(rng.normal(size=(count, rows.shape[1]))).float())
    for _ in range(KMEANS_ROUNDS):
        sums = torch.zeros_like(directions)
        for block in torch.split(x, ROWS):
            products = block @ directions.T
            nearest = products.abs().argmax(dim=1)
            sums.index_add_(0, nearest, block * products.gather(1, nearest[:, None]))
        empty = sums.square().sum(dim=1) == 0
        if empty.any():
            sums[empty] = x[torch.from_numpy(rng.integers(0, len(x), int(empty.sum())))]
        directions = _unit(sums)
    return directions.double().numpy()


def _unit(rows: Tensor) -> Tensor:
    return F.normalize(rows, dim=1)


def _mean_square(rows: Floats, directions: Floats) -> Floats:
    """Mean of the squared projections of the rows on every direction."""
    second = rows.T @ rows / len(rows)
    squares: Floats = np.einsum("kd,kd->k", directions @ second, directions)
    return squares


def _whitened_components(
    encoder: PatchFeatures, pieces: Iterator[Tensor], images: int, most: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """(mean, V/√λ) of the responses to at most `IMAGES` images, the largest components first."""
    step = -(-images // IMAGES)
    size, position, count = len(encoder.mean), 0, 0
    total, moment = np.zeros(size), torch.zeros(size, size)
    for piece in pieces:
        chosen = piece[-position % step :: step]
        position += len(piece)
        if not len(chosen):
            continue
        with torch.inference_mode():
            x = encoder.responses(chosen.to("cpu", torch.float32))
        total += x.double().sum(dim=0).numpy()
        # NumPy sees that both factors are one array and calls the symmetric product, half the work.
        moment += torch.from_numpy(x.numpy().T @ x.numpy())
        count += len(x)
    mean = total / count
    covariance = moment.div_(count).sub_(torch.from_numpy(np.outer(mean, mean).astype(np.float32)))
    values, vectors = leading_eigenvectors(covariance, min(most, size, count - 1), rng)
    kept = values > max(values[0], 0) * 1e-5  # what lies below is rounding
    if not kept.any():
        raise DataError("encoder patches cannot be fitted: all images are equal", hint="Use the encoder pixels.")
    values, vectors = values[kept], vectors[:, kept]
    signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(len(values))])
    return mean, vectors * signs / np.sqrt(values)


def leading_eigenvectors(matrix: Tensor, number: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """The largest eigenvalues of a covariance and their vectors, largest first.

    Of a large matrix by subspace iteration: a few products with it, where a decomposition of all of it takes minutes.
    """
    size = len(matrix)
    if size <= ALL_AT_ONCE or 2 * number > size:
        values, vectors = scipy.linalg.eigh(matrix.numpy(), subset_by_index=[size - number, size - 1])
        return values[::-1].astype(np.float64), vectors[:, ::-1].astype(np.float64)
    subspace = torch.from_numpy(rng.normal(size=(size, number + SPARE_DIRECTIONS))).float()
    for _ in range(SUBSPACE_ROUNDS):
        subspace = torch.linalg.qr(matrix @ subspace)[0]
    values, turn = scipy.linalg.eigh((subspace.T @ (matrix @ subspace)).double().numpy())
    vectors = subspace.double().numpy() @ turn[:, ::-1][:, :number]
    return values[::-1][:number], vectors
