"""The class prior of a pool by cross-fitted scores, with an interval that is wide if the scores are uninformative.

With r = p₊/p₋ of an instance, the likelihood of the pool has its maximum where G(π) = mean (r−1)/(1 + π(r−1)) is 0, and
at the true prior G has mean 0. r is fitted to the counts of the tuples. A prior is inside the interval if G there is
within its standard error, that of r included (Eq. 53). Uninformative scores give [0, 1]; an interval of the form
estimate ± error, or a bootstrap of a ratio, would be too short (Fieller 1954).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

from ntmp_cli.counting.calibrated_fit import by_block, calibrated_fit
from ntmp_cli.counting.laws import Floats
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.prior.estimator import ScoredTuples

PRIORS = np.linspace(0.0, 1.0, 501)
SMALLEST = 1e-12


def prior_interval(folds: Sequence[ScoredTuples], confidence: float = 0.95) -> tuple[float, float]:
    """Priors of the pool that the scores do not contradict, given their orientation; each fold has its own scorer."""
    scores = [_PoolScore(fold) for fold in folds]
    pool = np.array([len(fold.unlabeled) for fold in folds], dtype=np.float64)
    shares = pool / pool.sum()
    means, variances = (np.stack(rows) for rows in zip(*(score.at(PRIORS) for score in scores), strict=True))
    statistics = (shares @ means) / np.sqrt(np.maximum(shares**2 @ variances, SMALLEST**2))
    # Of what the variances are made of: blocks where there are some.
    independent = sum(len(fold.sizes) if fold.blocks is None else len(np.unique(fold.blocks)) for fold in folds)
    width = float(stdtrit(max(independent - 3 * len(folds), 1), (1 + confidence) / 2))
    outside = np.abs(statistics) > width
    # Far from the estimate G depends on a few large ratios, and its error is not normal: the interval ends
    # where a prior is outside for the first time.
    centre = int(np.argmin(np.abs(shares @ means)))
    below, above = PRIORS[:centre][outside[:centre]], PRIORS[centre:][outside[centre:]]
    return float(below.max(initial=0.0)), float(above.min(initial=1.0))


class _PoolScore:
    """G(π) of one scorer (Eq. 47), and its variance (Eq. 53)."""

    def __init__(self, scored: ScoredTuples) -> None:
        observed, rate = scored.observed, scored.rate
        fit = calibrated_fit(scored.scores, CountObjective(observed, scored.spread))
        basis = np.column_stack([scored.unlabeled, np.ones_like(scored.unlabeled)])
        p, slope = fit.probabilities(basis)
        self._ratio = np.clip(p / np.maximum(1 - p, SMALLEST) * (1 - rate) / rate, SMALLEST, 1 / SMALLEST)
        # ∂ log r by θ and by the logit of the tuples' rate, whose error goes with that of θ.
        by_score = slope / np.maximum(p * (1 - p), SMALLEST)
        self._by_parameter = np.column_stack([by_score[:, None] * basis, -np.ones(len(basis))])
        by_rate = (observed.likely - rate * observed.sizes) / (observed.sizes.mean() * rate * (1 - rate))
        influence = by_block(np.column_stack([fit.influence, by_rate]), scored.blocks)
        independent, width = influence.shape
        self._covariance: Floats = influence.T @ influence / (independent * max(independent - width, 1))

    def at(self, priors: Floats) -> tuple[Floats, Floats]:
        """G and its variance at every prior."""
        means, variances = [], []
        for prior in priors:
            weight = 1 + prior * (self._ratio - 1)
            terms = (self._ratio - 1) / weight
            by_parameter = (self._ratio / weight**2) @ self._by_parameter / len(terms)
            means.append(terms.mean())
            variances.append(terms.var() / len(terms) + by_parameter @ self._covariance @ by_parameter)
        return np.array(means), np.array(variances)
