"""Conformal prediction intervals for the count of positives of a new group.

A tuple that its scorer was not trained on has the residual r = (m − μ)/s of its count m, with μ = Σσ(z) and s the
standard deviation of the count by the scores. If a new group is exchangeable with T such tuples, the rank of its
residual among theirs is uniform: it lies between the order statistics ⌊(T+1)δ/2⌋ and ⌈(T+1)(1−δ/2)⌉ with probability at
least 1 − δ, however good the scores are (Eq. 112: split conformal prediction with two separate tails). If every tuple
was scored by the fit without its fold, a new group is compared with each tuple by the fit that scored the tuple (Eqs.
115 and 116: CV+). For a tuple with a range, the lower end is used for the lower limit and the upper end for the upper
limit; so are the ends of what a rounded, suppressed or off-by-one count may have been. Records with added noise of
median 0 are used at δ/2. Tuples of one row are not used: they may be labelled rows, whose residuals are smaller than
those of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.laws import Exact, Floats, Ints, NoiseLaw
from ntmp_cli.counting.recorded import Counts, are_records, laws_of
from ntmp_cli.evaluation.group_counts import ROUNDING, count_moments

Bools = NDArray[np.bool_]
Side = Literal["left", "right"]


class Residuals(NamedTuple):
    """Residuals of tuples by the fit that scored them, and the ranks between which that of a new group lies."""

    below: tuple[Floats, ...]
    """Of the smallest count that each tuple may have, ascending: an array per fit."""
    above: tuple[Floats, ...]
    """Of the largest."""
    first: int
    last: int
    confidence: float
    noisy: bool
    """Whether there are records with added noise among them, which are used at half the error."""

    @property
    def tuples(self) -> int:
        return sum(map(len, self.below))

    @property
    def limited(self) -> bool:
        """Whether the tuples are enough for an interval that is not all counts."""
        return self.first >= 1 and self.last <= self.tuples

    @property
    def guaranteed(self) -> float:
        """The least probability that a group which is exchangeable with the tuples is inside (Eqs. 112 and 116)."""
        by_fold = [len(ascending) for ascending in self.below if len(ascending)]
        folds, tuples = len(by_fold), self.tuples
        if not self.limited:
            return 1.0
        if folds == 1:
            return self.confidence
        extra = 2 * (1 - 1 / folds) / (tuples / folds + 1)
        if min(by_fold) == max(by_fold):
            extra = min(extra, (1 - folds / tuples) / (folds + 1))
        return max(0.0, 1 - 2 * (1 - self.confidence) - (4 if self.noisy else 2) * extra)


def residuals(
    z: Floats, sizes: Ints, counts: Counts, spread: float, confidence: float, fold: Ints | None = None
) -> Residuals:
    """From held-out or cross-fitted tuples of several rows, by the smallest and the largest count that each may have.

    If too few tuples have such limits, records with added noise are used too, at half the error: if a true count is
    outside, noise of median 0 leaves its record outside with a probability of at least ½.
    """
    mean, sd = count_moments(z, sizes, spread)
    low, high, limited, noisy = _ends(sizes, np.asarray(counts))
    limited, noisy = limited & (sizes > 1), noisy & (sizes > 1)
    fold = np.zeros(len(sizes), dtype=np.int64) if fold is None else fold
    scored = (low - mean) / sd, (high - mean) / sd, fold
    without_noise = _ranked(*scored, limited, confidence, noisy=False)
    if without_noise.limited or not noisy.any():
        return without_noise
    return _ranked(*scored, limited | noisy, confidence, noisy=True)


def _ranked(below: Floats, above: Floats, fold: Ints, usable: Bools, confidence: float, *, noisy: bool) -> Residuals:
    tuples, tail = int(usable.sum()), (1 - confidence) / (4 if noisy else 2)
    # (1 − 0.9)/2 is a little less than 0.05: without rounding 19 tuples would not be enough for 90 %.
    first, last = int(np.floor(tail * (tuples + 1) + ROUNDING)), int(np.ceil((1 - tail) * (tuples + 1) - ROUNDING))
    folds = [usable & (fold == number) for number in range(int(fold.max(initial=0)) + 1)]
    lower, upper = (tuple(np.sort(values[which]) for which in folds) for values in (below, above))
    return Residuals(lower, upper, first, last, confidence, noisy)


def _ends(sizes: Ints, counts: Counts) -> tuple[Floats, Floats, Bools, Bools]:
    """Low and high of every tuple; whether they limit the true count, and whether they are records with added noise."""
    if not are_records(counts):
        exact = counts.astype(np.float64)
        return exact, exact, np.ones(len(counts), dtype=np.bool_), np.zeros(len(counts), dtype=np.bool_)
    low, high = counts["low"].copy(), counts["high"].copy()
    limited, noisy = np.zeros(len(counts), dtype=np.bool_), np.zeros(len(counts), dtype=np.bool_)
    for law, which in laws_of(counts):
        noisy[which] = law.adds_noise
        if isinstance(law, Exact):
            limited[which] = True
        elif type(law).support is not NoiseLaw.support:  # a recorded count leaves few true ones
            limited[which] = True
            low[which] = law.support(low[which], sizes[which])[0]
            high[which] = law.support(high[which], sizes[which])[1]
    return low, high, limited, noisy


def count_interval(z: Sequence[Floats], sizes: Ints, spread: float, calibration: Residuals) -> tuple[Ints, Ints]:
    """The smallest and the largest count of every group that are inside; `z` are the scores of members by every fit.

    A count m is inside if at least `first` tuples have (m − μ)/s ≥ r, and fewer than `last` have (m − μ)/s > r, where
    μ, s and r are by the fit of the tuple. A group of one row has the interval 0 to 1.
    """
    moments = [count_moments(scores, sizes, spread) for scores in z]
    if not calibration.limited:
        return np.zeros(len(sizes), dtype=np.int64), sizes.astype(np.int64)

    def enough_below(count: Ints) -> Bools:
        return _tuples_under(count + ROUNDING, moments, calibration.below, "right") >= calibration.first

    def few_above(count: Ints) -> Bools:
        return _tuples_under(sizes - count - ROUNDING, moments, calibration.above, "left") < calibration.last

    low, high = _smallest(enough_below, sizes), sizes - _smallest(few_above, sizes)
    # The limits may lie between two counts: then the one that is nearer to the mean is the answer.
    nearer = np.clip(np.rint(np.mean([mean for mean, _ in moments], axis=0)), high, low)
    empty, single = low > high, sizes == 1
    low, high = np.where(empty, nearer, low), np.where(empty, nearer, high)
    return np.where(single, 0, low).astype(np.int64), np.where(single, 1, high).astype(np.int64)


def _tuples_under(
    count: NDArray[Any], moments: Sequence[tuple[Floats, Floats]], of_tuples: Sequence[Floats], side: Side
) -> Ints:
    """The number of tuples whose residual a count of every group has or exceeds (side right), or exceeds (left)."""
    number = np.zeros(len(count), dtype=np.int64)
    for (mean, sd), ascending in zip(moments, of_tuples, strict=True):
        number += np.searchsorted(ascending, (count - mean) / sd, side)
    return number


def _smallest(holds: Callable[[Ints], Bools], largest: Ints) -> Ints:
    """The smallest number from 0 to `largest` at which a condition holds that goes on holding; else the largest."""
    low, high = np.zeros(len(largest), dtype=np.int64), largest.astype(np.int64)
    while (low < high).any():
        middle = (low + high) // 2
        met = holds(middle)
        low, high = np.where(met | (low == high), low, middle + 1), np.where(met, middle, high)
    return low
