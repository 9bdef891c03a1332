"""Windows and critical offsets against their definition."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.sweeps.windows import Point, Window, point, robustness_window, wide_points


def known(x: float, mean: float, width: float = 0.01) -> Point:
    return Point(x, 5, mean, 0.0, mean - width / 2, mean + width / 2)


def unknown(x: float) -> Point:
    return Point(x, 0, None, None, None, None)


def window(points: list[Point]) -> Window:
    return robustness_window(points, tolerance=0.02, max_width=0.05)


def test_the_window_of_a_plateau_with_a_cliff_on_either_side():
    means = {-0.3: 0.5, -0.2: 0.89, -0.1: 0.9, 0.0: 0.9, 0.1: 0.885, 0.2: 0.87, 0.3: 0.9}
    reached = window([known(x, m) for x, m in means.items()])
    assert reached.interval == (-0.2, 0.1)  # 0.3 is as good, but not reachable from 0
    assert reached.critical_performance == 0.2
    assert reached.critical_ci is None


def test_a_wide_interval_ends_the_window_and_is_critical():
    reached = window([known(-0.1, 0.9, 0.06), known(0.0, 0.9), known(0.1, 0.9), known(0.2, 0.9, 0.07)])
    assert reached.interval == (0.0, 0.1)
    assert reached.critical_ci == 0.1
    assert reached.wide == (-0.1,)


def test_points_at_the_limits_are_in_the_window():
    points = [known(0.0, 0.75), known(0.1, 0.5, 0.5), known(0.2, 0.4375)]
    reached = robustness_window(points, tolerance=0.25, max_width=0.5)
    assert reached.interval == (0.0, 0.1)
    assert (reached.critical_ci, reached.critical_performance) == (0.1, 0.2)


def test_both_sides_are_critical_when_both_are_as_near():
    reached = window([known(-0.1, 0.8), known(0.0, 0.9), known(0.1, 0.8)])
    assert reached.changed == (-0.1, 0.1)


def test_none_is_said_as_none():
    assert window([known(0.0, 0.9, 0.06)]) == Window(None, (0.0,), ())  # too wide where it begins
    assert window([known(0.1, 0.9)]) == Window(None, (), ())  # nothing to compare with
    assert window([unknown(0.0), known(0.1, 0.9)]) == Window(None, (), ())
    everywhere = window([known(x, 0.9) for x in (-0.1, 0.0, 0.1)])
    assert everywhere.interval == (-0.1, 0.1)
    assert (everywhere.critical_ci, everywhere.critical_performance) == (None, None)


def test_a_point_that_was_left_out_ends_the_window():
    assert window([known(-0.2, 0.9), unknown(-0.1), known(0.0, 0.9), known(0.1, 0.9)]).interval == (0.0, 0.1)


def test_one_seed_has_no_interval_and_so_no_window():
    single = point(0.0, "accuracy", [0.9])
    assert (single.mean, single.std, single.width) == (0.9, None, None)
    assert window([single]).interval is None


POINTS = st.lists(
    st.tuples(st.integers(-10, 10), st.none() | st.floats(0.8, 1), st.floats(0, 0.1)), unique_by=lambda p: p[0]
)


@given(POINTS)
def test_the_definition_of_the_window_holds(triples):
    points = [unknown(x) if mean is None else known(x, mean, width) for x, mean, width in triples]
    by_x = {p.x: p for p in points}
    reached = window(points)
    reference = by_x[0].mean if 0 in by_x else None
    widths = {x: p.width for x, p in by_x.items() if p.width is not None}
    moved = {} if reference is None else {x: abs(reference - p.mean) for x, p in by_x.items() if p.mean is not None}
    good = {x for x in moved if moved[x] <= 0.02 and widths[x] <= 0.05}
    assert reached.critical_ci == min((abs(x) for x, w in widths.items() if w >= 0.05), default=None)
    assert reached.critical_performance == min((abs(x) for x in moved if moved[x] > 0.02), default=None)
    # Brute force over all intervals of the grid: the longest around 0 whose every point is good.
    grid = sorted(by_x)
    around = [
        (a, b)
        for a, b in itertools.product(grid, grid)
        if a <= 0 <= b and 0 in by_x and all(x in good for x in grid if a <= x <= b)
    ]
    assert reached.interval == max(around, key=lambda ab: ab[1] - ab[0], default=None)


def test_wide_points_of_the_gap_are_those_of_least_gap():
    assert wide_points([known(0.3, 0.9, 0.2), known(0.1, 0.9, 0.04), known(0.2, 0.9, 0.05)], 0.049) == (0.2,)


def test_undefined_values_are_left_out_of_a_point():
    summary = point(0.1, "accuracy", [0.9, None, 0.8, math.nan])
    assert (summary.seeds, summary.mean) == (2, pytest.approx(0.85))
    assert summary.std == pytest.approx(np.std([0.9, 0.8], ddof=1))
    assert (summary.low, summary.high) == (pytest.approx(0.85 - 12.7062 * 0.05, rel=1e-5), 1.0)
