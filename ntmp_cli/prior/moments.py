"""The class prior from first and second moments of scores (SPEC section 5)."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.prior.estimator import ScoredTuples, priors

# A difference of class means below this is rounding.
SMALLEST_DELTA = 1e-7


@priors.register("moments")
def moments(data: ScoredTuples) -> float:
    """Within-tuple covariance and means of sigmoid scores; needs no positive proxy.

    With h = σ(score), two members of a tuple of rate α have Cov(h_i, h_j) = −δ² α(1−α)/(n−1), where
    δ = E₊h − E₋h, and E_T h = E₋h + αδ. The strata's covariances are pooled by their number of pairs,
    which gives δ; the scores are taken as oriented (δ > 0). Then π = (E_U h − E₋h)/δ.
    """
    # Covariances do not depend on the origin; near the mean they lose no digits.
    origin = float(expit(data.scores).mean())
    h, owner = expit(data.scores) - origin, np.repeat(np.arange(len(data.sizes)), data.sizes)
    rates = data.counts / data.sizes
    sums = np.bincount(owner, h)
    squares = np.bincount(owner, h**2)
    products = expected = 0.0
    for n, m in sorted(set(zip(data.sizes.tolist(), data.counts.tolist(), strict=True))):
        if n < 2 or m in (0, n):
            continue
        at = (data.sizes == n) & (data.counts == m)
        tuples = int(at.sum())
        if tuples < 2:
            continue
        mean = sums[at].sum() / (n * tuples)
        # Σ_{i≠j} (h_i−μ)(h_j−μ) = (Σh − nμ)² − Σ(h−μ)², per tuple. The factor makes up for μ being estimated
        # from the same tuples; without it every stratum adds its variance, and many small strata bias δ.
        spread = squares[at] - 2 * mean * sums[at] + n * mean**2
        unbiased = 1 + (n - 1) / (n * (tuples - 1))
        products += float((unbiased * (sums[at] - n * mean) ** 2 - spread).sum())
        expected += tuples * n * (m / n) * (1 - m / n)
    if expected == 0 or -products / expected < SMALLEST_DELTA**2:
        raise NotIdentifiableError(
            "the scores of a tuple's members are not negatively correlated, so they carry no class information",
            hint="Use tuples with 0 < m < n and a better score model.",
        )
    delta = float(np.sqrt(-products / expected))
    negative = float((h - rates[owner] * delta).mean())
    return float((expit(data.unlabeled).mean() - origin - negative) / delta)
