"""`ntmp evaluate`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.choices import names_of
from ntmp_cli.commands.options import IfExists, Json, Out, Wide, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import EvaluateConfig, ReportConfig

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.", show_default=False)]


@with_config(EvaluateConfig, complete={"metrics": names_of("metrics")})
def command(
    config: EvaluateConfig,
    runs: Runs,
    out: Out,
    if_exists: IfExists = "fail",
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Evaluate runs on the true test labels and compare them. Creates an evaluation directory.

    Example: ntmp evaluate work/run-*-* --reference ure+abs --out work/eval
    """
    from ntmp_cli.commands.result_views import overview_view
    from ntmp_cli.stages.evaluate import evaluate
    from ntmp_cli.stages.report import overview_of

    evaluation = evaluate(config, runs, out, if_exists=if_exists)
    result = {
        **identity(evaluation.artifact, out),
        "reference": evaluation.reference,
        "summary": evaluation.groups,
        "rows": evaluation.rows,
        "comparisons": evaluation.comparisons,
        "rankings": evaluation.rankings,
    }
    overview = overview_of(evaluation, ReportConfig(title="Test results", metrics=config.metrics), wide=wide)
    show(result, json, lambda console: overview_view(console, overview, wide=wide), wide=wide)
