"""What was estimated once, read by the stages that need a prior."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ntmp_cli.artifacts import Artifact, open_artifact
from ntmp_cli.artifacts.layout import PRIOR
from ntmp_cli.errors import ArtifactError


def prior_of(path: Path, tuples: Artifact) -> tuple[Artifact, float]:
    """A prior directory and its value, refused if it was estimated on other tuples."""
    prior = open_artifact(path, "prior")
    (about,) = prior.manifest.inputs
    if about["sha256"] != tuples.sha256:
        raise ArtifactError(
            f"{path}: was estimated on other tuples than {tuples.path}",
            hint="Run `ntmp estimate-prior` on the tuples that you train on, or give --prior.",
        )
    return prior, float(read_prior(prior)["prior"])


def read_prior(prior: Artifact) -> dict[str, Any]:
    """Everything that was found out."""
    found: dict[str, Any] = json.loads(prior.file(PRIOR).read_bytes())
    return found
