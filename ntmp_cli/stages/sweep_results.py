"""What the cells of a sweep show together: tidy rows, points over seeds, windows, a figure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ntmp_cli.artifacts import Artifact, Plan, describe_input, kept_output, open_artifact, publishing
from ntmp_cli.artifacts.jsonlines import json_lines
from ntmp_cli.artifacts.layout import ROWS, SUMMARY
from ntmp_cli.config import CountNoiseSweepConfig, PriorSweepConfig
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.randomness import stream
from ntmp_cli.reporting.drawing import Dash
from ntmp_cli.reporting.sweep_figures import Line, Mark, Panel, grid_figure, sweep_figure
from ntmp_cli.stages.evaluate import run_metrics, table_csv
from ntmp_cli.sweeps.plans import Cell, SweepPlan
from ntmp_cli.sweeps.windows import Point, Window, point, robustness_window, wide_points

WINDOWS = "windows.json"
AXES = {
    "offset": "offset δ = π̃ − π̂ of the prior",
    "count_noise": "probability p that a count is off by one",
    "gap": "gap |π − ᾱ|",
}
# What a sweep is drawn with beside the metric that is judged, as the paper has it.
PANELS = {"prior": (), "count-noise": ("accuracy", "macro_f1", "fpr"), "gap": ("best_f1", "auroc")}


@dataclass(frozen=True)
class PointOfRun:
    """One point of the sweep for one of its runs: every metric over the seeds that were trained."""

    run: str
    position: Mapping[str, Any]
    planned: int
    of: Mapping[str, Point]


def publish_results(
    plan: SweepPlan, runs: Mapping[str, Artifact], failed: Sequence[str], threads: int, out: Path
) -> Artifact:
    """Score every run on its test labels, summarise over seeds, find the windows and draw them."""
    # Groups of settings may hold paths of this machine; the manifests of the runs say all that is in them.
    settings = plan.config.model_dump(mode="json", exclude={"make_tuples", "train", "runs", "vary"})
    left_out = [{**left.position, "why": left.why} for left in plan.left_out]
    how = {"sweep": plan.kind, "threads_per_cell": threads, "failed": list(failed), "left_out": left_out}
    inputs = tuple(describe_input(run) for run in runs.values())
    publication = Plan(
        "sweep", {**settings, **how, "cells": list(runs)}, None, inputs, tuple(run.path for run in runs.values())
    )
    if kept := kept_output(out, publication, "refresh"):
        return kept
    values = {name: run_metrics(run, metrics.names(), _deployment_prior(plan, run)) for name, run in runs.items()}
    rows = [row for cell in plan.cells if cell.name in runs for row in _rows(cell, runs[cell.name], values[cell.name])]
    points = list(_points(plan, values))
    labels = {
        run: run or next(runs[c.name].summary["method"] for c in plan.cells if c.name in runs) for run in plan.runs
    }
    windows = {run: found for run in plan.runs if (found := _window(plan, run, points)) is not None}
    with publishing(out, publication, if_exists="refresh") as staging:
        staging.add_bytes(ROWS, json_lines(rows), rows=len(rows))
        staging.add_bytes("rows.csv", table_csv(rows), rows=len(rows))
        summary = [entry for p in points for entry in _summary(p, labels)]
        staging.add_json(SUMMARY, summary, rows=len(summary))
        facts = [_window_facts(plan, labels[run], window) for run, window in windows.items()]
        staging.add_json(WINDOWS, facts, rows=len(facts))
        for kind, image in _figure(plan, points, windows, labels, failed).items():
            staging.add_bytes(f"sweep.{kind}", image)
        staging.summary = {
            "sweep": plan.kind,
            "complete": not failed,
            "cells": len(plan.cells),
            "trained": len(runs),
            "failed": list(failed),
            "left_out": left_out,
            "metric": plan.config.metric,
            "windows": facts,
        }
    return open_artifact(out)


def _deployment_prior(plan: SweepPlan, run: Artifact) -> float:
    """The prior that the world has, not the one that a cell was made to believe."""
    known = run.summary["unlabeled_prior"]
    return float(known if known is not None else plan.prior or run.summary["prior"])


def _rows(cell: Cell, run: Artifact, values: Mapping[str, float | None]) -> Iterator[dict[str, Any]]:
    facts = {key: run.summary[key] for key in ("method", "dataset", "tuples", "prior")}
    for metric, value in values.items():
        where = {"cell": cell.name, "run": cell.run, **facts, **cell.position, "seed": cell.seed}
        yield {**where, "metric": metric, "value": value}


def _points(plan: SweepPlan, values: Mapping[str, Mapping[str, float | None]]) -> Iterator[PointOfRun]:
    """Every planned point, also one of which no seed was trained."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in plan.cells:
        groups.setdefault((cell.run, repr(cell.position)), []).append(cell)
    for cells in groups.values():
        first = cells[0]
        x = float(first.position[plan.axis]) if plan.axis else 0.0
        seeds = [values[cell.name] for cell in cells if cell.name in values]
        # The same resamples for every point: what differs between points is their values.
        of = {
            name: point(x, [seed[name] for seed in seeds], plan.config.resamples, stream(0, "sweep-bootstrap"))
            for name in metrics.names()
        }
        yield PointOfRun(first.run, first.position, len(cells), of)


