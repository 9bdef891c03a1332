"""Progress of a training or a sweep: a bar on a terminal, otherwise a log line at most every ten seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ntmp_cli.commands.steps import bar_on_terminal, on_terminal
from ntmp_cli.errors import UsageError
from ntmp_cli.ranks import is_first_process

if TYPE_CHECKING:
    from rich.progress import Progress
    from torch import Tensor

    from ntmp_cli.learning.results import EpochRecord, Watcher
    from ntmp_cli.stages.sweep import Tally

log = logging.getLogger(__name__)


def limit_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def describe(record: EpochRecord) -> str:
    """Loss, risk terms, held-out risk and throughput of an epoch in one line."""
    terms = ", ".join(f"{name} {value:+.3f}" for name, value in record.fields.get("risk_terms", {}).items())
    risk = record.fields["heldout_risk"]
    heldout = "" if risk is None else f" held-out {risk:.3f}"
    rate = record.instances / max(record.seconds, 1e-9)
    return f"loss {record.fields['loss']:.3f}{heldout} {rate:,.0f}/s" + (f" ({terms})" if terms else "")


class _Silence:
    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None:
        pass

    def epoch(self, record: EpochRecord) -> None:
        pass


class _Bar:
    def __init__(self, progress: Progress, epochs: int) -> None:
        self._progress = progress
        self._task = progress.add_task("training", total=float(epochs), info="")

    def say(self, what: str) -> None:
        self._progress.update(self._task, info=what)

    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None:
        self._progress.update(self._task, completed=epoch - 1 + step / steps)

    def epoch(self, record: EpochRecord) -> None:
        self._progress.update(self._task, completed=record.epoch, info=describe(record))


class _Lines:
    """A log line at most every ten seconds, and one for the last epoch; for batch jobs."""

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


class _Events:
    """Also writes the records of a training to TensorBoard."""

    def __init__(self, shown: Watcher, folder: Path) -> None:
        self._shown, self._folder = shown, folder
        self._broken = False
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError(
                "--tensorboard needs the package tensorboard", hint="pip install 'ntmp[tensorboard]'"
            ) from None
        try:
            self._writer = SummaryWriter(str(folder))
        except OSError as error:
            raise UsageError(f"--tensorboard {folder}: cannot be written ({error.strerror})") from None

    def step(self, epoch: int, step: int, steps: int, loss: Tensor) -> None:
        self._shown.step(epoch, step, steps, loss)

    def epoch(self, record: EpochRecord) -> None:
        self._shown.epoch(record)
        self._try(lambda: self._write(record))

    def _write(self, record: EpochRecord) -> None:
        values = {**record.fields, "instances_per_second": record.instances / max(record.seconds, 1e-9)}
        for name, value in values.items():
            several = value if isinstance(value, dict) else {"": value}
            for member, number in several.items():
                if isinstance(number, int | float) and name != "epoch":
                    self._writer.add_scalar(f"{name}/{member}" if member else name, number, record.epoch)

    def close(self) -> None:
        self._try(self._writer.close)

    def _try(self, write: Callable[[], None]) -> None:
        """A full disk stops the events with a warning; the training goes on."""
        if self._broken:
            return
        try:
            write()
        except OSError as error:
            self._broken = True
            log.warning("--tensorboard %s: no more events are written (%s)", self._folder, error.strerror)


@contextmanager
def _silent_disk_errors() -> Iterator[None]:
    """Do not print errors of TensorBoard's writer thread: the writer raises them again in the calling thread."""
    before = threading.excepthook

    def hook(failed: threading.ExceptHookArgs) -> None:
        if not isinstance(failed.exc_value, OSError):
            before(failed)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


@contextmanager
def watching(epochs: int, tensorboard: Path | None = None) -> Iterator[Watcher]:
    """A watcher for `stages.train`: shows progress on stderr, and writes TensorBoard events if a folder is given."""
    with _on_stderr(epochs) as shown:
        if tensorboard is None or not is_first_process():
            yield shown
            return
        with _silent_disk_errors():
            events = _Events(shown, tensorboard)
            try:
                yield events
            finally:
                events.close()


@contextmanager
def _on_stderr(epochs: int) -> Iterator[Watcher]:
    if not is_first_process():
        yield _Silence()
        return
    if not on_terminal() or not log.isEnabledFor(logging.INFO):
        yield _Lines(epochs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    # On a narrow terminal only the details are shortened, never the bar or the remaining time.
    columns = (
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("{task.fields[info]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True, expand=True) as progress:
        bar = _Bar(progress, epochs)
        with bar_on_terminal(bar.say):
            yield bar


class _Pace:
    """Remaining time, estimated from the cells that ended since the start."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def left(self, tally: Tally) -> str:
        ended = tally.trained + len(tally.failures)
        waiting = tally.total - tally.done - len(tally.failures)
        if not waiting:
            return "none left"
        if not tally.trained:
            return "time left unknown"
        seconds = (time.monotonic() - self._began) / ended * waiting
        return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


def describe_cells(tally: Tally) -> str:
    failed = f", {len(tally.failures)} failed" if tally.failures else ""
    return f"{tally.done} of {tally.total} cells done{failed}"


@contextmanager
def watching_cells() -> Iterator[Callable[[Tally], None]]:
    """A watcher for `stages.sweep`: a bar on a terminal, a line every ten seconds elsewhere."""
    pace = _Pace()
    if on_terminal() and log.isEnabledFor(logging.INFO):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=24), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
            task = progress.add_task("", total=None)

            def update(tally: Tally) -> None:
                ended = tally.done + len(tally.failures)
                shown = f"{describe_cells(tally)}, {pace.left(tally)}"
                progress.update(task, total=tally.total, completed=ended, description=shown)

            yield update
        return
    last = time.monotonic()

    def say(tally: Tally) -> None:
        nonlocal last
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            log.info("%s, %s", describe_cells(tally), pace.left(tally))

    yield say
