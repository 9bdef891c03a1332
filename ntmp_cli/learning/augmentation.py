"""Augmentation of images: every step sees its images mirrored and shifted at random; the labels do not change.

The samples depend only on the seed, the epoch and the step. A training can therefore be repeated and resumed, and
several ranks see the same images as one process.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntmp_cli.learning.augmentation_choice import CROP, FLIP
from ntmp_cli.randomness import stream

# An image is shifted by at most this share of its side: by four pixels of 32.
LARGEST_SHIFT = 1 / 8

Integers = NDArray[np.int64]


class Augmentation:
    """Which changes are made, and the seed that they are sampled from."""

    def __init__(self, kind: str | None, seed: int) -> None:
        kinds = (kind or "none").split("+")
        self.flips, self.crops, self.seed = FLIP in kinds, CROP in kinds, seed

    @property
    def is_none(self) -> bool:
        """Whether images stay as they are."""
        return not (self.flips or self.crops)

    def places(self, images: int, shape: Sequence[int], *step: int) -> tuple[Tensor, Tensor]:
        """Indices of the rows (N, height) and columns (N, width) of the raw images at which this step samples."""
        rng = stream(self.seed, "augmentation", *step)
        rows, columns = (
            np.clip(np.arange(side) + self._shifts(images, side, rng)[:, None], 0, side - 1) for side in shape[1:]
        )
        if self.flips:
            columns = np.where(rng.random(images)[:, None] < 0.5, columns[:, ::-1], columns)
        return torch.from_numpy(rows), torch.from_numpy(np.ascontiguousarray(columns))

    def _shifts(self, images: int, side: int, rng: np.random.Generator) -> Integers:
        most = int(side * LARGEST_SHIFT)
        return rng.integers(-most, most + 1, images) if self.crops else np.zeros(images, dtype=np.int64)


def seen_at(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Images gathered from these rows and columns; a shift fills the border with repeated edge pixels."""
    rows, columns = rows.to(x.device), columns.to(x.device)
    images = torch.arange(len(x), device=x.device)[:, None, None]
    # Channels last while indexing: one index then copies a whole pixel.
    return x.permute(0, 2, 3, 1)[images, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
