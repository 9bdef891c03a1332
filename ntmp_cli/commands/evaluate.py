"""`ntmp evaluate`"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.choices import metric_names
from ntmp_cli.commands.options import IfExists, Json, Out, Wide, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import EvaluateConfig

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)]


@with_config(EvaluateConfig, complete={"metrics": metric_names})
def command(
    config: EvaluateConfig,
    runs: Runs,
    out: Out,
    if_exists: IfExists = "fail",
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Score runs on the hidden test labels and compare them. Creates an evaluation directory.

    Example: ntmp evaluate work/run-*-* --reference ure+abs --out work/eval
    """
    from ntmp_cli.artifacts.jsonlines import read_json_lines
    from ntmp_cli.artifacts.layout import COMPARISONS, RANKINGS, ROWS, SUMMARY
    from ntmp_cli.commands.views import overview_view
    from ntmp_cli.stages.evaluate import evaluate
    from ntmp_cli.stages.report import overview_of

    evaluation = evaluate(config, runs, out, if_exists=if_exists)
    tables = {"rows": ROWS, "comparisons": COMPARISONS, "rankings": RANKINGS}
    groups = json_module.loads(evaluation.file(SUMMARY).read_bytes())
    lines = {name: read_json_lines(evaluation, file) for name, file in tables.items()}
    result = {**identity(evaluation, out), "summary": groups, **lines}
    overview = overview_of(evaluation, wide=wide)
    show(result, json, lambda console: overview_view(console, overview, wide=wide), wide=wide)
