"""An intercept with which the number of predicted positives matches counts and prior. No labels, no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ntmp_cli.learning.method import HeldoutScores


def share_intercept(scores: HeldoutScores, prior: float) -> float:
    """b with #{z + b > 0} = Σ m_t + π·|U| over instances of tuples and U together.

    Tuples and U are pooled because the pooled share has the least relative error. With this intercept there are as many
    false positives as false negatives.
    """
    both = np.concatenate([scores.tuple_scores, scores.unlabeled_scores])
    share = (float(scores.counts.sum()) + prior * len(scores.unlabeled_scores)) / len(both)
    return -float(np.quantile(both, 1 - share))
