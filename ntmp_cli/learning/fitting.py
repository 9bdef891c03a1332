"""Training instances for methods with a closed form."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ntmp_cli.learning.batches import TrainingData
from ntmp_cli.learning.method import FitData, HeldoutInputs
from ntmp_cli.learning.models import Scorer
from ntmp_cli.tuple_source import HeldoutData


def fit_data(data: TrainingData, scorer: Scorer, heldout: HeldoutData | None = None) -> FitData:
    """Chunks of training data, and held-out data, as the scorer's network sees them, flattened."""

    def inputs(raw: NDArray[np.generic]) -> NDArray[np.float32]:
        return np.ascontiguousarray(scorer.inputs(torch.from_numpy(raw)).flatten(1).numpy())

    def tuples() -> Iterator[tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]]:
        for chunk in data.tuple_chunks:
            raw, sizes, counts = chunk.load()
            yield inputs(raw), sizes, counts

    def unlabeled() -> Iterator[NDArray[np.float32]]:
        for chunk in data.unlabeled_chunks:
            yield inputs(chunk.load())

    def held_out() -> HeldoutInputs | None:
        if heldout is None:
            return None
        return HeldoutInputs(inputs(heldout.tuples), heldout.sizes, heldout.counts, inputs(heldout.unlabeled))

    return FitData(tuples, unlabeled, held_out)
