"""The start of the count likelihood: a linear model that already points to the positive class."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.recalibration import Recalibration, recalibrate
from ntmp_cli.learning.discriminant import fit
from ntmp_cli.learning.moments import Moments
from ntmp_cli.learning.tables.data import Standardisation, TableData
from ntmp_cli.learning.tables.linear import LinearModel, constant_model, count_fit, logistic_fit, soft_label_fit

SOFT_START_PENALTY = 10.0
CONTRAST_PENALTY = 30.0
# Penalty of the fits that decide the orientation.
FIT_PENALTY = 1.0
# Starting slopes of the search for a line; log-odds beyond BOUND are certain.
SLOPES = (0.5, 1.0, 2.0, 4.0)
# Separable classes have no finite slope; from a very steep one the penalised fit may flip.
LOG_STEEPEST = float(np.log(8.0))
BOUND = 50.0


def start_model(data: TableData, x: Floats, standardise: Standardisation) -> LinearModel:
    """Soft labels if rates differ; otherwise a fit to the counts in the orientation with most evidence.

    Tuples of one rate carry no first-order information: the gradient of the likelihood at a constant is zero. Candidate
    directions are the pool minus the tuples, the moments within tuples, and soft labels. The likelihood is fitted from
    the best direction and from the best one of the opposite orientation; the better fit is kept. Two kinds of evidence
    are added, in nats (Eq. 40): the likelihood of the counts (which is symmetric if n = 2m), and the pool, whose mean
    score differs from that of the tuples in the direction in which π differs from their rate.
    """
    if not data.one_rate:
        return soft_label_fit(x, data.objective(), SOFT_START_PENALTY)
    pool = None if data.unlabeled is None else standardise(data.unlabeled)

    def loss(model: LinearModel) -> float:
        z = model.scores(x)
        first_order = 0.0 if pool is None else _first_order(data, z, model.scores(pool))
        against = first_order**2 / 2 if first_order < 0 else 0.0
        if data.trusts_prior and first_order < 0:
            against = np.inf
        value, _ = data.objective().value_and_gradient(z)
        return against - value

    starts = sorted(_lines(data, x, pool), key=loss)
    if not starts:
        return constant_model(x.shape[1], data.rate)
    best = starts[0]
    other_side = [start for start in starts if (x @ start.weight) @ (x @ best.weight) < 0][:1]
    fits = [count_fit(x, data.objective(), FIT_PENALTY, start) for start in (best, *other_side)]
    return min(fits, key=loss)


def _lines(data: TableData, x: Floats, pool: Floats | None) -> Iterator[LinearModel]:
    """Every direction with both signs, scaled to the log-odds under which the counts are most probable."""
    for direction in _directions(data, x, pool):
        for sign in (1.0, -1.0):
            line = _likeliest_line(sign * (x @ direction), data)
            yield LinearModel(sign * line.slope * direction, line.intercept)


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
    """The direction of the closed form (Eq. 34); zeros if the tuples do not identify it."""
    moments = Moments(x.shape[1])
    moments.add_tuples(x.astype(np.float32), data.observed.sizes, data.observed.counts)
    try:
        return np.asarray(fit(moments, data.rate).weight, dtype=np.float64)
    except (ZeroDivisionError, ValueError):
        return np.zeros(x.shape[1])


def _likeliest_line(z: Floats, data: TableData) -> Recalibration:
    """The best of several starts: the likelihood of tuples of one rate is flat where the slope is small."""
    lines = []
    for slope in SLOPES:
        # The search begins where scores have the rate of the tuples on average.
        bound = BOUND + slope * float(np.abs(z).max())
        bias = brentq(lambda b, a=slope: float(expit(a * z + b).mean()) - data.rate, -bound, bound)
        lines.append(recalibrate(z, data.observed, LOG_STEEPEST, start=(float(np.log(slope)), float(bias))))
    return min(lines, key=lambda line: line.nll)


def _first_order(data: TableData, z: Floats, pool_scores: Floats) -> float:
    """Mean score of the pool minus that of the tuples, in standard errors (as Eq. 38); its sign is that of π − ᾱ.

    If neither the counts nor a prior determine the orientation, all folds assume that π is above the rate.
    """
    half = data.observed.symmetric
    if (data.prior is None and not half) or len(pool_scores) < 2:
        return 0.0
    side = 1.0 if data.prior is None else float(np.sign(data.prior - data.rate))
    error = np.sqrt(z.var() / len(z) + pool_scores.var() / len(pool_scores))
    return float(pool_scores.mean() - z.mean()) / max(float(error), 1e-12) * side
