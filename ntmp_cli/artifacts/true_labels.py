"""True labels for training: for an oracle, and for no other method.

A test exempts only this module, and checks that no other method uses its targets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.manifest import Artifact
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.errors import UsageError

if TYPE_CHECKING:
    from ntmp_cli.learning.method import Method


def true_targets(tuples: Artifact, method: Method) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """True labels of the training instances of tuples and of U, in stored order."""
    if not method.is_oracle:
        raise PermissionError(f"{type(method).__name__} is no oracle, so it must not see labels")
    names = "oracle/train-tuples.h5", "oracle/train-unlabeled.h5"
    present = {entry.path for entry in tuples.manifest.files}
    if not present.issuperset(names):
        name = method.config.method
        raise UsageError(
            f"{tuples.path}: has no true labels of its training instances, which --method {name} learns from",
            hint="It is an upper bound for simulated tuples; use --method count on real ones.",
        )
    inside, outside = (read_labels(tuples, name).astype(np.float32) for name in names)
    return inside, outside
