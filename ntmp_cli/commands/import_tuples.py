"""`ntmp import-tuples`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ntmp_cli.commands.options import PATH_OR_URL, AllowOutside, IfExists, Json, with_config, workers_of
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.storage import location

Source = Annotated[
    Any,
    typer.Argument(
        parser=location,
        metavar="INPUT",
        help="Rows with tuple ids and counts: .csv, .parquet, a folder or pattern of such files ('rows/*.parquet'), "
        "a URL of any of these (s3://, gs://, https://), .npz, a folder of .npy files, or a folder of images per "
        "tuple.",
        show_default=False,
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Directory to create.", show_default=False)]
Unlabeled = Annotated[
    Any,
    typer.Option(
        "--unlabeled",
        **PATH_OR_URL,
        help="Unlabeled rows, in addition to the rows of INPUT without a tuple id.",
        show_default=False,
    ),
]
Test = Annotated[
    Any, typer.Option("--test", **PATH_OR_URL, help="Rows with true labels, for `evaluate`.", show_default=False)
]
Counts = Annotated[
    Any,
    typer.Option(
        "--counts", **PATH_OR_URL, help="Table of tuple ids and counts, if INPUT has no counts.", show_default=False
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Read all files and show how they are interpreted; write nothing.")
]

Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Read tables and write shards in several processes: local or ray. Default: one process, or local if "
        "--jobs is given.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="Tables or shards to process in parallel. Default: as many as the cores allow.",
        show_default=False,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="Ray cluster to join: HOST:PORT or auto. Default: start one on this machine. INPUT and OUT must be "
        "visible to all nodes.",
        show_default=False,
    ),
]


@with_config(ImportTuplesConfig)
def command(
    config: ImportTuplesConfig,
    source: Source,
    out: Out = None,
    unlabeled: Unlabeled = None,
    test: Test = None,
    counts: Counts = None,
    allow_outside: AllowOutside = False,
    dry_run: DryRun = False,
    if_exists: IfExists = "fail",
    engine: Engine = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    json: Json = False,
) -> None:
    """Import your own rows with tuple ids and counts. Creates a tuples directory.

    Example: ntmp import-tuples tuples.csv --unlabeled unlabeled.csv --out work/mine
    """
    from ntmp_cli.commands.views import tuples_view, understood_view
    from ntmp_cli.data.user.inputs import Inputs
    from ntmp_cli.stages import import_tuples as stage

    inputs = Inputs(source, unlabeled, test, counts, allow_outside)
    if dry_run:
        understood = stage.dry_run(config, inputs)
        result = {"kind": "dry-run", **understood.to_json()}
        show(result, json, lambda console: understood_view(console, source, understood))
        return
    if out is None:
        raise UsageError("--out is missing", hint="Name the directory to create, or check the input with --dry-run.")
    workers = workers_of(engine, jobs, ray_address)
    imported = stage.import_tuples(config, inputs, out, if_exists=if_exists, workers=workers)
    shown = {"tuples", "instances", "unlabeled", "test", "strata", "features", "warnings"}
    summary = imported.summary
    result = {**identity(imported, out), **summary.model_dump(mode="json", include=shown, exclude_unset=True)}
    show(result, json, lambda console: tuples_view(console, out, summary))
