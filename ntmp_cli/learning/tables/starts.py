"""Where the count likelihood starts: a linear model that already points to the positive class."""

from __future__ import annotations

import numpy as np

from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.recalibration import looks_mirrored
from ntmp_cli.learning.discriminant import Moments, fit
from ntmp_cli.learning.tables.data import Standardisation, TableData
from ntmp_cli.learning.tables.linear import LinearModel, constant_model, logistic_fit, soft_label_fit

SOFT_START_PENALTY = 10.0
CONTRAST_PENALTY = 30.0


def start_model(data: TableData, x: Floats, standardise: Standardisation) -> LinearModel:
    """Soft labels where rates differ; else the pool against the tuples; else the moments within tuples.

    Tuples of one rate say nothing at first order: the gradient of the likelihood at a constant is zero. The direction
    from tuples to pool is that of the positive class where π exceeds the tuples' rate, else its opposite.
    """
    if not data.one_rate:
        return soft_label_fit(x, data.objective(), SOFT_START_PENALTY)
    if data.unlabeled is not None and len(data.unlabeled) and data.prior is not None:
        sign = float(np.sign(data.prior - data.rate))
        if sign:
            return _contrast(data, x, standardise(data.unlabeled), sign)
    return _moments(data, x)


def _contrast(data: TableData, x: Floats, pool: Floats, sign: float) -> LinearModel:
    """Logistic regression of the pool against the tuples, scaled to scores of variance 1."""
    both, is_pool = np.concatenate([x, pool]), np.repeat([0.0, 1.0], [len(x), len(pool)])
    contrast = logistic_fit(both, is_pool, CONTRAST_PENALTY)
    size = float(np.std(contrast.scores(both)))
    return LinearModel(sign * contrast.weight / max(size, 1e-12), constant_model(x.shape[1], data.rate).bias)


def _moments(data: TableData, x: Floats) -> LinearModel:
    """The closed form's direction, in the orientation in which the counts are more probable."""
    observed = data.observed
    moments = Moments(x.shape[1])
    moments.add_tuples(x.astype(np.float32), observed.sizes, observed.counts)
    try:
        direction = fit(moments, data.rate).weight
    except (ZeroDivisionError, ValueError):
        return constant_model(x.shape[1], data.rate)
    model = LinearModel(direction, 0.0)
    size = float(np.std(model.scores(x)))
    if size == 0:
        return constant_model(x.shape[1], data.rate)
    sign = -1.0 if looks_mirrored(model.scores(x), observed) else 1.0
    return LinearModel(sign * direction / size, constant_model(x.shape[1], data.rate).bias)
