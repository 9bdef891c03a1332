"""`ntmp report`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.choices import metric_names
from ntmp_cli.commands.options import IfExists, Json, Out, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import ReportConfig

Evaluation = Annotated[Path, typer.Argument(help="Evaluation directory.", show_default=False)]


@with_config(ReportConfig, complete={"metrics": metric_names})
def command(
    config: ReportConfig, evaluation: Evaluation, out: Out, if_exists: IfExists = "fail", json: Json = False
) -> None:
    """Turn an evaluation into tables and figures. Creates a report directory.

    Example: ntmp report work/eval --out work/report
    """
    from ntmp_cli.commands.views import report_view
    from ntmp_cli.stages.report import report

    made = report(config, evaluation, out, if_exists=if_exists)
    files = [str(out / name) for name in made.summary["files"]]
    show({**identity(made, out), "files": files}, json, lambda console: report_view(console, files))
