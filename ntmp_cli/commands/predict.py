"""`ntmp predict`"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ntmp_cli.commands.options import PATH_OR_URL, AllowOutside, Device, Json, Threads, with_config
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
        help="Table to write, .csv or .parquet, by path or URL, or - for CSV on stdout.",
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
    json: Json = False,
) -> None:
    """Score new rows with a run: score, probability and label, in their order; or counts by group. Creates a table.

    Example: ntmp predict work/run-0 new.csv --prior 0.1 --out scored.csv
    """
    from ntmp_cli.commands.progress import limit_threads
    from ntmp_cli.commands.views import group_prediction_view, prediction_view
    from ntmp_cli.stages.predict import PredictOptions, predict_rows
    from ntmp_cli.stages.predict_groups import predict_groups

    to_stdout = out == Path("-")
    if to_stdout and json:
        raise UsageError("--json and --out - both want stdout", hint="Name a file, or leave --json out.")
    limit_threads(threads)
    stream = sys.stdout.buffer if to_stdout else None
    options = PredictOptions(if_exists, device, stream, raw_ids=raw_ids, allow_outside=allow_outside)
    if config.by is not None:
        groups = predict_groups(config, run, source, out, options)
        if not to_stdout:
            show(groups, json, lambda console: group_prediction_view(console, groups))
        return
    facts = predict_rows(config, run, source, out, options)
    if not to_stdout:
        show(facts, json, lambda console: prediction_view(console, facts))
