"""`ntmp design`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.options import IfExists, Json, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import DesignConfig

Tuples = Annotated[Path | None, typer.Option("--tuples", help="Tuples directory to judge.", show_default=False)]
Run = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="Run directory whose weights bound the generalisation error; alone, or with the tuples it was trained on.",
        show_default=False,
    ),
]
MaybeOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Directory to create for results, a page and a figure.", show_default=False),
]


@with_config(DesignConfig)
def command(
    config: DesignConfig,
    directory: Tuples = None,
    run: Run = None,
    out: MaybeOut = None,
    if_exists: IfExists = "fail",
    json: Json = False,
) -> None:
    """Judge a design before training: identifiability, variance, bounds, what to change. Creates a page with --out.

    Example: ntmp design --tuple 3:1@0.5 --tuple 5:2@0.5 --prior 0.3 --num-tuples 5000 --unlabeled-size 20000
    """
    from ntmp_cli.commands.views import design_view
    from ntmp_cli.stages.design import design

    facts, published = design(config, directory, out, run=run, if_exists=if_exists)
    about = {"kind": "design", "out": None} if published is None or out is None else identity(published, out)
    show({**about, **facts}, json, lambda console: design_view(console, facts, out))
