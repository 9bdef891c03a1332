"""One estimator on one set of scores."""

from __future__ import annotations

from ntmp_cli.prior.binned_sums import BinnedSums
from ntmp_cli.prior.estimator import ScoredTuples, priors


def value(name: str, data: ScoredTuples) -> float:
    return float(priors.get(name)(BinnedSums(data).sample())[0])
