"""Recorded counts of tuples as a likelihood over the true count, grouped for the tables of the count law.

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

from ntmp_cli.counting.constant_rate import ConstantRate, CountTable, likeliest_rate
from ntmp_cli.counting.large import LARGE
from ntmp_cli.counting.laws import Exact, Floats, Ints, NoiseLaw
from ntmp_cli.counting.recorded import Counts, all_exact, are_records, as_text, laws_of, simplest, with_law
from ntmp_cli.errors import DataError

# Tables of a group of tuples stay below this size, unless a single tuple needs more.
TABLE_BYTES = 32 * 2**20
# A group may have this many missing members; beyond that, at most half of its members may be missing.
SPARE_MEMBERS = 4096
# Largest number of different widths of a group's tables.
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
    """What was recorded of the counts of tuples whose members stand in a row.

    Counts are whole numbers or records of ranges and laws (`counting.recorded`). A law that is passed here, and is not
    the exact one, replaces the recorded ones. Callers pass observations on to `counting.poisson_binomial`, which calls
    `support` and `likelihood` only.
    """

    def __init__(self, sizes: ArrayLike, counts: ArrayLike, law: NoiseLaw | None = None) -> None:
        recorded, self.law = np.asarray(counts), law or Exact()
        if are_records(recorded):
            recorded = simplest(recorded if isinstance(self.law, Exact) else with_law(recorded, self.law))
        self.sizes: Ints
        self.counts: Counts
        self._laws: list[tuple[NoiseLaw, Ints]] | None = None
        if are_records(recorded):
            self.sizes, self.counts = np.asarray(sizes).astype(np.int64), recorded
            self._laws = laws_of(recorded)
            self._law_numbers = np.empty(len(recorded), dtype=np.int64)
            for number, (_, of_law) in enumerate(self._laws):
                self._law_numbers[of_law] = number
            _require_recordable(self.sizes, recorded, self._laws)
        else:
            self.sizes, self.counts = _possible(np.asarray(sizes), recorded)
        self.instances = int(self.sizes.sum())
        self._low, self._high = self.support()
        self._of_large: dict[tuple[int, Any], Floats] = {}

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

    @cached_property
    def exact(self) -> bool:
        """Whether every true count is known."""
        return isinstance(self.law, Exact) and all_exact(self.counts)

    def subset(self, which: Ints) -> CountObservations:
        subset = CountObservations(self.sizes[which], self.counts[which], self.law)
        subset._of_large = self._of_large
        return subset

    def support(self) -> tuple[Ints, Ints]:
        """The smallest and the largest k with L(k) > 0, of every tuple."""
        if self._laws is None:
            return self.law.support(self.counts, self.sizes)
        low, high = np.empty_like(self.sizes), np.empty_like(self.sizes)
        for law, which in self._laws:
            n = self.sizes[which]
            low[which] = law.support(self.counts["low"][which], n)[0]
            high[which] = law.support(self.counts["high"][which], n)[1]
        return low, high

    def likelihood(self, k: Ints, which: Ints) -> Floats:
        """L(k) of the tuples `which`, for k of shape (…, len(which)); 0 where k is not 0 … n."""
        n = self.sizes[which]
        inside = (k >= 0) & (k <= n)
        if self._laws is None:
            return np.where(inside, self.law.likelihood(self.counts[which], k, n), 0.0)
        rows, values = self.counts[which], np.zeros(np.broadcast_shapes(k.shape, n.shape))
        k = np.broadcast_to(k, values.shape)
        for number, (law, _) in enumerate(self._laws):
            is_of_law = self._law_numbers[which] == number
            for columns in (is_of_law & (rows["low"] == rows["high"]), is_of_law & (rows["low"] < rows["high"])):
                if not columns.any():
                    continue
                low, high, at, among = rows["low"][columns], rows["high"][columns], k[..., columns], n[columns]
                one = (low == high).all()
                values[..., columns] = law.likelihood(low, at, among) if one else law.between(low, high, at, among)
        return np.where(inside, values, 0.0)

    def likelihood_of_large(self, t: int) -> Floats:
        """L(k), k = 0 … n, of one large tuple; kept, because some laws take long. Equal records share an array."""
        n, of_record = int(self.sizes[t]), self.counts[t].item()
        if (n, of_record) not in self._of_large:
            self._of_large[n, of_record] = self.likelihood(np.arange(n + 1)[:, None], np.array([t]))[:, 0]
        return self._of_large[n, of_record]

    @cached_property
    def constant(self) -> ConstantRate:
        """The likeliest rate that all members could have, and expected counts under it."""
        return likeliest_rate(self.count_tables)

    @cached_property
    def count_tables(self) -> tuple[CountTable, ...]:
        """log L(k) of all tuples."""
        return tuple(self._count_tables())

    def _count_tables(self) -> Iterator[CountTable]:
        with np.errstate(divide="ignore"):
            for group in self.groups:
                n = self.sizes[group.which]
                k = np.arange(len(group.target))[:, None]
                yield CountTable(group.which, n, np.where(self.mirrored[group.which], n - k, k), np.log(group.target))
            for t in self.large.tolist():
                which = np.array([t])
                k = np.arange(self._low[t], self._high[t] + 1)[:, None]
                yield CountTable(which, self.sizes[which], k, np.log(self.likelihood(k, which)))

    @cached_property
    def likely(self) -> Floats:
        """(T,) recorded counts as numbers; of ranges and other laws what is expected at the rate of all tuples."""
        return self.constant.expected if are_records(self.counts) else self.counts.astype(np.float64)

    @property
    def rate(self) -> float:
        """Share of positives among all members: Σm/Σn, or the likeliest where counts are not exact."""
        return float(self.likely.sum() / self.sizes.sum())

    @cached_property
    def some(self) -> NDArray[np.bool_] | None:
        """(T,) whether any member is positive, where that is all that is known of every tuple; else None."""
        if self._laws is None or any(not isinstance(law, Exact) for law, _ in self._laws):
            return None
        some: NDArray[np.bool_] = (self._low == 1) & (self._high == self.sizes)
        return some if (some | (self._high == 0)).all() else None

    @cached_property
    def symmetric(self) -> bool:
        """Whether the observations would be the same with the classes exchanged: L(k) = L(n − k)."""
        if not are_records(self.counts):
            return bool((self.sizes == 2 * self.counts).all())
        if not (self._low + self._high == self.sizes).all():
            return False
        return all(
            np.allclose(self.likelihood(k, which), self.likelihood(k[::-1], which), rtol=1e-12, atol=0)
            for which, k in ((np.array([t]), np.arange(n + 1)[:, None]) for t, n in enumerate(self.sizes.tolist()))
        )

    @cached_property
    def one_rate(self) -> bool:
        """Whether all tuples may have the same rate: then the gradient at a constant score is zero, or noise.

        If counts may be wrong, the true rates may be equal although the recorded ones differ. If noise allows every
        count, one common rate must be less probable than rates that differ by chance.
        """
        if not (self._low / self.sizes).max() <= (self._high / self.sizes).min() + 1e-12:
            return False
        if not are_records(self.counts):
            return True
        which = np.arange(len(self))
        at = np.rint(self.rate * self.sizes).astype(np.int64)
        with np.errstate(divide="ignore"):
            return float(np.log(self.likelihood(at, which)).sum()) >= self.constant.log_prob

    def sum_by_tuple(self, values: Floats) -> Floats:
        """(T,) sums over the members of every tuple."""
        return np.bincount(self.owner, values, minlength=len(self)).astype(np.float64)

    @cached_property
    def mirrored(self) -> NDArray[np.bool_]:
        """Tuples whose negatives are counted (z → −z, k → n − k) because the table is narrower then."""
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
    def large(self) -> Ints:
        """Positions of the tuples that are too large for a table; see `counting.large`."""
        return np.flatnonzero(self.sizes > LARGE)

    @cached_property
    def groups(self) -> tuple[CountGroup, ...]:
        """All other tuples, in as few groups as memory and padding allow."""
        return tuple(self._groups())

    def _groups(self) -> Iterator[CountGroup]:
        widths = np.where(self.mirrored, self.sizes - self._low, self._high) + 1
        order = np.argsort(-self.sizes, kind="stable")
        order = order[len(self.large) :]
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


def _require_recordable(sizes: Ints, counts: Counts, laws: list[tuple[NoiseLaw, Ints]]) -> None:
    """Raise an error for impossible records."""
    for law, which in laws:
        low, high, n = counts["low"][which], counts["high"][which], sizes[which]
        possible = (n >= 1) & (low <= high) & law.possible(low, n) & law.possible(high, n)
        if not possible.all():
            t, others = int(which[np.argmin(possible)]), int((~possible).sum()) - 1
            more = f", and {others} more tuples cannot be either" if others else ""
            raise DataError(
                f"tuple {t + 1} cannot have {sizes[t]} members and a count of {as_text(counts[t])}{more}",
                hint=f"A tuple has at least one member; under this law its count is {law.records}.",
            )


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
