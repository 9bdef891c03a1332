"""Results of a sweep: one row per cell and metric, points over seeds, and the window of every run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ntmp_cli.config.studies import CountNoiseSweepConfig, PriorSweepConfig
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.sweeps.plans import SweepCell, SweepPlan
from ntmp_cli.sweeps.windows import Point, Window, point, robustness_window, wide_points

if TYPE_CHECKING:
    from ntmp_cli.artifacts.summaries import RunSummary


@dataclass(frozen=True)
class PointOfRun:
    """One point of the sweep for one of its runs: every metric over the seeds that were trained."""

    run: str
    position: Mapping[str, Any]
    planned: int
    of: Mapping[str, Point]


def deployment_prior(plan: SweepPlan, run: RunSummary) -> float:
    """The prior of the data, whatever prior a cell was trained with."""
    known = run.unlabeled_prior
    return known if known is not None else plan.prior or run.prior


def metric_rows(cell: SweepCell, run: RunSummary, values: Mapping[str, float | None]) -> Iterator[dict[str, Any]]:
    """One row per metric of a cell."""
    facts = {"method": run.method, "dataset": run.dataset, "tuples": run.tuples, "prior": run.prior}
    for metric, value in values.items():
        where = {"cell": cell.name, "run": cell.run, **facts, **cell.position, "seed": cell.seed}
        yield {**where, "metric": metric, "value": value}


def points_of(plan: SweepPlan, values: Mapping[str, Mapping[str, float | None]]) -> Iterator[PointOfRun]:
    """Every planned point, including points where no seed was trained."""
    groups: dict[tuple[str, str], list[SweepCell]] = {}
    for cell in plan.cells:
        groups.setdefault((cell.run, repr(cell.position)), []).append(cell)
    for cells in groups.values():
        first = cells[0]
        x = float(first.position[plan.axis]) if plan.axis else 0.0
        seeds = [values[cell.name] for cell in cells if cell.name in values]
        of = {name: point(x, name, [seed[name] for seed in seeds]) for name in metrics.names()}
        yield PointOfRun(first.run, first.position, len(cells), of)


def summary_rows(p: PointOfRun, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Per metric of a point: mean, spread and interval over seeds."""
    for metric, over_seeds in p.of.items():
        facts = {key: value for key, value in asdict(over_seeds).items() if key != "x"}
        yield {"run": labels[p.run], **p.position, "metric": metric, "planned": p.planned, **facts}


def window_of(plan: SweepPlan, run: str, points: Sequence[PointOfRun]) -> Window | None:
    """W_δ if there is a reference point; for the gap only the critical width; nothing for a grid."""
    config = plan.config
    judged = [p.of[config.judge] for p in points if p.run == run]
    if isinstance(config, PriorSweepConfig | CountNoiseSweepConfig):
        unknown = [Point(left.position["offset"], 0, None, None, None, None) for left in plan.left_out]
        return robustness_window([*judged, *unknown], tolerance=config.tolerance, max_width=config.max_width)
    return Window(None, wide_points(judged, config.max_width), ()) if plan.kind == "gap" else None
