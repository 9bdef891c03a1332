"""`ntmp inspect`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.options import Json
from ntmp_cli.commands.show import identity, show

Target = Annotated[Path, typer.Argument(help="A directory written by any ntmp command.", show_default=False)]
Figure = Annotated[
    Path | None,
    typer.Option("--figure", help="Plot some tuples with their counts to this PNG file.", show_default=False),
]


def command(path: Target, figure: Figure = None, json: Json = False) -> None:
    """Show what a directory holds and verify every file in it. Creates a figure with --figure.

    Example: ntmp inspect work/tuples --figure tuples.png
    """
    from ntmp_cli.commands.views import artifact_view
    from ntmp_cli.stages.inspect import epochs_of, facts, inspect, write_montage

    artifact = inspect(path)
    if figure is not None:
        write_montage(artifact, figure)
    history = epochs_of(artifact)
    result = {**identity(artifact, path), **facts(artifact), "figure": str(figure) if figure else None}
    show(result, json, lambda console: artifact_view(console, path, artifact, history))
