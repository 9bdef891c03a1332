"""`ntmp list`"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from ntmp_cli.commands.options import Json
from ntmp_cli.commands.show import show

Kind = Annotated[
    Literal["datasets", "methods", "models", "encoders", "metrics", "priors", "engines"],
    typer.Argument(help="What to list."),
]


def command(kind: Kind, json: Json = False) -> None:
    """List what can be chosen by name: data sets, methods, models, encoders, metrics, prior estimators, engines.

    Example: ntmp list methods
    """
    from ntmp_cli.commands.views import names_view
    from ntmp_cli.stages.listing import registry_of

    entries = registry_of(kind).summaries()
    show({"kind": kind, kind: entries}, json, lambda console: names_view(console, kind, entries))
