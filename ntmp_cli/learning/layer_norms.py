"""A trained network as a chain of linear layers with ReLU between them: the norms that bounds need."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntmp_cli.theory.generalisation import NormClass

Layer = tuple[NDArray[np.float64], NDArray[np.float64]]


def chain(network: nn.Module) -> list[Layer] | None:
    """Weights and biases of every layer in evaluation mode, BatchNorm multiplied in; None for any other network."""
    layers: list[Layer] = []
    after_relu = True
    for module in _modules(network):
        if isinstance(module, nn.Linear) and after_relu:
            bias = torch.zeros(module.out_features) if module.bias is None else module.bias
            layers.append((_array(module.weight), _array(bias)))
            after_relu = False
        elif isinstance(module, nn.BatchNorm1d) and layers and not after_relu:
            layers[-1] = _normalised(layers[-1], module)
        elif isinstance(module, nn.ReLU) and not after_relu:
            after_relu = True
        elif not isinstance(module, nn.Flatten):
            return None
    return layers if layers and not after_relu and len(layers[-1][1]) == 1 else None


def norm_class(layers: list[Layer]) -> NormClass:
    """Frobenius norms of the layers, for inputs with a last coordinate of 1 that carries the biases.

    A hidden layer becomes [[W, b], [0, 1]], whose ReLU leaves the 1 as it is; the last one [w, b].
    """
    last = len(layers) - 1
    squares = [float((w**2).sum() + (b**2).sum()) + (number < last) for number, (w, b) in enumerate(layers)]
    return NormClass(tuple(float(np.sqrt(square)) for square in squares))


def _modules(network: nn.Module) -> Iterator[nn.Module]:
    """The layers of a network in the order of their application."""
    if isinstance(network, nn.Sequential):
        for module in network:
            yield from _modules(module)
    else:
        yield network


def _normalised(layer: Layer, norm: nn.BatchNorm1d) -> Layer:
    weight, bias = layer
    assert norm.running_mean is not None
    assert norm.running_var is not None
    factor = _array(norm.weight) / np.sqrt(_array(norm.running_var) + norm.eps)
    return factor[:, None] * weight, factor * (bias - _array(norm.running_mean)) + _array(norm.bias)


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach().cpu().double().numpy()
