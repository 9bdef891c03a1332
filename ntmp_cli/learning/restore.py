"""A trained scorer from its weights, and how many instances it takes at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import torch
from torch import Tensor, nn

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.encoders import CLIP, EncoderRequest, build_encoder
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.models import WEIGHTS_FILE, Scorer, build_scorer
from ntmp_cli.tuple_source import Task

# A batch of this many input bytes keeps the network's intermediate results in a processor's caches; an accelerator
# wants more at a time.
CPU_BATCH_BYTES = 2**19
ACCELERATOR_BATCH_BYTES = 2**24
SMALLEST_BATCH, LARGEST_BATCH = 256, 65536


class Encoded(nn.Module):
    """A scorer behind a frozen encoder: raw instances in, scores out."""

    def __init__(self, encoder: nn.Module, scorer: Scorer, scale: float) -> None:
        super().__init__()
        self.encoder, self.scorer, self.scale = encoder, scorer, scale

    def forward(self, raw: Tensor) -> Tensor:
        scores: Tensor = self.scorer(self.encoder(raw.float() / self.scale).float())
        return scores


def restore_scorer(config: TrainConfig, task: Task, shape: Sequence[int], weights: dict[str, Tensor]) -> Scorer:
    """The network that a training ended with."""
    method = methods.get(config.method)(config, task)
    try:
        factor, shift = weights["factor"].numpy(), weights["shift"].numpy()
        scorer = build_scorer(method.network, shape, factor, shift, config.seed)
        scorer.load_state_dict(weights)
        _require_types(weights, scorer)
    except (KeyError, RuntimeError, ValueError, TypeError, IndexError):
        raise ArtifactError("the weights do not fit the network that the manifest describes") from None
    return scorer


def _require_types(weights: Mapping[str, Tensor], scorer: Scorer) -> None:
    """Refuse whole numbers in place of fractions: torch converts parameters, but not what it computes the input by."""
    statistics = (weights["factor"], weights["shift"])
    same = (weights[name].dtype == built.dtype for name, built in scorer.state_dict().items())
    if any(values.dtype != torch.float32 for values in statistics) or not all(same):
        raise TypeError


def read_weights(content: bytes) -> dict[str, Tensor]:
    """Tensors of a safetensors file; a weight that is not finite is an error."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        weights: dict[str, Tensor] = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError):  # also types that torch does not have
        raise ArtifactError("the weights are damaged: not a readable safetensors file") from None
    if wrong := [name for name, tensor in weights.items() if not bool(torch.isfinite(tensor).all())]:
        raise ArtifactError(f"the weights are damaged: '{wrong[0]}' has values that are not finite")
    return weights


def restore_files(config: TrainConfig, task: Task, shape: Sequence[int], files: Mapping[str, bytes]) -> Scorer:
    """The network from what `Scorer.files` gave."""
    return restore_scorer(config, task, shape, read_weights(files[WEIGHTS_FILE]))


def restore_encoder(
    name: str, shape: Sequence[int], dim: int, clip_model: str, weights: dict[str, Tensor]
) -> nn.Module:
    """The frozen encoder in front of a scorer."""
    if name == CLIP and clip_model.startswith("sha256:"):
        raise ArtifactError("the encoder is a CLIP described by a file that the run does not carry")
    encoder = build_encoder(name, EncoderRequest(tuple(shape), seed=0, dim=dim, clip_model=clip_model))
    try:
        encoder.load_state_dict(weights)
    except RuntimeError:
        raise ArtifactError("the encoder's weights do not fit the encoder that the manifest describes") from None
    return encoder


def batch_size(shape: Sequence[int], device: torch.device) -> int:
    """Instances per forward pass on this machine."""
    budget = CPU_BATCH_BYTES if device.type == "cpu" else ACCELERATOR_BATCH_BYTES
    return min(max(budget // (4 * prod(shape)), SMALLEST_BATCH), LARGEST_BATCH)
