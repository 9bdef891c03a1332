"""--prior-from: use an estimated class prior."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ntmp_cli.errors import UsageError

PriorFrom = Annotated[
    Path | None,
    typer.Option(
        "--prior-from", help="Prior directory, written by `ntmp estimate-prior` on these tuples.", show_default=False
    ),
]


def prior_setting(given: Mapping[str, Any]) -> dict[str, Any]:
    """The setting that --prior-from stands for."""
    if given["prior_from"] is None:
        return {}
    if given["tuples"] is None:
        raise UsageError("--prior-from: needs --tuples, the directory that the prior was estimated on")
    from ntmp_cli.artifacts import open_artifact
    from ntmp_cli.artifacts.priors import estimated_prior

    return {"prior": estimated_prior(given["prior_from"], open_artifact(given["tuples"], "tuples")).value}
