"""One cell of a sweep, as a worker process carries it out: a training by plain arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ntmp_cli.config import TrainConfig
from ntmp_cli.stages.train import TrainOptions, train


def train_cell(training: dict[str, Any], tuples: str, out: str, features: str, device: str) -> None:
    """Train and publish a run directory, from a checkpoint if an earlier attempt left one."""
    options = TrainOptions(if_exists="refresh", resume="if-same", device=device, features=Path(features))
    train(TrainConfig.model_validate(training), Path(tuples), Path(out), options)
