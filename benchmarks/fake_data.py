"""Arrays of the size of the real data sets: speed does not depend on what the pixels show."""

from __future__ import annotations

import numpy as np

from ntmp_cli.data.labelled import LabelledData

DIGITS = tuple("0123456789")


def images(name: str, train: int, test: int, shape: tuple[int, ...]) -> LabelledData:
    """Random pixels and labels."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (train + test, *shape), dtype=np.uint8)
    y = rng.integers(0, 10, train + test)
    return LabelledData(name, x[:train], y[:train], x[train:], y[train:], DIGITS, DIGITS[::2], 255.0)
