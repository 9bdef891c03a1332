"""Where the count likelihood starts: a linear model that already points to the positive class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.learning.discriminant import Moments, fit
from ntmp_cli.learning.tables.data import Standardisation, TableData
from ntmp_cli.learning.tables.linear import LinearModel, constant_model, logistic_fit, soft_label_fit

SOFT_START_PENALTY = 10.0
CONTRAST_PENALTY = 30.0


def start_model(data: TableData, x: Floats, standardise: Standardisation) -> LinearModel:
    """Soft labels where rates differ; else the direction and the sign for which there is most evidence.

    Tuples of one rate say nothing at first order: the gradient of the likelihood at a constant is zero. Directions are
    that of the pool against the tuples and that of the moments within tuples. Two kinds of evidence for a sign are
    added up, in nats: the likelihood of the counts (none where n = 2m), and that of the pool, whose mean score moves
    from that of the tuples as π does from their rate.
    """
    if not data.one_rate:
        return soft_label_fit(x, data.objective(), SOFT_START_PENALTY)
    pool = None if data.unlabeled is None else standardise(data.unlabeled)
    best, least = constant_model(x.shape[1], data.rate), np.inf
    for direction in _directions(data, x, pool):
        z = x @ direction
        first_order = 0.0 if pool is None else _first_order(data, z, pool @ direction)
        for sign in (1.0, -1.0):
            line = recalibrate(sign * z, data.observed)
            against = first_order**2 / 2 if sign * first_order < 0 else 0.0
            loss = len(data.observed) * line.nll + against
            if loss < least:
                best, least = LinearModel(sign * line.slope * direction, line.intercept), loss
    return best


def _directions(data: TableData, x: Floats, pool: Floats | None) -> Iterator[Floats]:
    """Weights whose scores have variance 1."""
    candidates = [_moments(data, x), soft_label_fit(x, data.objective(), SOFT_START_PENALTY).weight]
    if pool is not None:
        is_pool = np.repeat([0.0, 1.0], [len(x), len(pool)])
        candidates.append(logistic_fit(np.concatenate([x, pool]), is_pool, CONTRAST_PENALTY).weight)
    for weight in candidates:
        spread = float(np.std(x @ weight))
        if np.isfinite(spread) and spread > 0:
            yield weight / spread


def _moments(data: TableData, x: Floats) -> Floats:
    """The direction of the closed form; zeros where the tuples do not identify it."""
    moments = Moments(x.shape[1])
    moments.add_tuples(x.astype(np.float32), data.observed.sizes, data.observed.counts)
    try:
        return np.asarray(fit(moments, data.rate).weight, dtype=np.float64)
    except (ZeroDivisionError, ValueError):
        return np.zeros(x.shape[1])


def _first_order(data: TableData, z: Floats, pool_scores: Floats) -> float:
    """Mean score of the pool less that of the tuples, in standard errors; its sign is that of π − ᾱ."""
    if data.prior is None or len(pool_scores) < 2:
        return 0.0
    error = np.sqrt(z.var() / len(z) + pool_scores.var() / len(pool_scores))
    difference = float(pool_scores.mean() - z.mean()) / max(float(error), 1e-12)
    return difference * float(np.sign(data.prior - data.rate))
