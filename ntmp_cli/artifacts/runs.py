"""Facts about the training of a run, for the next stage."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from ntmp_cli.artifacts.manifest import MANIFEST, PLUGINS, RunArtifact, TuplesArtifact, open_artifact, remake
from ntmp_cli.artifacts.summary_fields import problems_of
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.plugins import require_plugins


def open_run(path: Path) -> RunArtifact:
    """Open a run; refuse it if a plugin that it needs is not registered."""
    run = open_artifact(path, "run")
    require_plugins(run.manifest.plugins, str(path))
    return run


def require_trained_on(run: RunArtifact, tuples: TuplesArtifact) -> None:
    """Refuse other tuples than those of the run."""
    if tuples.sha256 not in {entry["sha256"] for entry in run.manifest.inputs if entry["kind"] == "tuples"}:
        raise UsageError(
            f"{run.path}: was not trained on {tuples.path}", hint="Pass the tuples that the run was trained on."
        )


def train_config(run: RunArtifact) -> TrainConfig:
    """The settings that a run was trained with; files are given by their hashes."""
    where = run.path / MANIFEST
    try:
        config = TrainConfig.model_validate({k: v for k, v in run.manifest.config.items() if k != PLUGINS})
    except ValidationError as error:
        # The settings of a method are stored flat, whatever model holds them.
        lines = "; ".join(f"config.{problem.removeprefix('settings.')}" for problem in problems_of(error))
        raise ArtifactError(f"{where}: {lines}", hint=remake(run.kind)) from None
    except UsageError as error:  # a method that is not registered here
        raise ArtifactError(f"{where}: config.method: {error.message}", hint=error.hint) from None
    if config.prior is None:  # the training estimated it
        return config.model_copy(update={"prior": run.summary.trained_prior})
    if config.prior != run.summary.trained_prior:
        raise ArtifactError(
            f"{where}: config.prior: {config.prior}, but summary.trained_prior is {run.summary.trained_prior}",
            hint=remake(run.kind),
        )
    return config


def trained_law(run: RunArtifact) -> str | None:
    """The noise law that a training used instead of the recorded one; None if it used the recorded one."""
    law = run.manifest.config.get("count_law")
    if law is None:
        return None
    knowledge = run.summary.task.knowledge
    if "auto" in str(law) and knowledge is not None:
        # The names of strata contain the estimated law, alone or after the count; strata of labels have no law.
        text = next((text for text in knowledge.counts if ":" in text), "exact")
        return text.partition("(")[2].rstrip(")") or text
    return str(law)
