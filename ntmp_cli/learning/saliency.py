"""Saliency maps: the mean absolute derivative of the score by every pixel."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

BATCH = 256


def mean_saliency(network: nn.Module, images: NDArray[np.generic]) -> NDArray[np.float64]:
    """(H, W) mean over images of |∂score/∂pixel|, summed over channels."""
    network = network.eval()
    device = next(network.parameters()).device
    total = np.zeros(images.shape[2:])
    for start in range(0, len(images), BATCH):
        x = torch.from_numpy(images[start : start + BATCH]).to(device).float().requires_grad_()
        # Scores of different images do not depend on each other, so that one pass gives all derivatives.
        (gradient,) = torch.autograd.grad(network(x).sum(), x)
        total += gradient.abs().sum(dim=(0, 1)).cpu().double().numpy()
    mean: NDArray[np.float64] = total / len(images)
    return mean
