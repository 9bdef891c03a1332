"""The last hidden layer of a trained network as a frozen encoder."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch
from torch import Tensor, nn

from ntmp_cli.errors import UsageError
from ntmp_cli.learning.encoders import Encoder, EncoderRequest
from ntmp_cli.learning.models import Scorer, build_network, normalisation


class Penultimate(Encoder):
    """What the last linear layer of a network sees, behind the normalisation that the network was trained with."""

    factor: Tensor
    shift: Tensor
    scale: Tensor

    def __init__(self, network: nn.Module, factor: Tensor, shift: Tensor, scale: float) -> None:
        layers = [(name, layer) for name, layer in network.named_modules() if isinstance(layer, nn.Linear)]
        hidden = [layer for layer in network.modules() if not isinstance(layer, nn.Sequential | nn.Flatten)]
        if not layers or not layers[-1][0] or len(hidden) < 2:
            raise UsageError("the network of the encoder has no hidden layer", hint="Use a run of the model mlp.")
        name, last = layers[-1]
        super().__init__(last.in_features)
        self.network = deepcopy(network)
        self.network.set_submodule(name, nn.Identity())
        self.register_buffer("factor", factor.clone())
        self.register_buffer("shift", shift.clone())
        self.register_buffer("scale", torch.tensor(scale))
        self.freeze()

    @classmethod
    def of(cls, scorer: Scorer, scale: float) -> Penultimate:
        """Of a trained network whose raw instances are `scale` times those of an encoder."""
        return cls(scorer.network, scorer.factor, scorer.shift, scale)

    @classmethod
    def restored(cls, model: str, request: EncoderRequest) -> Penultimate:
        """To be filled by `load_state_dict`."""
        channels = request.shape[0]
        factor, shift = normalisation(request.shape, np.zeros(channels), np.ones(channels))
        return cls(build_network(model, request.shape), torch.from_numpy(factor), torch.from_numpy(shift), 1.0)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.network(x * self.scale * self.factor - self.shift)
        return hidden.flatten(1)
