"""`ntmp predict`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ntmp_cli.commands.options import PATH_OR_URL, AllowOutside, Device, Json, Threads, with_config, workers_of
from ntmp_cli.commands.show import show
from ntmp_cli.config import PredictConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.storage import location

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run directory.", show_default=False)]
Source = Annotated[
    Any,
    typer.Argument(
        parser=location,
        metavar="INPUT",
        help="Rows to score: .csv, .parquet, a folder or pattern of such files ('new/*.parquet'), a URL of any of "
        "these (s3://, gs://, https://), .npz, .npy, a folder of images, or - for CSV on standard input.",
        show_default=False,
    ),
]
Out = Annotated[
    Any,
    typer.Option(
        "--out",
        "-o",
        **PATH_OR_URL,
        help="Path or URL of the table to write, .csv or .parquet, or - for CSV on stdout. With --engine or --jobs, "
        "path or URL of a folder: one table per table of INPUT; finished tables are kept.",
        show_default=False,
    ),
]
RawIds = Annotated[
    bool,
    typer.Option(
        "--raw-ids", help="Write ids that begin like formulas (=, +, -, @) to CSV without a leading apostrophe."
    ),
]
IfExists = Annotated[
    Literal["fail", "overwrite"], typer.Option("--if-exists", help="If OUT exists: fail or overwrite.")
]
Engine = Annotated[
    str | None,
    typer.Option(
        "--engine",
        help="Score the tables of INPUT in several processes: local or ray. Default: one process, or local if --jobs "
        "is given.",
        show_default=False,
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        help="Tables to score in parallel. Default: as many as the cores allow.",
        show_default=False,
    ),
]
RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray-address",
        help="Ray cluster to join: HOST:PORT or auto. Default: start one on this machine. RUN, INPUT and OUT must "
        "be visible to all nodes.",
        show_default=False,
    ),
]


@with_config(PredictConfig)
def command(
    config: PredictConfig,
    run: Run,
    source: Source,
    out: Out,
    if_exists: IfExists = "fail",
    raw_ids: RawIds = False,
    allow_outside: AllowOutside = False,
    device: Device = "auto",
    threads: Threads = None,
    engine: Engine = None,
    jobs: Jobs = None,
    ray_address: RayAddress = None,
    json: Json = False,
) -> None:
    """Score new rows with a run. Creates a table: score, probability and label of every row, or counts by group.

    Example: ntmp predict work/run-0 new.csv --prior 0.1 --out scored.csv
    """
    from ntmp_cli.commands.progress import limit_threads
    from ntmp_cli.commands.views import group_prediction_view, prediction_view
    from ntmp_cli.stages.predict import PredictOptions, predict_rows

    workers = workers_of(engine, jobs, ray_address, threads or 1, gpu=device.startswith("cuda"))
    if workers is not None:
        from ntmp_cli.stages.predict_partitions import predict_partitions

        options = PredictOptions(if_exists, device, raw_ids=raw_ids, allow_outside=allow_outside)
        made = predict_partitions(config, run, source, out, options, workers)
        show(made, json, lambda console: prediction_view(console, made))
        return
    to_stdout = out == Path("-")
    if to_stdout and json:
        raise UsageError("--json and --out - both write to stdout", hint="Name a file, or leave --json out.")
    limit_threads(threads)
    stream = sys.stdout.buffer if to_stdout else None
    options = PredictOptions(if_exists, device, stream, raw_ids=raw_ids, allow_outside=allow_outside)
    if config.by is not None:
        from ntmp_cli.stages.predict_groups import predict_groups

        groups = predict_groups(config, run, source, out, options)
        if not to_stdout:
            show(groups, json, lambda console: group_prediction_view(console, groups))
        return
    facts = predict_rows(config, run, source, out, options)
    if not to_stdout:
        show(facts, json, lambda console: prediction_view(console, facts))
