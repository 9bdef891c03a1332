"""Feature importance without labels: the loss of count likelihood when a feature is permuted (Eq. 66)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_log_prob
from ntmp_cli.counting.recalibration import recalibrate

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class JudgedTuples:
    """Tuples, and a score of instances that was not trained on them."""

    score: Callable[[NDArray[Any]], Floats]
    x: NDArray[Any]
    observed: CountObservations


class FeatureGroup(NamedTuple):
    """Columns that belong together, such as the categories of one column of a table."""

    name: str
    columns: slice


class Importance(NamedTuple):
    """By how much the mean −log P(count) of a tuple rises when a feature is permuted."""

    name: str
    loss: float
    ci: tuple[float, float]


def permutation_importance(
    folds: Sequence[JudgedTuples],
    features: Sequence[FeatureGroup],
    rng: np.random.Generator,
    repeats: int,
    confidence: float,
) -> tuple[float, list[Importance]]:
    """The mean −log P(count) without permutation, and the importance of every feature, largest first.

    A line fitted to the counts turns scores into log-odds at the rate of the tuples. The interval is a normal interval
    over tuples; all features use the same tuples.
    """
    wide = float(ndtri((1 + confidence) / 2))
    rises: dict[str, list[Floats]] = {group.name: [] for group in features}
    losses = []
    for fold in folds:
        line = recalibrate(fold.score(fold.x), fold.observed)

        def loss(x: NDArray[Any], fold: JudgedTuples = fold, line: Any = line) -> Floats:
            return -count_log_prob(line.slope * fold.score(x) + line.intercept, fold.observed)

        plain = loss(fold.x)
        losses.append(plain)
        for group in features:
            rise = np.zeros(len(fold.observed))
            for _ in range(repeats):
                shuffled = fold.x.copy()
                shuffled[:, group.columns] = fold.x[rng.permutation(len(fold.x)), group.columns]
                rise += (loss(shuffled) - plain) / repeats
            rises[group.name].append(rise)
    rows = []
    for name, values in rises.items():
        by_tuple = np.concatenate(values)
        half = wide * float(by_tuple.std(ddof=1)) / np.sqrt(len(by_tuple)) if len(by_tuple) > 1 else np.inf
        mean = float(by_tuple.mean())
        rows.append(Importance(name, mean, (mean - half, mean + half)))
    return float(np.concatenate(losses).mean()), sorted(rows, key=lambda row: -row.loss)
