"""What a person sees while a training runs: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ntmp_cli.commands.options import on_terminal

if TYPE_CHECKING:
    from rich.progress import Progress
    from torch import Tensor

    from ntmp_cli.learning.loop import EpochRecord

log = logging.getLogger(__name__)


def limit_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def describe(record: EpochRecord) -> str:
    """Loss, partial risks, held-out risk and throughput of an epoch in one line."""
    parts = ", ".join(f"{name} {value:+.3f}" for name, value in record.fields.get("parts", {}).items())
    risk = record.fields["heldout_risk"]
    heldout = "" if risk is None else f" held-out {risk:.3f}"
    rate = record.instances / max(record.seconds, 1e-9)
    return f"loss {record.fields['loss']:.3f}{heldout} {rate:,.0f}/s ({parts})"


class _Bar:
    def __init__(self, progress: Progress, epochs: int) -> None:
        self._progress = progress
        self._task = progress.add_task("training", total=float(epochs), info="")

    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None:
        self._progress.update(self._task, completed=epoch - 1 + step / steps)

    def epoch(self, record: EpochRecord) -> None:
        self._progress.update(self._task, completed=record.epoch, info=describe(record))


class _Lines:
    """At most a line every ten seconds, and the last one, for logs of batch jobs."""

    def __init__(self, epochs: int) -> None:
        self._epochs = epochs
        self._last = time.monotonic()

    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        now = time.monotonic()
        if now - self._last >= 10 or record.epoch == self._epochs:
            self._last = now
            log.info("epoch %d/%d %s", record.epoch, self._epochs, describe(record))


@contextmanager
def watching(epochs: int) -> Iterator[_Bar | _Lines]:
    """A watcher for `stages.train`, on stderr."""
    if not on_terminal() or not log.isEnabledFor(logging.INFO):
        yield _Lines(epochs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    # On a narrow terminal the details give way, never the bar or the time left.
    columns = (
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("{task.fields[info]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, expand=True) as progress:
        yield _Bar(progress, epochs)
