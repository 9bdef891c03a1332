"""The temperature of a run by the counts of its held-out tuples (Eq. 72): calibrated probabilities without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import mean_nll
from ntmp_cli.evaluation.calibration import Temperature, refuse_nan, temperature_by_counts
from ntmp_cli.learning.groups import rate_shift

if TYPE_CHECKING:
    from ntmp_cli.artifacts.summaries import RunSummary

# By name, as a run stores them; those of held-out tuples only where some were set aside.
Scores = Mapping[str, NDArray[Any]]

# From fewer tuples a temperature is mostly chance.
FEWEST_TUPLES = 50
# Of log T, for a second difference of the likelihood.
STEP = 0.05


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


def log_temperature_error(run: RunSummary, scores: Scores, temperature: Temperature, noise: float) -> float:
    """Standard error of log T, by the curvature of the likelihood of the held-out counts; 0 where T was not fitted."""
    if temperature.fit != "fitted":
        return 0.0
    tuple_scores, shift = scores["heldout_tuples"].astype(np.float64), tuple_shift(run)
    observed = CountObservations(scores["heldout_sizes"], scores["heldout_counts"], count_noise(noise))
    steps = np.exp(np.array([-STEP, 0.0, STEP])) / temperature.value
    below, minimum, above = mean_nll(steps[:, None] * tuple_scores - shift, observed).tolist()
    curvature = (above - 2 * minimum + below) / STEP**2
    return float(1 / math.sqrt(len(scores["heldout_sizes"]) * curvature)) if curvature > 0 else math.inf
