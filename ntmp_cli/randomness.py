"""Named random streams: every purpose has its own, so that adding one never shifts another."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """The generator for one purpose, e.g. `stream(seed, "batches", epoch)`."""
    words = [part if isinstance(part, int) else zlib.crc32(part.encode()) for part in purpose]
    return np.random.default_rng([seed, *words])
