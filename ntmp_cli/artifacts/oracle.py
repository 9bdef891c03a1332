"""True labels and true counts, in separate files.

Only evaluation and auditing may import this module; a test checks that training code does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import hdf5
from ntmp_cli.artifacts.layout import TEST_LABELS
from ntmp_cli.artifacts.manifest import Artifact
from ntmp_cli.artifacts.publish import Staging
from ntmp_cli.artifacts.summaries import TuplesSummary


@dataclass
class OracleWriter:
    """Appends arrays block by block, so that memory stays bounded."""

    file: hdf5.Writer

    def append(self, **columns: NDArray[Any]) -> None:
        for name, values in columns.items():
            self.file.append(name, values)


@contextmanager
def writing_oracle(staging: Staging, name: str) -> Iterator[OracleWriter]:
    with hdf5.create(staging.file(name), "oracle") as file:
        yield OracleWriter(file)
    staging.add(name)


def read_oracle(artifact: Artifact, name: str) -> dict[str, NDArray[Any]]:
    with hdf5.read(artifact.file(name), "oracle") as file:
        return {key: hdf5.array(file, key) for key in file}


def read_labels(artifact: Artifact, name: str = TEST_LABELS) -> NDArray[np.bool_]:
    """Labels of the test split or of another file, from a tuples directory or from a run that carries a copy."""
    labels = read_oracle(artifact, name).get("labels")
    if labels is None or labels.ndim != 1 or not np.isin(labels, (0, 1)).all():
        raise artifact.damaged(name, "labels are not one 0 or 1 per instance")
    if isinstance(artifact.summary, TuplesSummary) and name == TEST_LABELS and len(labels) != artifact.summary.test:
        raise artifact.damaged(name, f"{len(labels)} labels of {artifact.summary.test} test instances")
    return labels.astype(bool)
