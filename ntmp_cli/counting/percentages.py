"""Which counts a percentage or a proportion leaves open: all k that round to it at the decimals given."""

from __future__ import annotations

import numpy as np

from ntmp_cli.counting.laws import Floats, Ints

# Halves may have been rounded up, down or to even; rounding of binary fractions may miss them by this much.
SLACK = 1e-9


def percent_range(percent: Floats, sizes: Ints, decimals: int) -> tuple[Ints, Ints]:
    """The smallest and the largest k with 100·k/n within half of the last decimal (Eq. 106); low > high: none."""
    half = 0.5 * 10.0**-decimals + SLACK
    low = np.ceil(sizes * (percent - half) / 100)
    high = np.floor(sizes * (percent + half) / 100)
    return np.maximum(low, 0).astype(np.int64), np.minimum(high, sizes).astype(np.int64)
