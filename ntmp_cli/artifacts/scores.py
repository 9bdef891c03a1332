"""Scores of a run: on the test split, along training, and on held-out data (all without labels)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
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
    """All score arrays of a run; those of held-out data only if there are any."""
    with hdf5.read(artifact.file(SCORES), "scores") as file:
        scores = {name: hdf5.array(file, name) for name in file}
    if problem := next(_problems(scores), None):
        raise artifact.damaged(SCORES, problem)
    artifact.require_rows(SCORES, len(scores["test"]))
    return scores


def _problems(scores: dict[str, NDArray[Any]]) -> Iterator[str]:
    """Missing names, inconsistent shapes, and values that are NaN or infinite."""
    for name in ("test", "trace", "trace_epochs"):
        if name not in scores:
            yield f"there is no '{name}'"
    for name, values in scores.items():
        if name == "heldout_counts":  # refused where they are interpreted
            continue
        if values.ndim != (2 if name == "trace" else 1) or not np.isfinite(values).all():
            yield f"'{name}' has a wrong shape, or values that are not finite"
    if scores["trace"].shape != (len(scores["trace_epochs"]), len(scores["test"])):
        yield f"'trace' has shape {scores['trace'].shape}"
    if "pool_by_classifier" in scores and len(scores["pool_by_classifier"]) != len(scores.get("pool", ())):
        yield "'pool_by_classifier' does not fit 'pool'"
    if "heldout_tuples" in scores:
        for name in ("heldout_sizes", "heldout_counts", "heldout_unlabeled"):
            if name not in scores:
                yield f"there is no '{name}'"
        sizes = scores["heldout_sizes"]
        if sizes.dtype.kind not in "iu" or (sizes < 1).any() or sizes.sum() != len(scores["heldout_tuples"]):
            yield "'heldout_sizes' do not fit 'heldout_tuples'"
        folds = scores.get("heldout_folds")
        if folds is not None and (folds.dtype.kind not in "iu" or (folds < 0).any() or len(folds) != len(sizes)):
            yield "'heldout_folds' do not fit 'heldout_sizes'"
