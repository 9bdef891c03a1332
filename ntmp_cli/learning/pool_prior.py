"""The class prior of the pool for trainings without a given prior."""

from __future__ import annotations

import logging

import numpy as np

from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.groups import usable_rate
from ntmp_cli.learning.results import PoolPrior
from ntmp_cli.prior.estimate import DEFAULT, estimate_priors
from ntmp_cli.prior.estimator import ScoredTuples

log = logging.getLogger(__name__)

# An interval wider than this is uninformative.
WIDEST = 0.5
EDGE = 0.001


def prior_of_pool(scored: ScoredTuples, rng: np.random.Generator, assume: str | None = None) -> PoolPrior:
    """Estimate by the scores of the pool; the rate of the tuples if there is no pool or the estimate is uninformative.

    Scores are at the rate of the tuples; those of the tuples are cross-fitted. `assume` states on which side of ½ the
    prior is, which is needed if all tuples are half positive.
    """
    rate = PoolPrior(usable_rate(scored.rate, int(scored.sizes.sum())), "tuples")
    if not len(scored.unlabeled):
        return rate
    try:
        below_half = None if assume is None else assume == "prior<0.5"
        result = estimate_priors([scored], rng, resamples=0, below_half=below_half)
    except NotIdentifiableError as error:
        log.warning("the prior of the pool is unknown; the rate of the tuples is used instead: %s", error.message)
        return rate
    estimate = result.estimates[DEFAULT]
    wide = estimate.ci is None or estimate.ci[1] - estimate.ci[0] > WIDEST
    if estimate.value is None or wide or not result.identified:
        log.warning("the prior of the pool cannot be estimated from these tuples; their rate is used instead")
        return rate
    return PoolPrior(min(max(estimate.value, EDGE), 1 - EDGE), "estimated", estimate.ci)
