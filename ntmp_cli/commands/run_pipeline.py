"""`ntmp run`"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.options import DataRoot, Json, Out, Wide
from ntmp_cli.commands.show import show
from ntmp_cli.config import ReportConfig
from ntmp_cli.config.studies import PipelineConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.ranks import number_of_processes
from ntmp_cli.settings import load

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file of the study.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, e.g. train.epochs=5.", show_default=False),
]

log = logging.getLogger(__name__)


def command(
    config: ConfigFile,
    out: Out,
    set_: Overrides = None,
    data_root: DataRoot = None,
    download: Annotated[bool, typer.Option("--download", help="Fetch the data set if it is missing.")] = False,
    device: Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, mps …")] = "auto",
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Run a study from one file. Creates tuples, runs, evaluation and report below OUT.

    Steps whose inputs and settings have not changed are skipped; an interrupted training is resumed.

    Example: ntmp run sample_configs/quickstart.yaml --out work/quickstart
    """
    from ntmp_cli.artifacts import refuse_overlap
    from ntmp_cli.commands.progress import watching
    from ntmp_cli.commands.result_views import pipeline_view
    from ntmp_cli.stages.pipeline import resolve, run_pipeline
    from ntmp_cli.stages.report import overview_of

    if number_of_processes() > 1:
        raise UsageError("`ntmp run` uses one process", hint="For several, use torchrun -m ntmp_cli train …")
    study = resolve(load(PipelineConfig, config, set_ or ()), str(config))
    refuse_overlap(out, [config], study.folders())
    steps = []
    for step in run_pipeline(study, out, data_root=data_root, download=download, device=device, watching=watching):
        log.info("%s %s", "unchanged" if step.skipped else "done     ", step.name)
        steps.append(step)
    result = {
        "kind": "pipeline",
        "out": str(out),
        "manifest_sha256": steps[-1].artifact.sha256,
        "steps": [
            {
                "step": s.name,
                "kind": s.artifact.kind,
                "skipped": s.skipped,
                "manifest_sha256": s.artifact.sha256,
            }
            for s in steps
        ],
    }
    evaluation = next(step.evaluation for step in steps if step.evaluation is not None)
    report_config = ReportConfig(title="Test results", metrics=study.config.evaluate.metrics)
    overview = overview_of(evaluation, report_config, wide=wide)
    show(result, json, lambda console: pipeline_view(console, overview, out, steps, wide=wide), wide=wide)
