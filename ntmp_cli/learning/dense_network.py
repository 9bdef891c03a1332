"""Scores of the networks `mlp` and `linear` by NumPy: importing torch takes longer than scoring a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import ArtifactError

Array = NDArray[np.floating[Any]]

# Layers of `models.mlp` and `models.linear` by their number in the network: linear layers, each but the last with
# BatchNorm after it.
LINEAR_LAYERS = {"mlp": (1, 4, 7, 10, 13), "linear": (1,)}
BATCH_NORM = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
EPSILON = 1e-5  # torch's, added to the variance
# Rows at a time: their hidden layers stay in a processor's cache.
ROWS = 512


@dataclass(frozen=True)
class DenseNetwork:
    """x·factor − shift, then layers z·weight + bias with ReLU between them."""

    factor: Array
    shift: Array
    layers: tuple[tuple[Array, Array], ...]

    def score(self, raw: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of raw instances, in the precision of the weights."""
        scores = np.empty(len(raw))
        for start in range(0, len(raw), ROWS):
            rows = raw[start : start + ROWS]
            z = (rows * self.factor - self.shift).reshape(len(rows), -1)
            for weight, bias in self.layers[:-1]:
                z = np.maximum(z @ weight + bias, 0)
            weight, bias = self.layers[-1]
            scores[start : start + ROWS] = (z @ weight + bias)[:, 0]
        return scores


def dense_network(content: bytes, shape: tuple[int, ...]) -> DenseNetwork | None:
    """The network of a safetensors file if it is `mlp` or `linear` on instances of this shape, else None."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        tensors = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError):
        return None  # torch's reader gives the error
    numbers = next((known for known in LINEAR_LAYERS.values() if tensors.keys() == _names(known)), None)
    if numbers is None or any(tensors[name].dtype != np.float32 for name in tensors if "tracked" not in name):
        return None
    if wrong := [name for name, tensor in tensors.items() if not np.isfinite(tensor).all()]:
        raise ArtifactError(f"the weights are damaged: '{wrong[0]}' has values that are not finite")
    # One layer computes in double precision: in single precision its rounding depends on the other rows.
    precision = np.float64 if len(numbers) == 1 else np.float32
    network = DenseNetwork(
        tensors["factor"].astype(precision),
        tensors["shift"].astype(precision),
        tuple((w.astype(precision), b.astype(precision)) for w, b in (_layer(tensors, number) for number in numbers)),
    )
    return network if _fits(network, shape) else None


def _names(numbers: tuple[int, ...]) -> set[str]:
    """The names of all tensors of a network with these linear layers."""
    inner = {f"network.{number}.weight" for number in numbers} | {f"network.{numbers[-1]}.bias"}
    norms = {f"network.{number + 1}.{name}" for number in numbers[:-1] for name in BATCH_NORM}
    return {"factor", "shift"} | inner | norms


def _layer(tensors: Mapping[str, NDArray[Any]], number: int) -> tuple[Array, Array]:
    """A linear layer with the BatchNorm after it, in evaluation mode, as one weight (inputs × outputs) and bias."""
    weight = tensors[f"network.{number}.weight"].T.astype(np.float64)
    if (bias := tensors.get(f"network.{number}.bias")) is not None:
        return weight, bias.astype(np.float64)
    scale, centre, mean, variance = (
        tensors[f"network.{number + 1}.{name}"].astype(np.float64) for name in BATCH_NORM[:4]
    )
    scale = scale / np.sqrt(variance + EPSILON)
    return weight * scale, centre - mean * scale


def _fits(network: DenseNetwork, shape: tuple[int, ...]) -> bool:
    """Whether the layers take instances of this shape, and what the layer before gives."""
    widths = [prod(shape), *(weight.shape[1] for weight, _ in network.layers)]
    inputs = [weight.shape[0] for weight, _ in network.layers]
    view = (shape[0], *[1] * (len(shape) - 1))
    statistics = network.factor.shape == network.shift.shape == view
    return statistics and inputs == widths[:-1] and widths[-1] == 1
