"""Which panels the figure of a sweep has: the judged metric by run, others beside it, windows and critical points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ntmp_cli.reporting.plotting import Dash
from ntmp_cli.reporting.sweep_figures import Mark, Panel, Series, grid_figure, sweep_figure
from ntmp_cli.sweeps.plans import SweepPlan
from ntmp_cli.sweeps.results import PointOfRun
from ntmp_cli.sweeps.windows import Point, Window

AXES = {
    "offset": "offset δ = π̃ − π̂ of the prior",
    "count_noise": "probability p that a count is off by one",
    "gap": "gap |π − ᾱ|",
}
# What a sweep is plotted with beside the metric that is judged, as the paper has it.
PANELS = {"prior": (), "count-noise": ("accuracy", "macro_f1", "fpr"), "gap": ("best_f1", "auroc")}


def sweep_image(
    plan: SweepPlan,
    points: Sequence[PointOfRun],
    windows: Mapping[str, Window],
    labels: Mapping[str, str],
    failed: Sequence[str],
) -> dict[str, bytes]:
    """The figure of a sweep as `svg` and `png`: one panel per run or metric, or a line per point of a grid."""
    title = plan.config.title or f"Sweep of {'settings' if plan.axis is None else AXES[plan.axis]}"
    title += f" (incomplete: {len(failed)} of {len(plan.cells)} cells failed)" if failed else ""
    metric = plan.config.metric
    if plan.axis is None:
        named = [f"{p.run} " * bool(p.run) + _short(p.position) for p in points]
        judged = [p.of[metric] for p in points]
        return grid_figure(named, [(p.mean, p.low, p.high) for p in judged], xlabel=metric, title=title)
    note = "Mean over seeds, 95 % t interval."
    if plan.left_out:
        note += " Left out: " + ", ".join(f"{left.position[plan.axis]:g}" for left in plan.left_out) + "."
    panels = _prior_panels(plan, points, windows, labels) if plan.kind == "prior" else []
    panels = panels or _panels(plan, points, windows, labels)
    return sweep_figure(panels, xlabel=AXES[plan.axis], title=title, note=note)


def _short(position: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in position.items())


def _prior_panels(
    plan: SweepPlan, points: Sequence[PointOfRun], windows: Mapping[str, Window], labels: Mapping[str, str]
) -> list[Panel]:
    """One panel per run, with its window and its critical offsets."""
    metric = plan.config.metric
    panels = []
    for number, run in enumerate(plan.runs):
        known = [(p.of[metric].x, p.of[metric]) for p in points if p.run == run]
        unknown = [(float(left.position["offset"]), None) for left in plan.left_out]
        ordered = sorted([*known, *unknown], key=lambda entry: entry[0])
        line = _line(labels[run], [x for x, _ in ordered], [p for _, p in ordered], number)
        heading = labels[run] if len(plan.runs) > 1 else ""
        panels.append(Panel(metric, [line], heading, windows[run].interval, _marks(metric, windows[run])))
    return panels


def _panels(
    plan: SweepPlan, points: Sequence[PointOfRun], windows: Mapping[str, Window], labels: Mapping[str, str]
) -> list[Panel]:
    """One panel per metric with a line per run; a window is shaded if there is one run only."""
    metric = plan.config.metric
    alone = len(plan.runs) == 1
    marks = [mark for run in plan.runs for mark in _marks(metric, windows[run], "" if alone else f" ({labels[run]})")]
    shaded = windows[plan.runs[0]].interval if alone else None
    panels = [Panel(metric, _lines(plan, points, labels, metric), "", shaded, marks)]
    others = [name for name in PANELS[plan.kind] if name != metric]
    panels += [Panel(name, _lines(plan, points, labels, name), marks=marks) for name in others]
    if plan.kind == "gap":
        spread = _lines(plan, points, labels, metric, spread=True)
        panels.append(Panel(f"std of {metric} over seeds", spread, marks=marks))
    return panels


def _marks(metric: str, window: Window, whose: str = "") -> list[Mark]:
    wide, changed = f"interval of {metric} ≥ w*{whose}", f"change of {metric} > ε{whose}"
    return [Mark(wide, window.wide, "--"), Mark(changed, window.changed, ":")]


def _lines(
    plan: SweepPlan, points: Sequence[PointOfRun], labels: Mapping[str, str], metric: str, *, spread: bool = False
) -> list[Series]:
    """A line per run; for the gap one for either side of α, which would otherwise zigzag."""
    lines = []
    sides: tuple[tuple[str, Dash], ...] = (("", "-"),) if plan.kind != "gap" else ((", π < ᾱ", "--"), (", π > ᾱ", "-"))
    for number, run in enumerate(plan.runs):
        mine = [p for p in points if p.run == run]
        for side, dash in sides:
            chosen = [p for p in mine if not side or (p.position["prior"] > plan.mean_rate) == (dash == "-")]
            ordered = sorted((p.of[metric] for p in chosen), key=lambda p: p.x)
            if ordered:
                lines.append(
                    _line(labels[run] + side, [p.x for p in ordered], ordered, number, dash=dash, spread=spread)
                )
    return lines


def _line(
    label: str,
    xs: Sequence[float],
    points: Sequence[Point | None],
    color: int,
    *,
    dash: Dash = "-",
    spread: bool = False,
) -> Series:
    if spread:
        nothing = [None] * len(points)
        return Series(label, xs, [p.std if p else None for p in points], nothing, nothing, color, dash)
    return Series(
        label,
        xs,
        [p.mean if p else None for p in points],
        [p.low if p else None for p in points],
        [p.high if p else None for p in points],
        color,
        dash,
    )
