"""sweep: many trainings from one plan, one run directory each, and the results over all of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ntmp_cli.artifacts import (
    Artifact,
    Plan,
    RunArtifact,
    TuplesArtifact,
    describe_input,
    existing_output,
    folder_lock,
    open_artifact,
    publishing,
    refuse_overlap,
)
from ntmp_cli.artifacts.jsonlines import json_lines, read_json_rows, table_csv
from ntmp_cli.artifacts.layout import ROWS, SUMMARY
from ntmp_cli.artifacts.manifest import carries_manifest
from ntmp_cli.artifacts.named_files import weights_files
from ntmp_cli.artifacts.summaries import SweepSummary, WindowSummary
from ntmp_cli.config import MakeTuplesConfig
from ntmp_cli.config.studies import (
    SWEEP_FOLDERS,
    CountNoiseSweepConfig,
    GapSweepConfig,
    GridSweepConfig,
    PriorSweepConfig,
    SweepConfig,
)
from ntmp_cli.data.labelled import LabelledData, load_labelled, named_paths
from ntmp_cli.data.specs import mean_rate, parse_spec
from ntmp_cli.errors import ArtifactError, FailedCellsError, InterruptedRunError, NtmpError, UsageError
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.plugins import plugin_files, plugin_settings
from ntmp_cli.reporting.operating import data_caption, operating_of_summary
from ntmp_cli.reporting.sweep_panels import SweepResults, sweep_image
from ntmp_cli.settings import build
from ntmp_cli.stages.evaluate import run_metrics
from ntmp_cli.stages.make_tuples import table_columns, tuples_from_labelled, tuples_plan
from ntmp_cli.stages.pipeline import require_known_names
from ntmp_cli.stages.train import resolve_prior, training_plan
from ntmp_cli.sweeps.calls import Call, CallOutcome
from ntmp_cli.sweeps.engine import Engine, Resources, engines
from ntmp_cli.sweeps.plans import SweepCell, SweepPlan, plan_count_noise, plan_gap, plan_grid, plan_prior
from ntmp_cli.sweeps.point_tests import point_tests
from ntmp_cli.sweeps.results import deployment_prior, metric_rows, points_of, summary_rows, window_of
from ntmp_cli.sweeps.windows import Window

log = logging.getLogger(__name__)

WINDOWS = "windows.json"


@dataclass(frozen=True)
class Failure:
    """A cell that could not be trained, why, and where its log lies."""

    cell: str
    message: str
    exit_code: int
    log: Path


@dataclass
class Tally:
    """The progress of a sweep."""

    total: int
    kept: int = 0
    trained: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.kept + self.trained


@dataclass(frozen=True)
class _Progress:
    """The progress of a sweep, its watcher, and whether the user wants to stop."""

    tally: Tally
    stopping: Callable[[], bool]
    watch: Callable[[Tally], None]

    def stop_if_requested(self) -> None:
        if self.stopping():
            raise InterruptedRunError(
                f"interrupted; {self.tally.done} of {self.tally.total} cells are done",
                hint="Run the same command to continue.",
            )


@dataclass(frozen=True)
class Sweep:
    """A finished sweep; some of its cells may have failed."""

    plan: SweepPlan
    tally: Tally
    results: Artifact[SweepSummary]
    points: list[dict[str, Any]]
    """Per point of the sweep and metric: mean, spread and interval over seeds."""


def resolve(config: SweepConfig, tuples_path: Path | None = None) -> SweepPlan:
    """Check every setting of every cell before anything runs."""
    for metric in (config.judge, *config.metrics):
        metrics.get(metric)
    given = None if tuples_path is None else _with_test_labels(tuples_path)
    if isinstance(config, PriorSweepConfig):
        plan = plan_prior(config, _estimate(config), _mean_rate(config, given), given_tuples=given is not None)
    elif isinstance(config, CountNoiseSweepConfig):
        plan = plan_count_noise(config)
    elif isinstance(config, GapSweepConfig):
        plan = plan_gap(config, _mean_rates(config))
    else:
        assert isinstance(config, GridSweepConfig)
        plan = plan_grid(config, given_tuples=given is not None)
    tuples = {cell.tuples.model_copy(update={"seed": 0}): None for cell in plan.cells if cell.tuples}
    require_known_names(tuples, [cell.training for cell in plan.cells])
    return plan


def _with_test_labels(path: Path) -> TuplesArtifact:
    tuples = open_artifact(path, "tuples")
    if not tuples.summary.test_labels:
        raise ArtifactError(
            f"{path}: holds no test labels, so that no metric can be computed",
            hint="Import the tuples together with labelled test instances.",
        )
    return tuples


def _estimate(config: PriorSweepConfig) -> float:
    """π̂, given or known from the settings of the tuples."""
    if config.prior is not None:
        return config.prior
    if config.make_tuples.get("prior") is None:
        raise UsageError("prior: required, but not given (--prior)", hint="Offsets are added to the estimate π̂.")
    known = build(MakeTuplesConfig, config.make_tuples, "make_tuples").prior
    assert known is not None
    return known


def _mean_rate(config: SweepConfig, given: TuplesArtifact | None) -> float:
    if given is not None:
        return given.summary.mean_rate
    return mean_rate([parse_spec(text) for text in build(MakeTuplesConfig, config.make_tuples, "make_tuples").tuples])


def _mean_rates(config: GapSweepConfig) -> dict[str, float]:
    """ᾱ of every tuple spec that shares the axis, or of the tuples of make_tuples."""
    if not config.tuples:
        return {"": _mean_rate(config, None)}
    if {"tuples", "n", "m"} & config.make_tuples.keys():
        raise UsageError("tuples: given twice, also as make_tuples.tuples", hint="Leave one of them out.")
    return {text: mean_rate([parse_spec(text)]) for text in config.tuples}


@dataclass(frozen=True)
class SweepFolder:
    """The output folder of a sweep, and where its data come from."""

    out: Path
    given_tuples: Path | None = None
    data_root: Path | None = None
    download: bool = False
    device: str = "auto"

    def folders(self) -> list[str]:
        """The folders below OUT."""
        return [name for name in SWEEP_FOLDERS if name != "tuples" or self.given_tuples is None]

    def cell(self, cell: SweepCell) -> Path:
        return self.out / "cells" / cell.name

    def log(self, cell: SweepCell) -> Path:
        return self.out / "logs" / f"{cell.name}.log"

    def tuples(self, cell: SweepCell) -> Path:
        return self.given_tuples or self.out / "tuples" / cell.tuples_name

    def loader(self) -> Callable[[MakeTuplesConfig], LabelledData]:
        """Data sets by their settings; the last one is cached."""
        load = lru_cache(maxsize=1)(partial(load_labelled, root=self.data_root, download=self.download))
        return lambda config: load(config.dataset, resize=config.resize, columns=table_columns(config))


def finished_cells(plan: SweepPlan, folder: SweepFolder) -> set[str]:
    """Names of the cells that a run would keep; nothing is made or changed."""
    load = folder.loader()
    current: dict[str, bool] = {}
    finished = set()
    for cell in plan.cells:
        path = folder.tuples(cell)
        if cell.tuples_name not in current:
            current[cell.tuples_name] = cell.tuples is None or (
                carries_manifest(path) and _fulfils(path, tuples_plan(cell.tuples, load(cell.tuples)))
            )
        if not current[cell.tuples_name]:
            continue
        if _fulfils(folder.cell(cell), _training_plan(cell, open_artifact(path, "tuples"))):
            finished.add(cell.name)
    return finished


def _training_plan(cell: SweepCell, tuples: TuplesArtifact) -> Plan:
    return training_plan(cell.training, tuples, resolve_prior(cell.training, tuples, None))


def _fulfils(path: Path, plan: Plan) -> bool:
    return carries_manifest(path) and open_artifact(path).manifest.fulfils(plan)


def run_sweep(
    plan: SweepPlan,
    folder: SweepFolder,
    *,
    engine: str = "local",
    resources: Resources,
    watch: Callable[[Tally], None] = lambda tally: None,
) -> Sweep:
    """Train every missing cell and publish the results of all. One failure stops no other."""
    start = engines.get(engine)
    refuse_overlap(folder.out, _reads(plan, folder), folder.folders())
    with folder_lock(folder.out) as locked, stop_requested() as stopping:
        if not locked:
            raise UsageError(
                f"{folder.out}: another sweep is running in this folder", hint="Wait for it, or choose another OUT."
            )
        tally = Tally(len(plan.cells))
        progress = _Progress(tally, stopping, watch)
        plans = _training_plans(plan, folder, progress)
        waiting = []
        for cell in plan.cells:
            if cell.name not in plans:
                continue
            if existing_output(folder.cell(cell), plans[cell.name], "refresh"):
                tally.kept += 1
            else:
                waiting.append(cell)
        watch(tally)
        _train(waiting, plans, folder, progress, start, resources)
    order = {cell.name: number for number, cell in enumerate(plan.cells)}
    tally.failures.sort(key=lambda failure: order[failure.cell])
    if not tally.done:
        raise failed_cells(tally, "no cell could be trained")
    failed = [failure.cell for failure in tally.failures]
    runs = {cell.name: open_artifact(folder.cell(cell), "run") for cell in plan.cells if cell.name not in failed}
    return Sweep(plan, tally, *_publish_results(plan, runs, failed, resources.threads, folder.out / "results"))


def _reads(plan: SweepPlan, folder: SweepFolder) -> set[Path]:
    """The inputs that come from outside."""
    given = () if folder.given_tuples is None else (folder.given_tuples,)
    named = [path for cell in plan.cells if cell.tuples for path in named_paths(cell.tuples.dataset)]
    return {*given, *named, *(file for cell in plan.cells for file in weights_files(cell.training))}


def failed_cells(tally: Tally, what: str) -> FailedCellsError:
    """All failures in one message; equal ones are listed once."""
    causes: dict[str, list[Failure]] = {}
    for failure in tally.failures:
        causes.setdefault(failure.message, []).append(failure)
    lines = []
    for message, failures in causes.items():
        first, more = failures[0], len(failures) - 1
        lines.append(f"{first.cell}{f' and {more} more' if more else ''}: {message} (log: {first.log})")
    return FailedCellsError(
        f"{len(tally.failures)} of {tally.total} cells failed; {what}\n  " + "\n  ".join(lines),
        hint="The same command tries them again and keeps the others.",
        exit_code=tally.failures[0].exit_code or 1,
    )


def _training_plans(plan: SweepPlan, folder: SweepFolder, progress: _Progress) -> dict[str, Plan]:
    """Make the tuples that cells share once, and plan the training of every cell; cells without tuples fail."""
    load = folder.loader()
    tuples: dict[str, TuplesArtifact | NtmpError] = {}
    plans = {}
    for cell in plan.cells:
        progress.stop_if_requested()
        if cell.tuples_name not in tuples:
            tuples[cell.tuples_name] = _tuples_of(cell, folder, load)
        made = tuples[cell.tuples_name]
        if isinstance(made, NtmpError):
            progress.tally.failures.append(_without_tuples(cell, made, folder))
        else:
            plans[cell.name] = _training_plan(cell, made)
    return plans


def _tuples_of(
    cell: SweepCell, folder: SweepFolder, load: Callable[[MakeTuplesConfig], LabelledData]
) -> TuplesArtifact | NtmpError:
    out = folder.tuples(cell)
    if cell.tuples is None:
        return open_artifact(out, "tuples")
    specs = [parse_spec(text) for text in cell.tuples.tuples]
    try:
        return tuples_from_labelled(cell.tuples, specs, load(cell.tuples), out, if_exists="refresh")
    except NtmpError as error:
        return error


def _without_tuples(cell: SweepCell, error: NtmpError, folder: SweepFolder) -> Failure:
    file = folder.log(cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"make-tuples: {error.message}\n{error.hint or ''}\n", encoding="utf-8")
    return Failure(cell.name, error.message, error.exit_code, file)


def _train(
    cells: Sequence[SweepCell],
    plans: dict[str, Plan],
    folder: SweepFolder,
    progress: _Progress,
    start: Engine,
    resources: Resources,
) -> None:
    """Have the engine train these cells; a cell counts as trained once its run directory is on disk."""
    if not cells:
        return
    calls = [_call(cell, folder, resources.threads) for cell in cells]
    tally, by_name = progress.tally, {cell.name: cell for cell in cells}
    with closing(start(calls, resources)) as outcomes:
        for outcome in outcomes:
            progress.stop_if_requested()
            if outcome is not None:
                cell = by_name[outcome.name]
                failure = _failure(cell, outcome, plans[cell.name], folder)
                if failure is None:
                    tally.trained += 1
                else:
                    tally.failures.append(failure)
            progress.watch(tally)


def _call(cell: SweepCell, folder: SweepFolder, threads: int) -> Call:
    file = folder.log(cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    arguments = {
        "training": cell.training.model_dump(mode="json", exclude_unset=True),
        "tuples": str(folder.tuples(cell).absolute()),
        "out": str(folder.cell(cell).absolute()),
        "features": str((folder.out / "features").absolute()),
        "device": folder.device,
    }
    function = "ntmp_cli.stages.train:train_cell"
    return Call(cell.name, function, arguments, str(file.absolute()), threads, plugin_files())


def _failure(cell: SweepCell, outcome: CallOutcome, plan: Plan, folder: SweepFolder) -> Failure | None:
    if outcome.error is not None:
        return Failure(cell.name, outcome.error, outcome.exit_code, folder.log(cell))
    if not _fulfils(folder.cell(cell), plan):
        unseen = (
            f"its worker published it, but {folder.cell(cell)} does not exist here: OUT must be visible to all nodes"
        )
        return Failure(cell.name, unseen, ArtifactError.exit_code, folder.log(cell))
    return None


# Results -------------------------------------------------------------------------------------------


def _publish_results(
    plan: SweepPlan, runs: Mapping[str, RunArtifact], failed: Sequence[str], threads: int, out: Path
) -> tuple[Artifact[SweepSummary], list[dict[str, Any]]]:
    """Score every run on its test labels, summarise over seeds, find the windows and plot them.

    Returns what was published, and its rows per point and metric.
    """
    # Groups of settings may hold paths of this machine; the manifests of the runs say all that is in them.
    settings = plan.config.model_dump(mode="json", exclude={"make_tuples", "train", "runs", "vary"})
    left_out = [{**left.position, "why": left.why} for left in plan.left_out]
    how = {"sweep": plan.kind, "threads_per_cell": threads, "failed": list(failed), "left_out": left_out}
    inputs = tuple(describe_input(run) for run in runs.values())
    how |= {"cells": list(runs), **plugin_settings({"metrics": metrics.names()})}
    publication = Plan("sweep", {**settings, **how}, None, inputs, tuple(run.path for run in runs.values()))
    if kept := existing_output(out, publication, "refresh"):
        return kept, read_json_rows(kept, SUMMARY)
    values = {
        name: run_metrics(run, metrics.names(), deployment_prior(plan, run.summary)) for name, run in runs.items()
    }
    trained = [cell for cell in plan.cells if cell.name in runs]
    rows = [row for cell in trained for row in metric_rows(cell, runs[cell.name].summary, values[cell.name])]
    points = list(points_of(plan, values))
    labels = {run: run or runs[trained[0].name].summary.method for run in plan.runs}
    windows = {run: window for run in plan.runs if (window := window_of(plan, run, points)) is not None}
    with publishing(out, publication, if_exists="refresh") as staging:
        staging.add_bytes(ROWS, json_lines(rows), rows=len(rows))
        staging.add_bytes("rows.csv", table_csv(rows), rows=len(rows))
        summary = [entry for p in points for entry in summary_rows(p, labels)]
        staging.add_json(SUMMARY, summary, rows=len(summary))
        window_summaries = tuple(_window_summary(plan, labels[run], window) for run, window in windows.items())
        staging.add_json(WINDOWS, [window.to_json() for window in window_summaries], rows=len(window_summaries))
        tests = point_tests(plan, values)
        compared = [row for test in tests for row in test.rows(plan.config.judge)]
        staging.add_json("tests.json", compared, rows=len(compared))
        caption = data_caption([operating_of_summary(run.summary) for run in runs.values()], plan.config.seeds)
        results = SweepResults(plan, points, windows, labels, tests)
        for kind, image in sweep_image(results, caption, failed).items():
            staging.add_bytes(f"sweep.{kind}", image)
        staging.summary = SweepSummary(
            sweep=plan.kind,
            complete=not failed,
            cells=len(plan.cells),
            trained=len(runs),
            failed=tuple(failed),
            left_out=tuple(left_out),
            metric=plan.config.judge,
            windows=window_summaries,
            caption=caption,
        )
    return open_artifact(out, "sweep"), summary


def _window_summary(plan: SweepPlan, label: str, window: Window) -> WindowSummary:
    common: dict[str, Any] = {"run": label, "metric": plan.config.judge, "max_width": plan.config.max_width}
    if not isinstance(plan.config, PriorSweepConfig | CountNoiseSweepConfig):
        return WindowSummary(**common, critical_ci=window.critical_ci)
    return WindowSummary(
        **common,
        tolerance=plan.config.tolerance,
        window=window.interval,
        critical_ci=window.critical_ci,
        critical_performance=window.critical_performance,
    )
