"""Strata of the unbiased risk for recorded counts that may be off by one.

The stratum of a wrong count has a wrong rate. If the noise rate is known, the instances of a stratum have the rate
E[true count | recorded count]/n, and the risk is unbiased again (`ExpectedCounts`). If it is unknown, the group means
reveal the noise (`count_scatter`): the mean of any function h of an instance is linear in the positive rate,
E₋ + θ(E₊ − E₋). With exact counts the means of all strata and of U lie on one line, up to sampling error. With noise
they lie on one line in the corrected rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ntmp_cli.learning.discriminant import Discriminant, fit
from ntmp_cli.learning.method import FitData
from ntmp_cli.learning.moments import Moments
from ntmp_cli.theory.recorded_counts import expected_counts
from ntmp_cli.theory.strata import Stratum
from ntmp_cli.tuple_source import Counts, Task

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Grid of noise rates.
RATES = np.linspace(0.0, 0.5, 51)
# Counts are noisy if noise explains the group means better than exact counts, by this much χ²: p = 0.001.
CLEAR_GAIN = 10.83
# If counts scatter evenly about one count, as noise makes them, pooling loses almost nothing: weak evidence is enough.
LIKELY_GAIN = 1.0
# A mean needs a few tuples before its sampling error is known.
FEWEST_TUPLES = 20


@dataclass(frozen=True)
class ExpectedCounts:
    """E[true count] of a tuple, given its length and recorded count; one that is not in the table is taken as it is."""

    by_stratum: Mapping[tuple[int, float], float]

    @classmethod
    def of(cls, task: Task, noise: float) -> ExpectedCounts:
        """Of the training tuples at a rate of noise."""
        return cls(expected_counts([Stratum(*stratum) for stratum in task.strata], noise))

    def of_stratum(self, n: int, m: float) -> float:
        return self.by_stratum.get((n, m), float(m))

    def __call__(self, sizes: Integers, counts: Counts) -> Floats:
        kinds, kind = np.unique(np.stack([sizes, counts]), axis=1, return_inverse=True)
        values = [self.of_stratum(n, m) for n, m in kinds.T.tolist()]
        return np.array(values)[kind.reshape(-1)]


class CountScatter(NamedTuple):
    """The least rate of noise that explains the group means, and by how much of χ² better than exact counts do."""

    rate: float
    gain: float
    around_one_count: bool = False
    """Whether the counts scatter as noise about one count makes them."""

    @property
    def is_noisy(self) -> bool:
        return self.gain > (LIKELY_GAIN if self.around_one_count else CLEAR_GAIN)


class _Means(NamedTuple):
    """Means of a score in every stratum, in the order of the task, and last in U, with their variances."""

    means: Floats
    variances: Floats


def count_scatter(data: FitData, task: Task, prior: float) -> CountScatter | None:
    """Whether the group means contradict exact counts.

    None if they cannot decide it: one stratum, too few tuples, or strata of known noise.

    The score is the closed form of one half of the tuples and of U, and the means are those of the other half, and vice
    versa, so that no score is tested on the data it was fitted to.
    """
    if (
        task.expects
        or len(task.strata) < 2
        or sum(k for *_, k in task.strata) < 2 * FEWEST_TUPLES
        or task.unlabeled < 4
    ):
        return None
    halves = [_half(data, 0), _half(data, 1)]
    try:
        scorers = [_closed_form(half, prior) for half in halves]
    except (ZeroDivisionError, ValueError):  # the means of these groups do not identify the classes
        return None
    folds = [_group_means(half, scorer, task) for half, scorer in zip(halves, reversed(scorers), strict=True)]
    misfits = np.array([sum(_misfit(fold, _rates(task, prior, rate)) for fold in folds) for rate in RATES])
    # Of rates that explain the means about equally well, the least.
    least = int(np.argmax(misfits <= misfits.min() + 1))
    return CountScatter(float(RATES[least]), float(misfits[0] - misfits.min()), scatter_around_one_count(task))


def scatter_around_one_count(task: Task) -> bool:
    """Whether, of every length, most tuples have one count and the others are one off, to both sides about as often."""
    by_length: dict[int, dict[float, int]] = {}
    for n, m, tuples in task.strata:
        by_length.setdefault(n, {})[m] = tuples
    return all(_around_mode(n, tuples) for n, tuples in by_length.items())


def _around_mode(n: int, tuples: Mapping[float, int]) -> bool:
    mode, most = max(tuples.items(), key=lambda item: item[1])
    beside = [tuples.get(m, 0) for m in (mode - 1, mode + 1) if 0 <= m <= n]
    near = most + sum(beside) == sum(tuples.values())
    # Three standard deviations of an even split.
    even = len(beside) < 2 or abs(beside[0] - beside[1]) <= 3 * np.sqrt(sum(beside))
    return bool(near and even and 2 * most > sum(tuples.values()))


def _rates(task: Task, prior: float, noise: float) -> Floats:
    """θ of every stratum at this rate of noise, and of U."""
    expected = expected_counts([Stratum(*stratum) for stratum in task.strata], noise)
    return np.array([*(expected[n, m] / n for n, m, _ in task.strata), prior])


def _misfit(fold: _Means, rates: Floats) -> float:
    """χ² of the means about the line in the rates that fits them best."""
    known = np.isfinite(fold.variances)
    means, rates, weights = fold.means[known], rates[known], 1 / fold.variances[known]
    total = weights.sum()
    means, rates = means - weights @ means / total, rates - weights @ rates / total
    spread = weights @ rates**2
    slope = (weights * rates) @ means / spread if spread > 0 else 0.0
    return float(weights @ (means - slope * rates) ** 2)


def _half(data: FitData, remainder: int) -> FitData:
    """Every second tuple and every second unlabeled instance."""

    def tuples() -> Iterator[tuple[NDArray[np.float32], Integers, Integers]]:
        before = 0
        for x, sizes, counts in data.tuples():
            chosen = (before + np.arange(len(sizes))) % 2 == remainder
            before += len(sizes)
            yield x[np.repeat(chosen, sizes)], sizes[chosen], counts[chosen]

    def unlabeled() -> Iterator[NDArray[np.float32]]:
        before = 0
        for x in data.unlabeled():
            yield x[(before + np.arange(len(x))) % 2 == remainder]
            before += len(x)

    return FitData(tuples, unlabeled)


def _closed_form(data: FitData, prior: float) -> Discriminant:
    moments: Moments | None = None
    for x, sizes, counts in data.tuples():
        moments = moments or Moments(x.shape[1])
        if len(sizes):
            moments.add_tuples(x, sizes, counts)
    assert moments is not None, "there are tuples"
    for x in data.unlabeled():
        moments.add_unlabeled(x)
    return fit(moments, prior)


def _group_means(data: FitData, scorer: Discriminant, task: Task) -> _Means:
    """Means over tuples, whose members are not independent; their variance is that of tuples of the same length."""
    by_stratum: dict[tuple[int, float], list[Floats]] = {(n, m): [] for n, m, _ in task.strata}
    for x, sizes, counts in data.tuples():
        sums = np.add.reduceat(expit(scorer.scores(x)), np.cumsum(sizes) - sizes) if len(sizes) else np.empty(0)
        for n, m in {*zip(sizes.tolist(), counts.tolist(), strict=True)}:
            by_stratum[n, m].append((sums / sizes)[(sizes == n) & (counts == m)])
    groups = {key: np.concatenate(parts) if parts else np.empty(0) for key, parts in by_stratum.items()}
    pool = np.concatenate([expit(scorer.scores(x)) for x in data.unlabeled()])
    means = [values.mean() if len(values) else 0.0 for values in groups.values()]
    variances = [_variance(n, groups) / len(values) if len(values) else np.inf for (n, _), values in groups.items()]
    return _Means(np.array([*means, pool.mean()]), np.array([*variances, pool.var(ddof=1) / len(pool)]))


def _variance(n: int, groups: Mapping[tuple[int, float], Floats]) -> float:
    """Of a tuple's mean score about that of its stratum, over all strata of its length; infinite where unknown."""
    same: Sequence[Floats] = [values for (length, _), values in groups.items() if length == n and len(values)]
    free = sum(len(values) - 1 for values in same)
    if free < FEWEST_TUPLES // 2:
        return np.inf
    return float(max(sum(((values - values.mean()) ** 2).sum() for values in same) / free, 1e-12))
