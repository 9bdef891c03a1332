"""`ntmp audit`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.options import Device, Features, IfExists, Json, Threads, with_config
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import AuditConfig

Tuples = Annotated[Path, typer.Option("--tuples", help="Tuples directory to audit.", show_default=False)]
Run = Annotated[Path | None, typer.Option("--run", help="Run trained on these tuples.", show_default=False)]
MaybeOut = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="Directory to create for results, tuples, a page and a figure."),
]


@with_config(AuditConfig)
def command(
    config: AuditConfig,
    tuples: Tuples,
    run: Run = None,
    out: MaybeOut = None,
    if_exists: IfExists = "fail",
    device: Device = "auto",
    threads: Threads = None,
    features: Features = None,
    json: Json = False,
) -> None:
    """Check counts and pool: wrong counts, noise, drift, expected accuracy. Creates an audit directory with --out.

    Example: ntmp audit --tuples work/tuples --run work/run-count-0 --out work/audit

    Without --run, only the data are used. With --run, networks are cross-fitted with the settings of that run: each
    training tuple is judged by a network that was not trained on it.
    """
    from ntmp_cli.commands.progress import limit_threads, watching
    from ntmp_cli.commands.views import audit_view
    from ntmp_cli.stages.audit import audit
    from ntmp_cli.stages.cross_fit_options import CrossFitOptions

    limit_threads(threads)
    facts, published = audit(config, tuples, run, out, CrossFitOptions(if_exists, device, features, watching))
    about = {"kind": "audit", "out": None} if published is None or out is None else identity(published, out)
    show({**about, **facts}, json, lambda console: audit_view(console, facts, out))
