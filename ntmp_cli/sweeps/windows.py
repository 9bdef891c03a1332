"""Tolerance of a setting to errors: points over seeds, the window W_δ and its critical offsets."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ntmp_cli.evaluation.intervals import metric_interval


@dataclass(frozen=True)
class Point:
    """A metric over the seeds at one x. Undefined values are None: an interval needs two seeds."""

    x: float
    seeds: int
    mean: float | None
    std: float | None
    low: float | None
    high: float | None

    @property
    def width(self) -> float | None:
        return None if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Window:
    """The interval around 0 without loss of performance, and the nearest points with a loss.

    `wide` and `changed` are the points (one, or one on either side of 0) that attain δ_crit^CI and δ_crit^perf.
    """

    interval: tuple[float, float] | None
    wide: tuple[float, ...]
    changed: tuple[float, ...]

    @property
    def critical_ci(self) -> float | None:
        return abs(self.wide[0]) if self.wide else None

    @property
    def critical_performance(self) -> float | None:
        return abs(self.changed[0]) if self.changed else None


def point(x: float, metric: str, values: Sequence[float | None]) -> Point:
    """Mean, sample standard deviation and t interval of the seeds that have a value."""
    known = [value for value in values if value is not None and not math.isnan(value)]
    low, high = metric_interval(metric, known)
    return Point(
        x,
        len(known),
        statistics.fmean(known) if known else None,
        statistics.stdev(known) if len(known) > 1 else None,
        low,
        high,
    )


def robustness_window(points: Sequence[Point], *, tolerance: float, max_width: float) -> Window:
    """W_δ(ε, w*), its maximal contiguous interval around δ = 0, and δ_crit by width and by performance (Eqs. 79, 80).

    δ is in W_δ when |E M(0) − E M(δ)| ≤ ε and the interval's width is ≤ w*; δ_crit^CI is the least |δ| of width ≥ w*,
    δ_crit^perf the least |δ| whose mean differs by more than ε. A point without values (one that was left out, or
    whose trainings failed) is in no window and ends the interval: nothing is known of it.
    """
    ordered = sorted(points, key=lambda p: p.x)
    at_zero = next((index for index, p in enumerate(ordered) if p.x == 0), None)
    reference = None if at_zero is None else ordered[at_zero].mean

    def change(p: Point) -> float | None:
        return None if reference is None or p.mean is None else abs(reference - p.mean)

    def inside(p: Point) -> bool:
        moved, width = change(p), p.width
        return moved is not None and width is not None and moved <= tolerance and width <= max_width

    interval = None
    if at_zero is not None and inside(ordered[at_zero]):
        first = last = at_zero
        while first > 0 and inside(ordered[first - 1]):
            first -= 1
        while last + 1 < len(ordered) and inside(ordered[last + 1]):
            last += 1
        interval = ordered[first].x, ordered[last].x
    changed = [p.x for p in ordered if (moved := change(p)) is not None and moved > tolerance]
    return Window(interval, wide_points(ordered, max_width), _nearest(changed))


def wide_points(points: Sequence[Point], max_width: float) -> tuple[float, ...]:
    """The points of least |x| at which the interval is as wide as w*."""
    return _nearest([p.x for p in points if p.width is not None and p.width >= max_width])


def _nearest(xs: Sequence[float]) -> tuple[float, ...]:
    least = min(map(abs, xs), default=None)
    return tuple(sorted(x for x in xs if abs(x) == least))
