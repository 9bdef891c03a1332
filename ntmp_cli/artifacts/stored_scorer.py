"""The scorer of a run directory, and the mapping from raw rows to its input.

Only convolutions, encoders and devices other than the CPU import torch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, ESTIMATOR, ESTIMATOR_LINE, FOLDS, MAPPING, WEIGHTS
from ntmp_cli.artifacts.manifest import RunArtifact
from ntmp_cli.artifacts.runs import train_config
from ntmp_cli.data.user.mapping import FeatureMapping, ImageFeatures
from ntmp_cli.errors import ArtifactError
from ntmp_cli.learning.dense_network import DenseNetwork, dense_network
from ntmp_cli.learning.tables.scorer import TableScorer

if TYPE_CHECKING:
    from torch import nn

    from ntmp_cli.learning.tables.estimator_scorer import EstimatorScorer

# Raw instances to scores.
Score = Callable[[NDArray[Any]], NDArray[np.float64]]


def read_mapping(run: RunArtifact) -> FeatureMapping | None:
    """The mapping from raw rows to features; None if the run was trained on simulated tuples."""
    if not run.has(MAPPING):
        return None
    try:
        mapping = FeatureMapping.model_validate_json(run.file(MAPPING).read_bytes())
    except (ValidationError, ValueError):
        raise ArtifactError(
            f"{run.path / MAPPING}: not a mapping that this ntmp reads", hint="Use the ntmp version that wrote it."
        ) from None
    features = mapping.features
    shape, expected = features.shape if isinstance(features, ImageFeatures) else (features.width,), run.summary.instance
    if shape != expected.shape:
        raise run.damaged(MAPPING, f"it gives instances of shape {shape}, the manifest says {expected.shape}")
    return mapping


def load_score(run: RunArtifact, device: str = "auto") -> Score:
    """A function that scores raw instances; a network runs on `device`."""
    return _finite(run, _load_score(run, device))


def load_fold_scores(run: RunArtifact) -> list[Score]:
    """The scores by the fits of the folds of a run on a table, fold by fold; none if they were not kept."""
    scores: list[Score] = []
    while entries := run.entries(f"{FOLDS}{len(scores)}/"):
        files = {entry.path.rpartition("/")[2]: run.file(entry.path).read_bytes() for entry in entries}
        scores.append(_finite(run, _table_scorer(run, files).score))
    return scores


def _finite(run: RunArtifact, score: Score) -> Score:
    """The same scores, refused where they are not finite."""

    def finite(raw: NDArray[Any]) -> NDArray[np.float64]:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                scores = score(raw)
        except (ValueError, IndexError, KeyError, AttributeError, TypeError) as error:
            raise ArtifactError(f"{run.path}: its classifier cannot score rows of its own shape") from error
        with np.errstate(over="ignore"):
            finite_scores = bool(np.isfinite(scores.astype(np.float32)).all())  # as they are written
        if not finite_scores:
            raise ArtifactError(
                f"{run.path}: gives scores that are NaN or infinite",
                hint="Its weights are damaged, or the rows are very different from the training rows.",
            )
        return scores

    return finite


def _load_score(run: RunArtifact, device: str) -> Score:
    if run.summary.learner == "table":
        return load_table_scorer(run).score
    if run.summary.learner == "estimator":
        return load_estimator_scorer(run).score
    if device in ("auto", "cpu") and (dense := load_dense_network(run)):
        return dense.score
    from ntmp_cli.learning.devices import choose_device
    from ntmp_cli.learning.models import predict
    from ntmp_cli.learning.restore import batch_size

    chosen = choose_device(device)
    return partial(predict, load_network(run).to(chosen), batch=batch_size(run.summary.instance.shape, chosen))


def load_table_scorer(run: RunArtifact) -> TableScorer:
    """The linear score and trees of a run on a table."""
    names = [entry.path for entry in run.manifest.files if entry.path == WEIGHTS or entry.path.startswith("trees-")]
    return _table_scorer(run, {name: run.file(name).read_bytes() for name in names})


def _table_scorer(run: RunArtifact, files: dict[str, bytes]) -> TableScorer:
    try:
        scorer = TableScorer.from_files(files)
    except ArtifactError as error:
        raise ArtifactError(f"{run.path}: {error.message}", hint=error.hint) from None
    if scorer.weight.shape != run.summary.instance.shape:
        raise ArtifactError(f"{run.path}: the weights do not fit the instances that the manifest describes")
    return scorer


def load_estimator_scorer(run: RunArtifact) -> EstimatorScorer:
    """The scikit-learn classifier of a run on a table."""
    from ntmp_cli.learning.tables.estimator_scorer import EstimatorScorer

    try:
        files = {name: run.file(name).read_bytes() for name in (ESTIMATOR, ESTIMATOR_LINE)}
        scorer = EstimatorScorer.from_files(files)
    except ArtifactError as error:
        raise ArtifactError(f"{run.path}: {error.message}", hint=error.hint) from None
    if (scorer.features,) != run.summary.instance.shape:
        raise ArtifactError(f"{run.path}: the classifier does not fit the instances that the manifest describes")
    return scorer


def load_dense_network(run: RunArtifact) -> DenseNetwork | None:
    """A network that NumPy scores; None for convolutions, encoders and networks of plugins."""
    if run.summary.encoder is not None or run.manifest.plugins:
        return None
    try:
        return dense_network(run.file(WEIGHTS).read_bytes(), run.summary.features.shape)
    except ArtifactError as error:
        raise ArtifactError(f"{run.path}: {error.message}", hint=error.hint) from None


def load_network(run: RunArtifact) -> nn.Module:
    """The trained network of a run, including its frozen encoder if it has one."""
    from ntmp_cli.learning.restore import Encoded, read_weights, restore_encoder, restore_scorer

    summary, config = run.summary, train_config(run)
    try:
        scorer = restore_scorer(
            config, summary.task.as_task(), summary.features.shape, read_weights(run.file(WEIGHTS).read_bytes())
        )
        if summary.encoder is None:
            return scorer
        encoder = restore_encoder(
            summary.encoder,
            summary.instance.shape,
            summary.features.shape[0],
            config.clip_model,
            read_weights(run.file(ENCODER_WEIGHTS).read_bytes()),
        )
    except ArtifactError as error:
        raise ArtifactError(f"{run.path}: {error.message}", hint=error.hint) from None
    return Encoded(encoder, scorer, summary.instance.scale)