def _summary(p: PointOfRun, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for metric, found in p.of.items():
        facts = {key: value for key, value in asdict(found).items() if key != "x"}
        yield {"run": labels[p.run], **p.position, "metric": metric, "planned": p.planned, **facts}


def _window(plan: SweepPlan, run: str, points: Sequence[PointOfRun]) -> Window | None:
    """W_δ where there is a reference point; for the gap only the critical width; nothing for a grid."""
    config = plan.config
    judged = [p.of[config.metric] for p in points if p.run == run]
    if isinstance(config, PriorSweepConfig | CountNoiseSweepConfig):
        unknown = [Point(left.position["offset"], 0, None, None, None, None) for left in plan.left_out]
        return robustness_window([*judged, *unknown], tolerance=config.tolerance, max_width=config.max_width)
    return Window(None, wide_points(judged, config.max_width), ()) if plan.kind == "gap" else None


def _window_facts(plan: SweepPlan, label: str, window: Window) -> dict[str, Any]:
    facts = {"run": label, "metric": plan.config.metric, "max_width": plan.config.max_width}
    if plan.kind == "gap":
        return {**facts, "critical_ci": window.critical_ci}
    return {
        **facts,
        "tolerance": getattr(plan.config, "tolerance", None),
        "window": None if window.interval is None else list(window.interval),
        "critical_ci": window.critical_ci,
        "critical_performance": window.critical_performance,
    }


# The figure ----------------------------------------------------------------------------------------


def _figure(
    plan: SweepPlan,
    points: Sequence[PointOfRun],
    windows: Mapping[str, Window],
    labels: Mapping[str, str],
    failed: Sequence[str],
) -> dict[str, bytes]:
    title = plan.config.title or f"Sweep of {'settings' if plan.axis is None else AXES[plan.axis]}"
    title += f" (incomplete: {len(failed)} of {len(plan.cells)} cells failed)" if failed else ""
    metric = plan.config.metric
    if plan.axis is None:
        named = [f"{p.run} " * bool(p.run) + _short(p.position) for p in points]
        found = [p.of[metric] for p in points]
        return grid_figure(named, [(p.mean, p.low, p.high) for p in found], xlabel=metric, title=title)
    note = "Mean over seeds, 95 % bootstrap interval."
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
    """One panel per run: its window and its critical offsets are its own."""
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
    """One panel per metric with a line per run; a window is shaded where there is but one run."""
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
) -> list[Line]:
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
) -> Line:
    if spread:
        nothing = [None] * len(points)
        return Line(label, xs, [p.std if p else None for p in points], nothing, nothing, color, dash)
    return Line(
        label,
        xs,
        [p.mean if p else None for p in points],
        [p.low if p else None for p in points],
        [p.high if p else None for p in points],
        color,
        dash,
    )
