"""Binomial probabilities of arrays: what of k positives is counted (L of Eq. 107)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy


def binomial(j: NDArray[Any], n: NDArray[Any], p: float) -> NDArray[np.float64]:
    """P(j of n), 0 where j is not 0 … n."""
    inside = (j >= 0) & (j <= n)
    at, n = np.where(inside, j, 0), np.maximum(n, 0)
    logs = gammaln(n + 1) - gammaln(at + 1) - gammaln(n - at + 1) + xlogy(at, p) + xlog1py(n - at, -p)
    return np.where(inside, np.exp(logs), 0.0)
