"""Figures of sweeps: the same values give the same bytes, and windows, marks and lines are plotted."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ntmp_cli.reporting.sweep_figures import (
    CRITICAL,
    WINDOW,
    GridColumn,
    Mark,
    Panel,
    Series,
    Shade,
    alone,
    grid_figure,
    sweep_figure,
)

LINE = Series("ure", [-0.1, 0.0, 0.1], [0.8, None, 0.9], [0.7, None, 0.8], [0.9, None, 1.0])


def svg_of(*panels: Panel) -> str:
    return sweep_figure(panels, xlabel="offset", title="Title", note="A note.")["svg"].decode()


def test_a_window_is_shaded_and_critical_points_are_red_and_dashed():
    svg = svg_of(Panel("ap", [LINE], [Shade(-0.1, 0.0)], [Mark("interval", (0.1,)), Mark("change", (), ":")]))
    assert WINDOW.lower() in svg
    dashed = [style for style in re.findall(r'style="([^"]*)"', svg) if CRITICAL.lower() in style]
    assert len(dashed) == 2  # the line and its place in the legend
    assert all("stroke-dasharray" in style for style in dashed)


def test_nothing_found_is_not_drawn():
    svg = svg_of(Panel("ap", [LINE]))
    assert WINDOW.lower() not in svg
    assert CRITICAL.lower() not in svg


@pytest.mark.thinned(2)
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_any_number_of_panels_is_drawn_with_the_same_bytes_again(number):
    panels = [Panel(f"metric {i}", [LINE]) for i in range(number)]
    first, second = (sweep_figure(panels, xlabel="x", title="Title") for _ in range(2))
    assert first == second
    assert first["png"].startswith(b"\x89PNG")
    assert first["svg"].count(b'<g id="axes_') == number


def test_a_grid_has_a_row_per_combination_also_for_one_without_values():
    points = [(0.5, 0.4, 0.6), (None, None, None), (0.7, None, None)]
    columns = [GridColumn("ap", points), GridColumn("fpr", points)]
    figure = grid_figure(["a=1", "a=2", "a=3"], columns, title="Title")
    assert figure == grid_figure(["a=1", "a=2", "a=3"], columns, title="Title")
    assert figure["svg"].count(b'<g id="axes_') == 2


def test_a_point_without_neighbours_has_bars_and_others_a_band():
    mean = np.array([0.8, np.nan, 0.9, 0.7, np.nan, np.nan, 0.6])
    assert alone(mean).tolist() == [True, False, False, False, False, False, True]
    banded = svg_of(Panel("ap", [Series("ure", [0.0, 0.1], [0.8, 0.9], [0.7, 0.8], [0.9, 1.0])]))
    single = svg_of(Panel("ap", [Series("ure", [0.0], [0.8], [0.7], [0.9])]))
    barred = svg_of(Panel("ap", [Series("ure", [0.0, 0.1], [0.8, 0.9], [0.7, 0.8], [0.9, 1.0], bars=True)]))
    assert [svg.count("LineCollection_") for svg in (banded, single, barred)] == [0, 1, 1]


def test_marks_of_significance_stand_at_their_points():
    line = Series("abs", [0.0, 0.1, 0.2], [0.8, 0.9, None], [0.7, 0.8, None], [0.9, 1.0, None], ["", "**", "*"])
    svg = svg_of(Panel("ap", [line]))
    assert svg.count("<!-- ** -->") == 1
    assert "<!-- * -->" not in svg  # a point without value has no place
