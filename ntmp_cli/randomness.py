"""Named random streams: one per purpose, so that adding one never shifts another."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, *purpose: str | int) -> np.random.Generator:
    """The generator for one purpose, e.g. `stream(seed, "batches", epoch)`."""
    words = [word if isinstance(word, int) else zlib.crc32(word.encode()) for word in purpose]
    return np.random.default_rng([seed, *words])
