"""The temperature that a run's held-out counts ask for: probabilities made honest without any label."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.scores import read_all_scores
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import mean_nll
from ntmp_cli.evaluation.calibration import Temperature, temperature_by_counts
from ntmp_cli.evaluation.metrics import refuse_nan
from ntmp_cli.learning.groups import rate_shift

# From fewer tuples a temperature is mostly chance.
FEWEST_TUPLES = 50
# Of log T, for a second difference of the likelihood.
STEP = 0.05


def tuple_shift(run: Artifact) -> float:
    """logit π − logit ᾱ: by how much scores of a run exceed those at the rate of its tuples (SPEC section 4)."""
    facts = run.summary
    # Runs of earlier versions know the mean rate only, which differs where tuples differ in length.
    return rate_shift(run.manifest.config["prior"], facts.get("tuple_rate", facts["mean_rate"]))


def counts_temperature(run: Artifact, scores: dict[str, NDArray[Any]], noise: float | None = None) -> Temperature:
    """T by the counts of the run's held-out tuples (SPEC section 8), wrong at the rate that the run was told of."""
    if "heldout_tuples" not in scores:
        return Temperature(math.nan, "no held-out data")
    inside = scores["heldout_tuples"].astype(np.float64)
    refuse_nan(inside)
    noise = run.manifest.config.get("count_noise", 0.0) if noise is None else noise
    return temperature_by_counts(inside, scores["heldout_sizes"], scores["heldout_counts"], tuple_shift(run), noise)


def usable_temperature(run: Artifact, noise: float | None = None) -> Temperature:
    """The same, but T = 1 where held-out counts cannot tell; `fit` says why."""
    scores = read_all_scores(run)
    tuples = len(scores.get("heldout_sizes", ()))
    if 0 < tuples < FEWEST_TUPLES:
        return Temperature(1.0, "too few held-out tuples")
    found = counts_temperature(run, scores, noise)
    return found if found.fit == "fitted" else Temperature(1.0, found.fit)


def log_temperature_error(run: Artifact, found: Temperature, noise: float) -> float:
    """Standard error of log T, by the curvature of the likelihood of the held-out counts; 0 where T was not fitted."""
    if found.fit != "fitted":
        return 0.0
    scores = read_all_scores(run)
    inside, shift = scores["heldout_tuples"].astype(np.float64), tuple_shift(run)
    observed = CountObservations(scores["heldout_sizes"], scores["heldout_counts"], count_noise(noise))
    steps = np.exp(np.array([-STEP, 0.0, STEP])) / found.value
    below, there, above = mean_nll(steps[:, None] * inside - shift, observed).tolist()
    curvature = (above - 2 * there + below) / STEP**2
    return float(1 / math.sqrt(len(scores["heldout_sizes"]) * curvature)) if curvature > 0 else math.inf
