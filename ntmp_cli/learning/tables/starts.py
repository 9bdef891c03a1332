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
    """Soft labels where rates differ; else the direction and the sign under which the counts are most probable.

    Tuples of one rate say nothing at first order: the gradient of the likelihood at a constant is zero. Directions are
    that of the pool against the tuples and that of the moments within tuples. Where n = 2m the counts have no sign: the
    pool has, its mean score moves from that of the tuples as π does from their rate.
    """
    if not data.one_rate:
        return soft_label_fit(x, data.objective(), SOFT_START_PENALTY)
    pool = None if data.unlabeled is None else standardise(data.unlabeled)
    best, least = constant_model(x.shape[1], data.rate), np.inf
    for direction in _directions(data, x, pool):
        z = x @ direction
        for sign in _signs(data, z, None if pool is None else pool @ direction):
            line = recalibrate(sign * z, data.observed)
            if line.nll < least:
                best, least = LinearModel(sign * line.slope * direction, line.intercept), line.nll
    return best


def _directions(data: TableData, x: Floats, pool: Floats | None) -> Iterator[Floats]:
    """Weights whose scores have variance 1."""
    candidates = [_moments(data, x)]
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


def _signs(data: TableData, z: Floats, pool_scores: Floats | None) -> tuple[float, ...]:
    """The signs that a direction may have."""
    if not (data.observed.sizes == 2 * data.observed.counts).all():
        return (1.0, -1.0)
    if pool_scores is None or data.prior is None:
        return (1.0,)
    agrees = (pool_scores.mean() - z.mean()) * (data.prior - data.rate) >= 0
    return (1.0,) if agrees else (-1.0,)
