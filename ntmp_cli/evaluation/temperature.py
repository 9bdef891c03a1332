"""The temperature of a run by the counts of its held-out tuples (Eq. 72): calibrated probabilities without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.evaluation.calibration import Temperature, refuse_nan, temperature_by_counts
from ntmp_cli.learning.groups import rate_shift

if TYPE_CHECKING:
    from ntmp_cli.artifacts.summaries import RunSummary

# By name, as a run stores them; those of held-out tuples only where some were set aside.
Scores = Mapping[str, NDArray[Any]]

# With fewer tuples a fitted temperature is mostly noise.
FEWEST_TUPLES = 50


def tuple_shift(run: RunSummary) -> float:
    """logit π − logit ᾱ: by how much scores of a run exceed those at its tuples' rate (Eq. 7)."""
    return rate_shift(run.trained_prior, run.tuple_rate, run.task.as_task().instances)


def counts_temperature(run: RunSummary, scores: Scores, noise: float | None = None) -> Temperature:
    """T by the counts of the held-out tuples, wrong at the rate `noise`, by default the one of the training."""
    if "heldout_tuples" not in scores:
        return Temperature(math.nan, "no held-out data")
    tuple_scores = scores["heldout_tuples"].astype(np.float64)
    refuse_nan(tuple_scores)
    noise = run.count_noise if noise is None else noise
    sizes, counts = scores["heldout_sizes"], scores["heldout_counts"]
    return temperature_by_counts(tuple_scores, sizes, counts, tuple_shift(run), noise, run.spread or 0.0)


def usable_temperature(run: RunSummary, scores: Scores, noise: float | None = None) -> Temperature:
    """The same, but T = 1 where held-out counts do not determine it; `fit` says why."""
    if 0 < len(scores.get("heldout_sizes", ())) < FEWEST_TUPLES:
        return Temperature(1.0, "too few held-out tuples")
    temperature = counts_temperature(run, scores, noise)
    return temperature if temperature.fit == "fitted" else Temperature(1.0, temperature.fit)
