"""Is the difference between two methods more than chance, and how large is it?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import DataError
from ntmp_cli.evaluation.intervals import NONE, Interval, t_quantile
from ntmp_cli.evaluation.ranks import average_ranks

Floats = NDArray[np.float64]

# Up to this many differences all 2^n signs are enumerated; the table has n(n+1) entries.
EXACT_UP_TO = 200
# Differences that agree to this many decimals are ties: 0.9 − 0.8 equals 0.8 − 0.7.
DECIMALS = 12


class Wilcoxon(NamedTuple):
    """W⁺, the two-sided p, how many differences were not zero, and whether p is exact."""

    statistic: float
    p: float
    nonzero: int
    exact: bool


class Cliff(NamedTuple):
    """δ over all pairs of values with its interval, and the share of wins less losses within pairs."""

    delta: float
    interval: Interval
    within: float


def wilcoxon(differences: Floats) -> Wilcoxon:
    """Signed-rank test of paired differences, two-sided (Eq. 74, Wilcoxon 1945).

    Zeros are left out, ties share their mean rank. Under the null every sign is as likely as its opposite: W⁺ adds each
    rank with probability ½, and its law is counted out exactly, ties included, by adding one rank after the other
    (doubled, so that mean ranks are whole). Beyond `EXACT_UP_TO` differences the normal law with the variance of these
    ranks is used. Without a nonzero difference p = 1. A difference that is not a number has no sign, and is refused.
    """
    if undefined := int(np.isnan(differences).sum()):
        raise DataError(
            f"{undefined} of {len(differences)} paired differences are not a number, so they have no rank",
            hint="Leave those pairs out.",
        )
    rounded = np.round(differences, DECIMALS)
    d = rounded[rounded != 0]
    if not len(d):
        return Wilcoxon(0.0, 1.0, 0, True)
    ranks = average_ranks(np.abs(d))
    statistic = float(ranks[d > 0].sum())
    if len(d) > EXACT_UP_TO:
        distance = abs(statistic - ranks.sum() / 2) / math.sqrt((ranks**2).sum() / 4)
        return Wilcoxon(statistic, 2 * NormalDist().cdf(-distance), len(d), False)
    doubled = np.rint(2 * ranks).astype(np.int64)
    law = np.zeros(int(doubled.sum()) + 1)
    law[0] = 1.0
    reached = 1
    for rank in doubled:
        # The rest of the table cannot have been reached yet and is zero.
        law[rank : rank + reached] += law[:reached].copy()
        reached += int(rank)
        law[:reached] /= 2
    at = round(2 * statistic)
    tail = min(law[: at + 1].sum(), law[at:].sum())
    return Wilcoxon(statistic, min(1.0, 2 * float(tail)), len(d), True)


def smallest_p(pairs: int) -> float:
    """The smallest two-sided p that this number of pairs can reach: 2^(1−S), all of one sign (Eq. 74)."""
    return min(1.0, 2.0 ** (1 - pairs))


def holm(p_values: Sequence[float]) -> list[float]:
    """Step-down adjusted p: the k-th smallest times (m − k + 1), never below a smaller one's, at most 1.

    Eq. 75, Holm (1979).
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty(len(p))
    adjusted[order] = np.minimum(stepped, 1)
    return [float(value) for value in adjusted]


def cliffs_delta(values: Floats, reference_values: Floats) -> Cliff:
    """Cliff's δ of paired values: P(value > reference) − P(value < reference) over all S² pairs (Eq. 76, Cliff 1993).

    `within` is the same for each pair by itself, (wins − losses)/S: the paper's "on the paired per-seed differences".
    The variance of δ is that of the jackknife over the S pairs, which keeps pairs intact, and at least
    (1 − δ²)/(S² − 1), Cliff's lower limit: few values may be ordered alike by chance.
    """
    values, reference_values = np.round(values, DECIMALS), np.round(reference_values, DECIMALS)
    size = len(values)
    own = np.sign(values - reference_values)
    # Wins less losses of every value against all references, and of all values against every reference.
    by_value, by_reference = _wins_less_losses(values, reference_values), -_wins_less_losses(reference_values, values)
    delta, within = float(by_value.sum() / size**2), float(own.mean())
    if size < 2:
        return Cliff(delta, NONE, within)
    without_one = (by_value.sum() - by_reference - by_value + own) / (size - 1) ** 2
    jackknife = (size - 1) * float(without_one.var())
    variance = max(jackknife, (1 - delta**2) / (size**2 - 1))
    return Cliff(delta, dominance_interval(delta, variance, size), within)


def _wins_less_losses(values: Floats, others: Floats) -> Floats:
    """How many of `others` are below every value, less those above it; by sorting, not by S² comparisons."""
    ordered = np.sort(others)
    below, above = np.searchsorted(ordered, values, side="left"), np.searchsorted(ordered, values, side="right")
    return (below - (len(others) - above)).astype(np.float64)


def dominance_interval(delta: float, variance: float, size: int) -> Interval:
    """95 % interval of a δ of `size` pairs, within [−1, 1] (Eq. 77, Feng and Cliff 2004), with t for few pairs.

    (δ − δ³ ± t s √((1 − δ²)² + t² s²)) / (1 − δ² + t² s²); where one side wins every comparison, which is no certainty,
    the open limit is (S − t²)/(S + t²).
    """
    if size < 2:
        return NONE
    squared = t_quantile(size) ** 2
    if abs(delta) == 1:
        limit = (size - squared) / (size + squared)
        return Interval(limit, 1.0) if delta > 0 else Interval(-1.0, -limit)
    rest, scatter = 1 - delta**2, squared * variance
    half = math.sqrt(scatter * (rest**2 + scatter))
    low, high = ((delta * rest + side * half) / (rest + scatter) for side in (-1, 1))
    return Interval(max(-1.0, low), min(1.0, high))


def magnitude(delta: float) -> str:
    """The usual word for |δ| (Romano et al. 2006)."""
    for word, limit in (("negligible", 0.147), ("small", 0.33), ("medium", 0.474)):
        if abs(delta) < limit:
            return word
    return "large"
