"""`ntmp sweep prior | count-noise | gap | grid`"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ntmp_cli.commands.choices import names_of
from ntmp_cli.commands.options import DataRoot, Json, Wide, with_config
from ntmp_cli.commands.prior_from import PriorFrom, prior_setting
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config.studies import (
    SWEEP_FOLDERS,
    CountNoiseSweepConfig,
    GapSweepConfig,
    GridSweepConfig,
    PriorSweepConfig,
    SweepConfig,
)

if TYPE_CHECKING:
    from ntmp_cli.stages.sweep import Sweep, SweepFolder
    from ntmp_cli.sweeps.plans import SweepPlan

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.callback()
def command() -> None:
    """Train over a grid of settings and show their effect. A rerun continues where it stopped."""


GivenTuples = Annotated[
    Path | None,
    typer.Option(
        "--tuples",
        help="Train on this tuples directory, which needs test labels; then only the training seed varies.",
        show_default=False,
    ),
]


METRICS = {"metrics": names_of("metrics"), "judge": names_of("metrics")}


def _complete_engine(incomplete: str) -> list[str]:
    return [name for name in names_of("engines")() if name.startswith(incomplete)]


@dataclass(frozen=True)
class Running:
    """How a sweep is run. Only the number of threads changes its results."""

    out: Annotated[Path, typer.Option("--out", "-o", help="Directory to create or to continue.", show_default=False)]
    engine: Annotated[
        str,
        typer.Option("--engine", help="Where cells are trained: local or ray.", autocompletion=_complete_engine),
    ] = "local"
    ray_address: Annotated[
        str | None,
        typer.Option(
            "--ray-address",
            help="Ray cluster to join: HOST:PORT or auto. Default: start one on this machine. "
            "OUT must be visible to all nodes.",
            show_default=False,
        ),
    ] = None
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", "-j", min=1, help="Cells to train in parallel. Default: as many as the cores allow."),
    ] = None
    threads_per_cell: Annotated[
        int, typer.Option("--threads-per-cell", min=1, help="CPU threads per cell; they affect the last digits.")
    ] = 1
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cells and which are done; train none.")] = False
    data_root: DataRoot = None
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is missing.")] = False
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps …")] = "auto"
    wide: Wide = False
    json: Json = False


@app.command("prior")
@with_config(
    PriorSweepConfig,
    complete=METRICS,
    stand_in=prior_setting,
    folders=SWEEP_FOLDERS,
)
def prior(config: PriorSweepConfig, running: Running, tuples: GivenTuples = None, prior_from: PriorFrom = None) -> None:
    """Train with misspecified class priors. Creates cells, rows, the robustness window and a figure below OUT.

    The method is ure unless train.method is set.

    Example: ntmp sweep prior --prior 0.5 --set train.epochs=10 --out work/sweep-prior
    """
    from ntmp_cli.artifacts import refuse_overlap

    refuse_overlap(running.out, () if prior_from is None else (prior_from,), SWEEP_FOLDERS)
    _sweep(config, running, tuples)


@app.command("count-noise")
@with_config(
    CountNoiseSweepConfig,
    complete=METRICS,
    folders=SWEEP_FOLDERS,
)
def count_noise(config: CountNoiseSweepConfig, running: Running) -> None:
    """Train with a growing share of counts that are off by one. Creates cells, rows, a window and a figure below OUT.

    Compares count and ure+abs unless runs or train.method is set. Neither method is given the noise rate.

    Example: ntmp sweep count-noise --set make_tuples.prior=0.5 --out work/sweep-noise
    """
    _sweep(config, running)


@app.command("gap")
@with_config(GapSweepConfig, complete=METRICS, folders=SWEEP_FOLDERS)
def gap(config: GapSweepConfig, running: Running) -> None:
    """Vary the gap between pool prior and tuple rate. Creates cells, rows and a figure below OUT.

    The method is ure unless train.method is set.

    Example: ntmp sweep gap --set train.epochs=10 --out work/sweep-gap
    """
    _sweep(config, running)


@app.command("grid")
@with_config(
    GridSweepConfig,
    complete=METRICS,
    folders=SWEEP_FOLDERS,
    assignments={
        "vary": "Setting and its values, e.g. train.lr=[0.001,0.0001] or make_tuples.prior=[0.2,0.5]; repeatable."
    },
)
def grid(config: GridSweepConfig, running: Running, tuples: GivenTuples = None) -> None:
    """Train with every combination of given values. Creates cells, rows and a figure below OUT.

    Example: ntmp sweep grid --vary 'train.lr=[0.01,0.001]' --set make_tuples.prior=0.5 --out work/sweep-lr
    """
    _sweep(config, running, tuples)


def _sweep(config: SweepConfig, running: Running, tuples: Path | None = None) -> None:
    from ntmp_cli.commands.progress import watching_cells
    from ntmp_cli.commands.result_views import sweep_view
    from ntmp_cli.stages.sweep import SweepFolder, failed_cells, resolve, run_sweep
    from ntmp_cli.sweeps.engine import Resources

    plan = resolve(config, tuples)
    folder = SweepFolder(running.out, tuples, running.data_root, running.download, running.device)
    if running.dry_run:
        _list_cells(plan, folder, running.json)
        return
    gpu = running.device.startswith("cuda")
    resources = Resources(running.jobs, running.threads_per_cell, running.ray_address, gpu)
    with watching_cells() as watch:
        sweep = run_sweep(plan, folder, engine=running.engine, resources=resources, watch=watch)
    show(
        _facts(sweep, running.out),
        running.json,
        lambda console: sweep_view(console, sweep, wide=running.wide),
        wide=running.wide,
    )
    if sweep.tally.failures:
        raise failed_cells(sweep.tally, f"{sweep.results.path} has the results of the others")


def _list_cells(plan: SweepPlan, folder: SweepFolder, json: bool) -> None:
    from ntmp_cli.commands.result_views import plan_view
    from ntmp_cli.stages.sweep import finished_cells

    finished = finished_cells(plan, folder)
    cells = [{"cell": cell.name, "done": cell.name in finished} for cell in plan.cells]
    left_out = [{**left.position, "why": left.why} for left in plan.left_out]
    facts = {"kind": "sweep-plan", "sweep": plan.kind, "prior": plan.prior, "out": str(folder.out), "total": len(cells)}
    result = {**facts, "done": len(finished), "cells": cells, "left_out": left_out}
    show(result, json, lambda console: plan_view(console, plan, finished))


def _facts(sweep: Sweep, out: Path) -> dict[str, object]:
    tally, summary = sweep.tally, sweep.results.summary
    shown = {"sweep", "complete", "cells", "left_out", "metric", "windows"}
    return {
        **identity(sweep.results, out),
        "results": str(sweep.results.path),
        **summary.model_dump(mode="json", include=shown, exclude_unset=True),
        "trained": tally.trained,
        "kept": tally.kept,
        "failed": [{"cell": f.cell, "message": f.message, "log": str(f.log)} for f in tally.failures],
        "points": sweep.points,
    }
