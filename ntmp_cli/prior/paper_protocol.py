"""The paper's estimate of the class prior, exactly as published, from scores of a positive proxy against U.

The score model separates a positive proxy (the highest-scored members of tuples) from U; both are scored where the
model was not trained: on a validation split, or fold by fold. From these scores follow the bound max_τ {TPR − FPR}₊
with Clopper–Pearson bands over 200 thresholds, and the mixture proportion: the greatest ratio of the smoothed tails of
U and of the proxy (Eqs. 51 and 52). The interval resamples the validation scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ntmp_cli.prior.estimate import Estimate, with_percentiles
from ntmp_cli.prior.estimator import Floats
from ntmp_cli.prior.tails import NeymanPearson, greatest_tail_ratio, neyman_pearson_of

BINS = 1024
# At least this many unlabeled instances, or this share of them, validate the score model.
FEWEST_VALIDATING, LEAST_SHARE = 5000, 0.1
FOLDS = 10


@dataclass(frozen=True)
class ProxyScores:
    """Scores of proxy and U by models that were not trained on them."""

    proxy: Floats
    unlabeled: Floats
    folds: int | None = None
    """Number of cross-fitted folds; None if a validation split was used."""


@dataclass(frozen=True)
class PaperEstimate:
    """The prior, the bound as the paper interprets it, and the numbers they were computed from."""

    estimate: Estimate
    bound: NeymanPearson
    scores: ProxyScores


def validation_size(unlabeled: int) -> int | None:
    """5,000 instances or a tenth of U, whichever is larger; None where less than half of U would be left to train."""
    size = max(FEWEST_VALIDATING, round(LEAST_SHARE * unlabeled))
    return size if 2 * size <= unlabeled else None


def paper_estimate(
    scores: ProxyScores, rng: np.random.Generator, resamples: int = 1000, confidence: float = 0.95
) -> PaperEstimate:
    """The protocol's numbers, with a percentile interval by bootstrap of the validation scores."""
    everything = np.concatenate([scores.proxy, scores.unlabeled])
    edges = np.unique(np.quantile(everything, np.linspace(0, 1, BINS + 1)))[1:-1]
    place = np.searchsorted(edges, everything, side="right")
    held = np.bincount(place, minlength=len(edges) + 1)
    kept = np.cumsum(held > 0) - 1  # ties can leave bins empty
    place, bins = kept[place], int((held > 0).sum())
    centres = np.bincount(place, everything, minlength=bins) / held[held > 0]
    proxy, pool = (
        np.bincount(part, minlength=bins).astype(np.float64)
        for part in (place[: len(scores.proxy)], place[len(scores.proxy) :])
    )
    value = greatest_tail_ratio(centres, proxy[None], pool[None], proxy, pool)[0]
    resampled_proxy, resampled_pool = (
        rng.multinomial(int(row.sum()), row / row.sum(), size=resamples).astype(np.float64) for row in (proxy, pool)
    )
    values = greatest_tail_ratio(centres, resampled_proxy, resampled_pool, proxy, pool)
    bound = neyman_pearson_of(proxy, pool, confidence)
    return PaperEstimate(with_percentiles(float(value), values, confidence), bound, scores)
