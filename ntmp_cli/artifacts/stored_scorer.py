"""The scorer of a run directory: its trained network, and the mapping from raw rows to what the network takes."""

from __future__ import annotations

from pydantic import ValidationError
from safetensors.torch import load as load_safetensors
from torch import nn

from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, MAPPING, WEIGHTS
from ntmp_cli.artifacts.manifest import RunArtifact
from ntmp_cli.artifacts.runs import train_config
from ntmp_cli.data.user.mapping import FeatureMapping
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.restore import Encoded, restore_encoder, restore_scorer


def read_mapping(run: RunArtifact) -> FeatureMapping | None:
    """How raw rows became features of this run; None where it was trained on simulated tuples."""
    if not run.has(MAPPING):
        return None
    try:
        return FeatureMapping.model_validate_json(run.file(MAPPING).read_bytes())
    except ValidationError:
        raise ArtifactError(
            f"{run.path / MAPPING}: not a mapping that this ntmp reads", hint="Use the ntmp version that wrote it."
        ) from None


def load_scorer(run: RunArtifact) -> nn.Module:
    """The trained network of a run, behind its frozen encoder where it has one."""
    summary, config = run.summary, train_config(run)
    try:
        scorer = restore_scorer(
            config, summary.task.as_task(), summary.features.shape, load_safetensors(run.file(WEIGHTS).read_bytes())
        )
        if summary.encoder is None:
            return scorer
        encoder = restore_encoder(
            summary.encoder,
            summary.instance.shape,
            summary.features.shape[0],
            config.clip_model,
            load_safetensors(run.file(ENCODER_WEIGHTS).read_bytes()),
        )
    except ArtifactError as error:
        raise ArtifactError(f"{run.path}: {error.message}", hint=error.hint) from None
    return Encoded(encoder, scorer, summary.instance.scale)
