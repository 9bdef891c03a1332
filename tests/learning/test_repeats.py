"""Repeated instances are counted shard by shard, whatever the size of blocks."""

from __future__ import annotations

import numpy as np

from ntmp_cli.learning import repeats
from ntmp_cli.learning.repeats import repeated_share


def test_repeats_are_counted_whatever_the_blocks(monkeypatch):
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 255, (2, 50, 3, 4, 4), dtype=np.uint8)
    second[:10] = first[5:15]
    expected = 10 / 90  # of ninety distinct instances
    for size in (2**20, 8 * 48, 1):
        monkeypatch.setattr(repeats, "BLOCK_BYTES", size)
        assert repeated_share([[first], [second[:20], second[20:]]]) == expected
    assert repeated_share([[first], [second[20:]]]) == 0
