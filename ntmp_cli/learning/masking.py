"""Features masked for the student while it learns pseudo-labels of a teacher that sees all of them.

Without masking a network is told what it knows already; with it, it learns not to rely on any few features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def sample_mask(shape: Sequence[int], rate: float, rng: np.random.Generator) -> Tensor:
    """Which features of a batch of this shape are masked, each at random; a pixel is masked in all its channels."""
    instances, *instance = shape
    if len(instance) == 3:
        instance[0] = 1
    return torch.from_numpy(rng.random((instances, *instance), dtype=np.float32) < rate)


def apply_mask(x: Tensor, mask: Tensor, blank: Tensor) -> Tensor:
    """Raw instances of which the last len(mask) are blank where masked; the ones before are as they were."""
    masked = x.to(torch.float32, copy=True)
    last = masked[len(x) - len(mask) :]
    torch.where(mask.to(x.device), blank, last, out=last)
    return masked
