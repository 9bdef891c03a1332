"""Images of MNIST and FashionMNIST as rows of 784 numbers in [0, 1]."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.table_data import Floats, Ints


@lru_cache(4)
def images(name: str) -> tuple[Floats, Ints, Floats, Ints]:
    """Training images, their labels, test images, their labels."""
    from ntmp_cli.data.formats import read_idx

    folder = Path(os.environ["NTMP_DATA"]) / name / "raw"

    def read(kind: str, dims: int) -> NDArray[Any]:
        files = [folder / f"{kind}-idx{dims}-ubyte{ending}" for ending in ("", ".gz")]
        return read_idx(next(file for file in files if file.exists()), dims)

    parts = []
    for split in ("train", "t10k"):
        pixels = read(f"{split}-images", 3)
        parts += [pixels.reshape(len(pixels), -1) / 255.0, read(f"{split}-labels", 1).astype(np.int64)]
    return parts[0], parts[1], parts[2], parts[3]
