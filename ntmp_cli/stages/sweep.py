"""sweep: many trainings from one plan, each its own run directory, and what they show together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

from ntmp_cli.artifacts import Artifact, Plan, kept_output, open_artifact, refuse_overlap, sole_user
from ntmp_cli.artifacts.layout import SWEEP_FOLDERS, TEST_LABELS
from ntmp_cli.artifacts.manifest import carries_manifest
from ntmp_cli.config import (
    CountNoiseSweepConfig,
    GapSweepConfig,
    GridSweepConfig,
    MakeTuplesConfig,
    PriorSweepConfig,
    SweepConfig,
)
from ntmp_cli.data.labelled import LabelledData, load_labelled, named_paths
from ntmp_cli.data.specs import mean_rate, parse_spec
from ntmp_cli.errors import ArtifactError, FailedCellsError, InterruptedRunError, NtmpError, UsageError
from ntmp_cli.evaluation.metrics import metrics
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.settings import build
from ntmp_cli.stages.features import weights_files
from ntmp_cli.stages.make_tuples import tuples_from_labelled, tuples_plan
from ntmp_cli.stages.pipeline import require_known_names
from ntmp_cli.stages.sweep_results import publish_results
from ntmp_cli.stages.train import training_plan
from ntmp_cli.sweeps.calls import Call, Outcome
from ntmp_cli.sweeps.engine import Engine, Resources, engines
from ntmp_cli.sweeps.plans import Cell, SweepPlan, plan_count_noise, plan_gap, plan_grid, plan_prior

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Failure:
    """A cell that could not be trained, why, and where its log lies."""

    cell: str
    message: str
    exit_code: int
    log: Path


@dataclass
class Tally:
    """How far a sweep has come."""

    total: int
    kept: int = 0
    trained: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def done(self) -> int:
        return self.kept + self.trained


@dataclass(frozen=True)
class Sweep:
    """A sweep that has run to its end, though perhaps not in all cells."""

    plan: SweepPlan
    tally: Tally
    results: Artifact


def resolve(config: SweepConfig, own_tuples: Path | None = None) -> SweepPlan:
    """Check every setting of every cell before anything runs."""
    metrics.get(config.metric)
    own = None if own_tuples is None else _with_test_labels(own_tuples)
    if isinstance(config, PriorSweepConfig):
        plan = plan_prior(config, _estimate(config), _mean_rate(config, own), own_tuples=own is not None)
    elif isinstance(config, CountNoiseSweepConfig):
        plan = plan_count_noise(config)
    elif isinstance(config, GapSweepConfig):
        plan = plan_gap(config, _mean_rate(config, own))
    else:
        assert isinstance(config, GridSweepConfig)
        plan = plan_grid(config, own_tuples=own is not None)
    drawings = {cell.tuples.model_copy(update={"seed": 0}): None for cell in plan.cells if cell.tuples}
    require_known_names(drawings, [cell.training for cell in plan.cells])
    return plan


def _with_test_labels(path: Path) -> Artifact:
    tuples = open_artifact(path, "tuples")
    if not tuples.entries(TEST_LABELS):
        raise ArtifactError(
            f"{path}: holds no test labels, so that no metric can be computed",
            hint="Import the tuples together with labelled test instances.",
        )
    return tuples


def _estimate(config: PriorSweepConfig) -> float:
    """π̂. The one place that knows where it comes from."""
    if config.prior is not None:
        return config.prior
    if config.make_tuples.get("prior") is None:
        raise UsageError("prior: required, but not given (--prior)", hint="Offsets are added to the estimate π̂.")
    known = build(MakeTuplesConfig, config.make_tuples, "make_tuples").prior
    assert known is not None
    return known


def _mean_rate(config: SweepConfig, own: Artifact | None) -> float:
    if own is not None:
        return float(own.summary["mean_rate"])
    return mean_rate([parse_spec(text) for text in build(MakeTuplesConfig, config.make_tuples, "make_tuples").tuples])


@dataclass(frozen=True)
class Workplace:
    """Where a sweep lives, and where its data come from."""

    out: Path
    own_tuples: Path | None = None
    data_root: Path | None = None
    download: bool = False
    device: str = "auto"

    def folders(self) -> list[str]:
        """What is made below OUT."""
        return [folder for folder in SWEEP_FOLDERS if folder != "tuples" or self.own_tuples is None]

    def cell(self, cell: Cell) -> Path:
        return self.out / "cells" / cell.name

    def log(self, cell: Cell) -> Path:
        return self.out / "logs" / f"{cell.name}.log"

    def tuples(self, cell: Cell) -> Path:
        return self.own_tuples or self.out / "tuples" / cell.tuples_name

    def loader(self) -> Callable[[MakeTuplesConfig], LabelledData]:
        """Data sets by their settings; the last one is remembered."""
        load = lru_cache(maxsize=1)(partial(load_labelled, root=self.data_root, download=self.download))
        return lambda config: load(config.dataset, resize=config.resize)


def finished_cells(plan: SweepPlan, place: Workplace) -> set[str]:
    """Names of the cells that a run would keep; nothing is made or changed."""
    load = place.loader()
    current: dict[str, bool] = {}
    finished = set()
    for cell in plan.cells:
        path = place.tuples(cell)
        if cell.tuples_name not in current:
            current[cell.tuples_name] = cell.tuples is None or (
                carries_manifest(path) and _fulfils(path, tuples_plan(cell.tuples, load(cell.tuples)))
            )
        if current[cell.tuples_name] and _fulfils(place.cell(cell), training_plan(cell.training, open_artifact(path))):
            finished.add(cell.name)
    return finished


def _fulfils(path: Path, plan: Plan) -> bool:
    return carries_manifest(path) and open_artifact(path).manifest.fulfils(plan)


def run_sweep(
    plan: SweepPlan,
    place: Workplace,
    *,
    engine: str = "local",
    resources: Resources,
    watch: Callable[[Tally], None] = lambda tally: None,
) -> Sweep:
    """Train every cell that is not there yet, whatever becomes of the others, and publish what all of them show."""
    start = engines.get(engine)
    refuse_overlap(place.out, _reads(plan, place), place.folders())
    with sole_user(place.out) as mine, stop_requested() as stopping:
        if not mine:
            raise UsageError(f"{place.out}: another sweep is at work there", hint="Wait for it, or choose another OUT.")
        tally = Tally(len(plan.cells))
        plans = _training_plans(plan, place, tally, stopping)
        waiting = []
        for cell in plan.cells:
            if cell.name not in plans:
                continue
            if kept_output(place.cell(cell), plans[cell.name], "refresh"):
                tally.kept += 1
            else:
                waiting.append(cell)
        watch(tally)
        _train(waiting, plans, place, tally, start, resources, stopping, watch)
    order = {cell.name: number for number, cell in enumerate(plan.cells)}
    tally.failures.sort(key=lambda failure: order[failure.cell])
    if not tally.done:
        raise failed_cells(tally, "no cell could be trained")
    failed = [failure.cell for failure in tally.failures]
    runs = {cell.name: open_artifact(place.cell(cell), "run") for cell in plan.cells if cell.name not in failed}
    return Sweep(plan, tally, publish_results(plan, runs, failed, resources.threads, place.out / "results"))


def _reads(plan: SweepPlan, place: Workplace) -> set[Path]:
    """The inputs that come from outside."""
    own = () if place.own_tuples is None else (place.own_tuples,)
    named = [path for cell in plan.cells if cell.tuples for path in named_paths(cell.tuples.dataset)]
    return {*own, *named, *(file for cell in plan.cells for file in weights_files(cell.training))}


def failed_cells(tally: Tally, what: str) -> FailedCellsError:
    """All failures in one message; equal ones are told once."""
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


def _training_plans(plan: SweepPlan, place: Workplace, tally: Tally, stopping: Callable[[], bool]) -> dict[str, Plan]:
    """Make the tuples that cells share, each once, and say what each cell will be; cells without tuples fail."""
    load = place.loader()
    tuples: dict[str, Artifact | NtmpError] = {}
    plans = {}
    for cell in plan.cells:
        if stopping():
            raise _interrupted(tally)
        if cell.tuples_name not in tuples:
            tuples[cell.tuples_name] = _tuples_of(cell, place, load)
        made = tuples[cell.tuples_name]
        if isinstance(made, NtmpError):
            tally.failures.append(_without_tuples(cell, made, place))
        else:
            plans[cell.name] = training_plan(cell.training, made)
    return plans


def _tuples_of(cell: Cell, place: Workplace, load: Callable[[MakeTuplesConfig], LabelledData]) -> Artifact | NtmpError:
    out = place.tuples(cell)
    if cell.tuples is None:
        return open_artifact(out, "tuples")
    specs = [parse_spec(text) for text in cell.tuples.tuples]
    try:
        return tuples_from_labelled(cell.tuples, specs, load(cell.tuples), out, if_exists="refresh")
    except NtmpError as error:
        return error


def _without_tuples(cell: Cell, error: NtmpError, place: Workplace) -> Failure:
    file = place.log(cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"make-tuples: {error.message}\n{error.hint or ''}\n", encoding="utf-8")
    return Failure(cell.name, error.message, error.exit_code, file)


def _train(
    cells: Sequence[Cell],
    plans: dict[str, Plan],
    place: Workplace,
    tally: Tally,
    start: Engine,
    resources: Resources,
    stopping: Callable[[], bool],
    watch: Callable[[Tally], None],
) -> None:
    """Have the engine train these cells; each is believed only once it is seen on disk."""
    if not cells:
        return
    calls = [_call(cell, place, resources.threads) for cell in cells]
    by_name = {cell.name: cell for cell in cells}
    with closing(start(calls, resources)) as outcomes:
        for outcome in outcomes:
            if stopping():
                raise _interrupted(tally)
            if outcome is not None:
                cell = by_name[outcome.name]
                failure = _failure(cell, outcome, plans[cell.name], place)
                if failure is None:
                    tally.trained += 1
                else:
                    tally.failures.append(failure)
            watch(tally)


def _call(cell: Cell, place: Workplace, threads: int) -> Call:
    file = place.log(cell)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    arguments = {
        "training": cell.training.model_dump(mode="json", exclude_unset=True),
        "tuples": str(place.tuples(cell).absolute()),
        "out": str(place.cell(cell).absolute()),
        "features": str((place.out / "features").absolute()),
        "device": place.device,
    }
    return Call(cell.name, "ntmp_cli.stages.sweep_cell:train_cell", arguments, str(file.absolute()), threads)


def _failure(cell: Cell, outcome: Outcome, plan: Plan, place: Workplace) -> Failure | None:
    if outcome.error is not None:
        return Failure(cell.name, outcome.error, outcome.exit_code, place.log(cell))
    if not _fulfils(place.cell(cell), plan):
        unseen = f"its worker published it, but {place.cell(cell)} is not there: OUT must lie where all nodes see it"
        return Failure(cell.name, unseen, ArtifactError.exit_code, place.log(cell))
    return None


def _interrupted(tally: Tally) -> InterruptedRunError:
    return InterruptedRunError(
        f"interrupted; {tally.done} of {tally.total} cells are done", hint="The same command goes on from here."
    )
