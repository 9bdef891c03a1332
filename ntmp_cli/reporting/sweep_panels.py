"""Which panels the figure of a sweep has: one per metric with a line per run, windows, critical points, marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ntmp_cli.reporting.plotting import Dash
from ntmp_cli.reporting.sweep_figures import GridColumn, Mark, Panel, Series, Shade, grid_figure, sweep_figure
from ntmp_cli.sweeps.plans import SweepPlan
from ntmp_cli.sweeps.point_tests import RunTest
from ntmp_cli.sweeps.results import PointOfRun
from ntmp_cli.sweeps.windows import Point, Window

AXES = {
    "offset": "offset δ = π̃ − π̂ of the prior",
    "count_noise": "probability p that a count is off by one",
    "gap": "gap |π − ᾱ|",
}
# One per tuple spec of the same axis.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# x, the point if it was trained, and its mark.
_Known = tuple[float, Point | None, str]


@dataclass(frozen=True)
class SweepResults:
    """What a figure shows of a sweep: points over seeds, windows by run, names of runs, tests against the reference."""

    plan: SweepPlan
    points: Sequence[PointOfRun]
    windows: Mapping[str, Window]
    labels: Mapping[str, str]
    tests: Sequence[RunTest]


def sweep_image(results: SweepResults, caption: str, failed: Sequence[str]) -> dict[str, bytes]:
    """The figure of a sweep as `svg` and `png`: one panel per metric, or a line of text per point of a grid."""
    plan = results.plan
    title = plan.config.title or f"Sweep of {'settings' if plan.axis is None else AXES[plan.axis]}"
    title += f" (incomplete: {len(failed)} of {len(plan.cells)} cells failed)" if failed else ""
    if plan.axis is None:
        named = [f"{p.run} " * bool(p.run) + _short(p.position) for p in results.points]
        columns = [
            GridColumn(metric, [_limits(p.of[metric], plan.config.band) for p in results.points])
            for metric in plan.config.metrics
        ]
        return grid_figure(named, columns, title=title, note=" ".join([*_band_words(plan), caption]))
    note = " ".join([*_band_words(plan), *_left_out(plan), caption, *_test_words(results)])
    return sweep_figure(list(_panels(results)), xlabel=AXES[plan.axis], title=title, note=note)


# Words below the figure ------------------------------------------------------------------------------


def _band_words(plan: SweepPlan) -> Iterator[str]:
    spread = "95 % t interval" if plan.config.band == "ci" else "one standard deviation to either side"
    yield f"Mean over seeds, {spread}."


def _left_out(plan: SweepPlan) -> Iterator[str]:
    if plan.left_out and plan.axis is not None:
        words = [_at(left.position, plan.axis) for left in plan.left_out]
        yield f"Left out: {', '.join(words)}."


def _at(position: Mapping[str, Any], axis: str) -> str:
    spec = f" ({position['tuples']})" if "tuples" in position else ""
    return f"{position[axis]:.4g}{spec}"


def _test_words(results: SweepResults) -> Iterator[str]:
    judge = results.plan.config.judge
    for test in results.tests:
        over = test.overall
        if over.p is None or over.difference is None:
            continue
        who = f"{results.labels[test.run]} against {results.labels[test.reference]}"
        p = "p < 1e-6" if over.p < 1e-6 else f"p = {over.p:.2g}"
        seeds = f"{over.pairs} seed{'s' if over.pairs > 1 else ''}, each by its mean over the points"
        yield f"{judge} of {who} over all points: {over.difference:+.4f}, {p} ({seeds})."
    if results.tests:
        least = min(test.least_p for test in results.tests)
        can = f"; with so few seeds p cannot be below {least:.2g} at a point" if least >= 0.05 else ""
        yield f"*, **, ***: p < .05, .01, .001, paired Wilcoxon tests of {judge}, after Holm over the points{can}."


def _short(position: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in position.items())


# Panels ----------------------------------------------------------------------------------------------


def _panels(results: SweepResults) -> Iterator[Panel]:
    """One panel per metric; for the gap also the spread of the judged metric, where that is plotted."""
    plan = results.plan
    judge, alone = plan.config.judge, len(plan.runs) == 1
    shades = tuple(_shades(results))
    marks = [
        mark
        for run in plan.runs
        if run in results.windows
        for mark in _marks(judge, results.windows[run], "" if alone else f" ({results.labels[run]})")
    ]
    for metric in plan.config.metrics:
        yield Panel(metric, list(_lines(results, metric)), shades, marks)
    if plan.kind == "gap" and judge in plan.config.metrics:
        yield Panel(f"std of {judge} over seeds", list(_lines(results, judge, spread=True)), (), marks)


def _shades(results: SweepResults) -> Iterator[Shade]:
    """The window of every run that has one; of several runs in the colour of their lines."""
    runs = results.plan.runs
    for number, run in enumerate(runs):
        window = results.windows.get(run)
        if window is not None and window.interval is not None:
            alone = len(runs) == 1
            label = f"window W by {results.plan.config.judge}" + ("" if alone else f" ({results.labels[run]})")
            yield Shade(*window.interval, label, None if alone else number)


def _marks(metric: str, window: Window, whose: str = "") -> list[Mark]:
    wide, changed = f"interval of {metric} ≥ w*{whose}", f"change of {metric} > ε{whose}"
    return [Mark(wide, window.wide, "--"), Mark(changed, window.changed, ":")]


def _lines(results: SweepResults, metric: str, *, spread: bool = False) -> Iterator[Series]:
    """A line per run and tuple spec; for the gap one for either side of α, which would otherwise zigzag."""
    plan = results.plan
    specs = list(plan.mean_rates) or [""]
    sides: tuple[tuple[str, Dash], ...] = (("", "-"),) if plan.kind != "gap" else ((", π < ᾱ", "--"), (", π > ᾱ", "-"))
    for number, run in enumerate(plan.runs):
        stars = _stars(results, run) if metric == plan.config.judge and not spread else {}
        for of_spec, spec in enumerate(specs):
            for side, dash in sides:
                chosen = [p for p in results.points if p.run == run and p.position.get("tuples", "") == spec]
                if side:
                    above = dash == "-"
                    chosen = [p for p in chosen if (p.position["prior"] > plan.mean_rates[spec]) == above]
                label = f"{results.labels[run]} {spec}".rstrip() + side
                known: list[_Known] = [(p.of[metric].x, p.of[metric], stars.get(repr(p.position), "")) for p in chosen]
                if not side:
                    known += [(float(left.position[plan.axis or ""]), None, "") for left in plan.left_out]
                if known:
                    known.sort(key=lambda entry: entry[0])
                    mean, low, high = _values([p for _, p, _ in known], plan.config.band, spread=spread)
                    xs, marks = [x for x, _, _ in known], [mark for _, _, mark in known]
                    marker, bars = MARKERS[of_spec % len(MARKERS)], len(specs) > 1
                    yield Series(label, xs, mean, low, high, marks, number, dash, marker, bars)


def _stars(results: SweepResults, run: str) -> dict[str, str]:
    return {repr(point.position): point.mark for test in results.tests if test.run == run for point in test.points}


def _values(points: Sequence[Point | None], band: str, *, spread: bool) -> tuple[list[float | None], ...]:
    """Mean, low and high of a line; or its spread over seeds, which has no interval."""
    if spread:
        nothing: list[float | None] = [None] * len(points)
        return [p.std if p else None for p in points], nothing, nothing
    limits = [_limits(p, band) for p in points]
    return tuple([entry[part] for entry in limits] for part in range(3))


def _limits(point: Point | None, band: str) -> tuple[float | None, float | None, float | None]:
    """Mean, lower and upper limit of the band."""
    if point is None or point.mean is None:
        return None, None, None
    if band == "ci":
        return point.mean, point.low, point.high
    if point.std is None:
        return point.mean, None, None
    return point.mean, point.mean - point.std, point.mean + point.std
