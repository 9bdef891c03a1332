"""Progress of long steps: a bar or a spinner on a terminal, otherwise a log line every 30 seconds."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ntmp_cli.progress import Advance, Step, listening
from ntmp_cli.ranks import is_first_process

if TYPE_CHECKING:
    from rich.progress import Progress

log = logging.getLogger(__name__)

# Seconds until a bar is shown, so that short steps show none; and between log lines.
SHOWN_AFTER = 0.5
BETWEEN_LINES = 30.0

# Shows the name of the current step in a bar.
Say = Callable[[str], None]
_bars: list[Say] = []
"""The bars on the terminal, including those of trainings; a nested step is shown in the last one."""
_started: list[Progress] = []


def on_terminal() -> bool:
    """Whether stderr is a terminal, so that bars are shown."""
    return sys.stderr.isatty()


@contextmanager
def steps_on_stderr() -> Iterator[None]:
    """Show the progress of all long steps inside; after an error, no bar stays on the terminal."""
    try:
        with listening(_shown):
            yield
    finally:
        for progress in _started:
            progress.stop()
        _started.clear()
        _bars.clear()


@contextmanager
def _shown(step: Step) -> Iterator[Advance]:
    if not is_first_process() or not log.isEnabledFor(logging.INFO):
        yield lambda number: None
    elif not on_terminal():
        with _lines(step) as advance:
            yield advance
    elif _bars:
        _bars[-1](step.what)
        yield lambda number: None
    else:
        with _bar(step) as advance:
            yield advance


@contextmanager
def bar_on_terminal(say: Say) -> Iterator[None]:
    """Register a bar while it is on the terminal."""
    _bars.append(say)
    try:
        yield
    finally:
        if say in _bars:
            _bars.remove(say)


@contextmanager
def _bar(step: Step) -> Iterator[Advance]:
    progress = _progress(step)
    task = progress.add_task(step.what, total=step.total)
    lock, ended = threading.Lock(), False

    def start() -> None:
        with lock:
            if not ended:
                _started.append(progress)
                progress.start()

    timer = threading.Timer(SHOWN_AFTER, start)
    timer.daemon = True
    timer.start()
    try:
        with bar_on_terminal(lambda what: progress.update(task, description=what)):
            yield lambda number: progress.advance(task, number)
    finally:
        timer.cancel()
        with lock:
            ended = True
            if progress in _started:
                progress.stop()
                _started.remove(progress)


def _progress(step: Step) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column

    plain = Column(no_wrap=True)
    text = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1))
    counted = f"{{task.completed:,.0f}} {step.unit}" if step.unit else ""
    if step.total is not None:
        counted = f"{{task.completed:,.0f}} of {step.total:,} {step.unit}"
    timed = (TimeElapsedColumn(),) if step.total is None else (BarColumn(bar_width=12), TimeRemainingColumn())
    columns = (SpinnerColumn(), text, TextColumn(counted, table_column=plain), *timed)
    # Standard output may be a table, or JSON: only stderr is captured.
    return Progress(*columns, console=Console(file=sys.stderr), transient=True, expand=True, redirect_stdout=False)


@contextmanager
def _lines(step: Step) -> Iterator[Advance]:
    began, done, ended = time.monotonic(), 0, threading.Event()

    def advance(number: int) -> None:
        nonlocal done
        done += number

    def speak() -> None:
        while not ended.wait(BETWEEN_LINES):
            log.info("%s", describe_step(step, done, time.monotonic() - began))

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield advance
    finally:
        ended.set()
        speaker.join()


def describe_step(step: Step, done: int, seconds: float) -> str:
    """Progress and estimated remaining time in one line."""
    if not step.unit:
        return f"{step.what}: {seconds:.0f} s so far"
    if step.total is None:
        return f"{step.what}: {done:,} {step.unit} in {seconds:.0f} s"
    counted = f"{step.what}: {done:,} of {max(step.total, done):,} {step.unit}"
    if not done:
        return f"{counted}, {seconds:.0f} s so far"
    left = seconds / done * max(step.total - done, 0)
    return f"{counted}, about {left / 60:.0f} min left" if left >= 90 else f"{counted}, about {left:.0f} s left"
