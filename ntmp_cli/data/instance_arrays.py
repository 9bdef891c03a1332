"""Arrays of any layout as instances: features (N, D), or images with channels first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import DataError

CHANNELS = (1, 3, 4)


def instances(path: Path, x: NDArray[Any], notes: list[str]) -> tuple[NDArray[np.generic], float]:
    """Features as (N, D) float32, or images as (N, C, H, W) uint8 or float32; and their scale."""
    if x.dtype.kind not in "biuf":
        raise DataError(f"{path}: instances of type {x.dtype} are not numbers", hint="Store integers or floats.")
    if x.ndim not in (2, 3, 4) or 0 in x.shape:
        raise DataError(
            f"{path}: instances have shape {x.shape[1:]}",
            hint="Expected x of shape (N, D), (N, H, W), (N, H, W, C) or (N, C, H, W).",
        )
    if x.ndim == 2:
        return _float32(x), 1.0
    if x.dtype.kind in "iu" and x.dtype != np.uint8:
        raise DataError(
            f"{path}: images of type {x.dtype} have no known range",
            hint="Store pixels from 0 to 255 as uint8, or floats, which are used as they are.",
        )
    images = channels_first(path, x, notes)
    return (np.ascontiguousarray(images), 255.0) if x.dtype == np.uint8 else (_float32(images), 1.0)


def _float32(x: NDArray[Any]) -> NDArray[np.float32]:
    # Values too large for float32 become infinite; load_labelled reports their rows.
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(x, dtype=np.float32)


def channels_first(path: Path, x: NDArray[Any], notes: list[str]) -> NDArray[Any]:
    """Images as (N, C, H, W), from whichever axis can be the channels."""
    if x.ndim == 3:
        return x[:, np.newaxis]
    _, first, middle, last = x.shape
    if first not in CHANNELS and last not in CHANNELS:
        raise DataError(
            f"{path}: images of shape {x.shape[1:]} have no axis of 1, 3 or 4 channels",
            hint="Store images as (N, H, W, C) or (N, C, H, W).",
        )
    if first in CHANNELS and last in CHANNELS:
        # Both layouts are possible: use NumPy's convention, channels last, unless only the other gives square images.
        keep = middle == last and first != middle
        notes.append(f"shape {x.shape[1:]} is ambiguous: read with channels {'first' if keep else 'last'}")
        return x if keep else x.transpose(0, 3, 1, 2)
    return x if first in CHANNELS else x.transpose(0, 3, 1, 2)
