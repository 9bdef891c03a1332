"""`ntmp report`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ntmp_cli.commands.choices import names_of
from ntmp_cli.commands.options import IfExists, Json, Out, Wide, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import ReportConfig

if TYPE_CHECKING:
    from rich.console import Console

Evaluation = Annotated[Path, typer.Argument(help="Evaluation directory.", show_default=False)]
Sweeps = Annotated[
    list[Path] | None,
    typer.Option("--sweep", help="Results of a sweep, for its figure and windows; repeatable.", show_default=False),
]
Priors = Annotated[
    list[Path] | None,
    typer.Option("--prior", help="Prior directory, for its figure; repeatable.", show_default=False),
]


@with_config(ReportConfig, complete={"metrics": names_of("metrics")})
def command(
    config: ReportConfig,
    evaluation: Evaluation,
    out: Out,
    sweep: Sweeps = None,
    prior: Priors = None,
    if_exists: IfExists = "fail",
    wide: Wide = False,
    json: Json = False,
) -> None:
    """Turn an evaluation into tables, figures and one page. Creates a report directory; open its index.html.

    Example: ntmp report work/eval --out work/report
    """
    from ntmp_cli.commands.result_views import overview_view, report_view
    from ntmp_cli.stages.report import PAGE, overview_of, report, tables_of

    published, evaluated = report(config, evaluation, out, sweeps=sweep or (), priors=prior or (), if_exists=if_exists)
    files = [str(out / name) for name in published.summary.files]
    overview = overview_of(evaluated, config)

    def render(console: Console) -> None:
        if wide:
            report_view(console, overview, tables_of(evaluated, config), files)
        else:
            overview_view(console, overview)
            console.print(f"page: {out / PAGE}", soft_wrap=True, markup=False)

    show({**identity(published, out), "files": files}, json, render, wide=wide)
