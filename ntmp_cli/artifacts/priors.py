"""The class prior that a training uses, and where it came from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ntmp_cli.artifacts.manifest import Artifact, TuplesArtifact, open_artifact
from ntmp_cli.artifacts.summaries import PriorSource, PriorSummary
from ntmp_cli.errors import ArtifactError, NotIdentifiableError


@dataclass(frozen=True)
class Prior:
    """A class prior of the unlabeled pool, with its prior directory if `estimate-prior` estimated it.

    Without a value, the training estimates it.
    """

    value: float | None
    source: PriorSource
    estimate: Artifact[PriorSummary] | None = None
    ci: tuple[float, float] | None = None


def estimated_prior(path: Path, tuples: TuplesArtifact) -> Prior:
    """The prior in a prior directory, refused if it was estimated on other tuples."""
    estimate = open_artifact(path, "prior")
    if tuples.sha256 not in {entry["sha256"] for entry in estimate.manifest.inputs}:
        raise ArtifactError(
            f"{path}: was estimated on other tuples than {tuples.path}",
            hint="Run `ntmp estimate-prior` on the tuples that you train on, or give --prior.",
        )
    value = estimate.summary.prior
    if not estimate.summary.identified:
        raise NotIdentifiableError(
            f"{path}: the prior is {value:.3f} or {1 - value:.3f}, and the tuples do not determine which",
            hint="Estimate it with --assume 'prior<0.5' or --assume 'prior>0.5', or give --prior.",
        )
    return Prior(value, "estimated", estimate, estimate.summary.ci)
