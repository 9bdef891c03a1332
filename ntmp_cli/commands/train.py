"""`ntmp train`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntmp_cli.commands.choices import names_of
from ntmp_cli.commands.options import Device, Features, IfExists, Json, Out, Threads, with_config
from ntmp_cli.commands.prior_from import PriorFrom
from ntmp_cli.commands.show import identity, show
from ntmp_cli.config import NETWORK_PANEL, RUN_PANEL, TrainConfig
from ntmp_cli.ranks import is_first_process

Tuples = Annotated[Path, typer.Option("--tuples", help="Tuples directory to train on.", show_default=False)]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint of an interrupted run.")]
Seconds = Annotated[
    float,
    typer.Option(
        "--checkpoint-seconds",
        min=0,
        help="Minimum seconds between checkpoints, which are written at the end of an epoch.",
    ),
]
TensorBoard = Annotated[
    Path | None,
    typer.Option("--tensorboard", help="Write TensorBoard events to this folder as well.", show_default=False),
]


@with_config(
    TrainConfig,
    complete={"method": names_of("methods"), "model": names_of("models"), "encoder": names_of("encoders")},
    panels={
        **dict.fromkeys(("resume", "device", "threads", "checkpoint_seconds", "tensorboard"), RUN_PANEL),
        "features": NETWORK_PANEL,
    },
)
def command(
    config: TrainConfig,
    tuples: Tuples,
    out: Out,
    prior_from: PriorFrom = None,
    if_exists: IfExists = "fail",
    resume: Resume = False,
    device: Device = "auto",
    threads: Threads = None,
    checkpoint_seconds: Seconds = 30.0,
    features: Features = None,
    tensorboard: TensorBoard = None,
    json: Json = False,
) -> None:
    """Train an instance scorer on tuples. Creates a run directory.

    Example: ntmp train --tuples work/tuples --prior 0.5 --out work/run-count-0

    To train in several processes: torchrun --standalone --nproc-per-node 2 -m ntmp_cli train …
    """
    from ntmp_cli.artifacts import refuse_overlap
    from ntmp_cli.artifacts.row_types import read_history
    from ntmp_cli.commands.progress import limit_threads, watching
    from ntmp_cli.commands.views import run_view
    from ntmp_cli.stages.train import TrainOptions, train, training_epochs

    limit_threads(threads)
    if tensorboard is not None:  # events are only added, so that inputs may lie in the same folder
        refuse_overlap(tensorboard, [tuples, *([] if prior_from is None else [prior_from])], ["events"])
    with watching(training_epochs(config, tuples), tensorboard) as watcher:
        options = TrainOptions(
            if_exists, "yes" if resume else "no", device, checkpoint_seconds, watcher=watcher, features=features
        )
        run = train(config, tuples, out, options, prior_from)
    if not is_first_process():
        return
    history, summary = read_history(run), run.summary
    facts = summary.model_dump(include={"method", "epochs", "selected_epoch", "heldout_risk"})
    show(
        {**identity(run, out), **facts, "history": history},
        json,
        lambda console: run_view(console, out, summary, history),
    )
