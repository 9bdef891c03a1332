"""Networks whose weights and statistics leave no term of a layer out."""

from __future__ import annotations

import torch
from torch import nn

from ntmp_cli.learning.models import Scorer


def filled_scorer(network: nn.Module, shape: tuple[int, ...], variance: float = 1.0) -> Scorer:
    """A scorer with random weights; running variances are `variance`, give or take a half of it."""
    generator = torch.Generator().manual_seed(0)
    for name, tensor in network.state_dict().items():
        if tensor.dtype == torch.float32:
            noise = torch.rand(tensor.shape, generator=generator)
            tensor.copy_((noise + 0.5) * variance if name.endswith("running_var") else (noise - 0.5) / 2)
    view = (shape[0], *[1] * (len(shape) - 1))
    return Scorer(network, torch.full(view, 0.01), torch.full(view, 0.5)).eval()
