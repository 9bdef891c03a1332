"""Scores of a run: on the test split, along training, and on held-out data (all without labels)."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from ntmp_cli.artifacts import hdf5
from ntmp_cli.artifacts.layout import SCORES
from ntmp_cli.artifacts.manifest import Artifact
from ntmp_cli.artifacts.publish import Staging


def write_scores(staging: Staging, arrays: dict[str, NDArray[Any]]) -> None:
    with hdf5.create(staging.file(SCORES), "scores") as file:
        for name, values in arrays.items():
            file.put(name, values)
    staging.add(SCORES, rows=len(next(iter(arrays.values()))))


def read_scores(artifact: Artifact) -> dict[str, NDArray[Any]]:
    """Every array of a run's scores; those of held-out data only where some were held out."""
    with hdf5.read(artifact.file(SCORES), "scores") as file:
        return {name: hdf5.array(file, name) for name in file}
