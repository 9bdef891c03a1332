"""Features hidden from a network while it learns what its average, which sees all of them, believes of an instance.

Without it a network is taught what it knows already; with it, not to rely on any few features.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def hidden_features(shape: Sequence[int], share: float, rng: np.random.Generator) -> Tensor:
    """Which features of a batch of this shape are hidden, each by chance; a pixel is hidden in all its channels."""
    instances, *instance = shape
    if len(instance) == 3:
        instance[0] = 1
    return torch.from_numpy(rng.random((instances, *instance), dtype=np.float32) < share)


def with_hidden(x: Tensor, hidden: Tensor, blank: Tensor) -> Tensor:
    """Raw instances whose last ones are blank where their features are hidden; the ones before are as they were."""
    seen = x.to(torch.float32, copy=True)
    later = seen[len(x) - len(hidden) :]
    torch.where(hidden.to(x.device), blank, later, out=later)
    return seen
