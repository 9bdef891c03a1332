"""What was observed of tuples' counts, as a likelihood over the true count, made ready for the tables of the count law.

Tuple t with n members is observed through L(k) = P(what was recorded | k of its members are positive), k = 0 … n. The
law of the count, its gradient and its posterior depend on the observation through L alone (Eq. 22).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntmp_cli.counting.laws import Exact, Floats, Ints, NoiseLaw
from ntmp_cli.errors import DataError

# Tables of a group of tuples stay below this size, unless a single tuple needs more.
TABLE_BYTES = 32 * 2**20
# So many missing members per group cost nothing; beyond that at most half of a group's members are missing.
SPARE_MEMBERS = 4096
# Tables of a group have at most so many different widths.
WIDTHS = 8


@dataclass(frozen=True)
class CountGroup:
    """Tuples whose tables are computed side by side: one column per tuple, the longest first.

    A missing member of a shorter tuple points behind the last score, where the caller puts −∞: a member with odds 0
    changes no probability. So tuples of different lengths share a table exactly.
    """

    which: Ints
    """(T,) positions of the tuples."""
    members: Ints
    """(n, T) positions of the members' scores; `CountObservations.instances` where a member is missing."""
    present: tuple[int, ...]
    """For every i < n how many columns, from the first on, hold all tuples with more than i members."""
    lowest: tuple[int, ...]
    """For every i < n the smallest count of the first i members from which a tuple can still reach its observation."""
    target: Floats
    """(K, T) L(k), k = 0 … K−1; of a mirrored tuple k counts the negatives. L is 0 beyond."""

    def repeated(self, times: int) -> CountGroup:
        """The same with `times` columns side by side for every tuple; members are those of one column."""
        present = tuple(times * here for here in self.present)
        return replace(self, present=present, target=np.repeat(self.target, times, axis=1))


class CountObservations:
    """Recorded counts of tuples whose members stand in a row, under a law of noise.

    Callers pass it on to `counting.poisson_binomial`, which calls `support` and `likelihood` only: whatever else may
    be known of a count is another way to fill these two.
    """

    def __init__(self, sizes: ArrayLike, counts: ArrayLike, law: NoiseLaw | None = None) -> None:
        self.sizes, self.counts = _possible(np.asarray(sizes), np.asarray(counts))
        self.law = law or Exact()
        self.instances = int(self.sizes.sum())
        self._low, self._high = self.support()

    def __len__(self) -> int:
        return len(self.sizes)

    @cached_property
    def starts(self) -> Ints:
        """(T,) position of every tuple's first member."""
        starts: Ints = np.cumsum(self.sizes) - self.sizes
        return starts

    @cached_property
    def owner(self) -> Ints:
        """(instances,) the tuple of every member."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def support(self) -> tuple[Ints, Ints]:
        """The smallest and the largest k with L(k) > 0, of every tuple."""
        return self.law.support(self.counts, self.sizes)

    def likelihood(self, k: Ints, which: Ints) -> Floats:
        """L(k) of the tuples `which`, for k of shape (…, len(which)); 0 where k is not 0 … n."""
        n = self.sizes[which]
        return np.where((k >= 0) & (k <= n), self.law.likelihood(self.counts[which], k, n), 0.0)

    def sum_by_tuple(self, values: Floats) -> Floats:
        """(T,) sums over the members of every tuple."""
        return np.bincount(self.owner, values, minlength=len(self)).astype(np.float64)

    @cached_property
    def mirrored(self) -> NDArray[np.bool_]:
        """Tuples that are counted by their negatives (z → −z, k → n − k), because that makes the table narrower."""
        mirrored: NDArray[np.bool_] = self._low + self._high > self.sizes
        return mirrored

    @cached_property
    def signs(self) -> Floats | None:
        """(instances,) −1 for the members of mirrored tuples, else 1; None where no tuple is mirrored."""
        return np.where(self.mirrored, -1.0, 1.0)[self.owner] if self.mirrored.any() else None

    @cached_property
    def one_length(self) -> bool:
        return len(self) > 0 and bool((self.sizes == self.sizes[0]).all())

    @cached_property
    def groups(self) -> tuple[CountGroup, ...]:
        """All tuples, in as few groups as memory and padding allow."""
        return tuple(self._groups())

    def _groups(self) -> Iterator[CountGroup]:
        widths = np.where(self.mirrored, self.sizes - self._low, self._high) + 1
        order = np.argsort(-self.sizes, kind="stable")
        while len(order):
            n = int(self.sizes[order[0]])
            padded = n * np.arange(1, len(order) + 1)
            small = padded * np.maximum.accumulate(widths[order]) <= TABLE_BYTES // 8
            dense = padded <= 2 * np.cumsum(self.sizes[order]) + SPARE_MEMBERS
            fits = small & dense
            taken = len(order) if fits.all() else max(1, int(np.argmin(fits)))
            yield self._group(order[:taken], int(widths[order[:taken]].max()))
            order = order[taken:]

    def _group(self, which: Ints, width: int) -> CountGroup:
        sizes = self.sizes[which]
        i, k = np.arange(sizes[0])[:, None], np.arange(width)[:, None]
        members = np.where(i < sizes, self.starts[which] + i, self.instances)
        present = np.searchsorted(-sizes, -i[:, 0], side="left")
        # In few steps, so that most tables of consecutive members have one shape and need no copy.
        step = -(-len(which) // WIDTHS)
        present = np.minimum(-(-present // step) * step, len(which))
        # Of k counted so far, at most n − i more are to come.
        behind = np.minimum.accumulate(np.where(self.mirrored, -self._high, self._low - self.sizes)[which])
        lowest = np.maximum(behind[present - 1] + i[:, 0], 0)
        target = self.likelihood(np.where(self.mirrored[which], sizes - k, k), which)
        return CountGroup(which, members, tuple(present.tolist()), tuple(lowest.tolist()), target)


def _possible(sizes: NDArray[Any], counts: NDArray[Any]) -> tuple[Ints, Ints]:
    """Sizes and counts as whole numbers; refuses what cannot be a count."""
    if sizes.ndim != 1 or sizes.shape != counts.shape:
        raise DataError(f"{sizes.size} sizes and {counts.size} counts of tuples: every tuple has one of each")
    n, m = _whole(sizes), _whole(counts)
    possible = (n >= 1) & (m >= 0) & (m <= n)
    if not possible.all():
        t, others = int(np.argmin(possible)), int((~possible).sum()) - 1
        more = f", and {others} more tuples cannot be either" if others else ""
        raise DataError(
            f"tuple {t + 1} cannot have {sizes[t]} members and a count of {counts[t]}{more}",
            hint="A tuple has at least one member; its count is a whole number from 0 to the number of its members.",
        )
    return sizes.astype(np.int64), counts.astype(np.int64)


def _whole(values: NDArray[Any]) -> Floats:
    """NaN for what is no whole number."""
    if values.dtype.kind not in "iuf":
        return np.full(values.shape, np.nan)
    numbers = values.astype(np.float64)
    return np.where(np.isfinite(numbers) & (numbers == np.floor(numbers)), numbers, np.nan)
