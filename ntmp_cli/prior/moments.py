"""The class prior from first and second moments of scores (Eq. 48)."""

from __future__ import annotations

import numpy as np

from ntmp_cli.prior.estimator import Floats, Sample, priors

# A difference of class means below this is rounding.
SMALLEST_DELTA = 1e-7


@priors.register("moments")
def moments(sample: Sample) -> Floats:
    """Within-tuple covariance and means of sigmoid scores; needs no positive proxy.

    With h = σ(score), two members of a tuple of rate α have Cov(h_i, h_j) = −δ² α(1−α)/(n−1) (Eq. 5),
    where δ = E₊h − E₋h, and E_T h = E₋h + αδ. The strata's estimates of δ² are combined by inverse variance, which goes
    with 1/(pairs·c²), c = α(1−α)/(n−1); the scores are taken as oriented (δ > 0). Then π = (E_U h − E₋h)/δ.
    """
    known = sample.strata[:, 1] >= 0
    n, m = sample.strata[known].T.astype(np.float64)
    tuples, sums, squares, squares_within = np.moveaxis(sample.moments[:, known], -1, 0)
    c = np.where(n > 1, (m / n) * (1 - m / n) / np.maximum(n - 1, 1), 0.0)
    usable = (c > 0) & (tuples >= 2)
    several = np.maximum(tuples, 2)
    # Σ_{i≠j} (h_i−μ)(h_j−μ) = (Σh − nμ)² − Σ(h−μ)², per tuple. The factor corrects for μ being estimated
    # from the same tuples; without it every stratum adds its variance, and many small strata bias δ.
    between = squares - sums**2 / several
    within = squares_within - sums**2 / (n * several)
    products = (1 + (n - 1) / (n * (several - 1))) * between - within
    information = np.where(usable, c * tuples * n * (n - 1) * c, 0.0).sum(axis=1)
    signal = -np.where(usable, c * products, 0.0).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        square = signal / information
        delta = np.sqrt(np.where(square > SMALLEST_DELTA**2, square, np.nan))
        instances = tuples @ n
        negative = sums.sum(axis=1) / instances - delta * (tuples @ m) / instances
        mean = sample.unlabeled @ sample.sigmoids / sample.unlabeled.sum(axis=1)
        prior: Floats = (mean - negative) / delta
    return prior
