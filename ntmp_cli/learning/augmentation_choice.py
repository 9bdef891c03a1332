"""The default augmentation of a training. No torch."""

from __future__ import annotations

from collections.abc import Sequence

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.method import GradientMethod, methods

FLIP, CROP = "flip", "crop"
# Photographs may be mirrored, digits may not. For users' images this is unknown.
BY_DATA_SET = {"cifar10": f"{FLIP}+{CROP}", "svhn": CROP}


def with_augmentation(config: TrainConfig, dataset: str, shape: Sequence[int]) -> TrainConfig:
    """The same settings with an augmentation: the given one, or the default of the data set. Only for images."""
    kind = methods.get(config.method)
    encoder = kind.encoder or config.encoder
    reason = None
    if not issubclass(kind, GradientMethod):
        reason = f"the method {config.method} trains no network"
    elif encoder is not None:
        reason = f"these are features of the encoder {encoder}"
    elif len(shape) != 3:
        reason = f"an instance has shape {tuple(shape)}"
    if config.augment is None:
        return config.model_copy(update={"augment": "none" if reason else BY_DATA_SET.get(dataset, "none")})
    if config.augment != "none" and reason:
        raise UsageError(f"augment: {config.augment} is for networks on images, but {reason}", hint="Leave it out.")
    return config
