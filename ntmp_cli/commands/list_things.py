"""`ntmp list`"""

from __future__ import annotations

from typing import Annotated

import typer

from ntmp_cli.commands.options import Json
from ntmp_cli.commands.show import show
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.registry import REGISTRIES

Kind = Annotated[
    str,
    typer.Argument(
        metavar="KIND",
        help=f"What to list: {', '.join(REGISTRIES)}.",
        autocompletion=lambda incomplete: [kind for kind in REGISTRIES if kind.startswith(incomplete)],
        show_default=False,
    ),
]


def command(kind: Kind, json: Json = False) -> None:
    """List what can be chosen by name: data sets, methods, models, encoders, metrics, prior estimators and more.

    Entries of plugins are listed too: `ntmp --plugin FILE.py list methods`.

    Example: ntmp list methods
    """
    from ntmp_cli.commands.views import names_view

    if kind not in REGISTRIES:
        raise UsageError(f"unknown kind '{kind}'; {did_you_mean(kind, REGISTRIES)}", hint="See `ntmp list --help`.")
    entries = REGISTRIES[kind].summaries()
    show({"kind": kind, kind: entries}, json, lambda console: names_view(console, kind, entries))
