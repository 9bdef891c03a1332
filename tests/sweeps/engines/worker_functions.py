"""Functions that the workers of the engine tests call."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

from ntmp_cli.errors import NotIdentifiableError


def note(file: str) -> None:
    """Leave a line, so that a test can count how often it was done, and by whom."""
    with Path(file).open("a") as lines:
        lines.write(f"{os.getpid()} {os.environ['OMP_NUM_THREADS']}\n")


def die(file: str, times: int) -> None:
    """Be killed the first `times` times, as by the system when memory runs out."""
    note(file)
    if len(Path(file).read_text().splitlines()) <= times:
        os.kill(os.getpid(), signal.SIGKILL)


def refuse() -> None:
    raise NotIdentifiableError("no answer exists", hint="Change the design.")


def fail() -> None:
    print("printed before the error")  # noqa: T201
    raise ZeroDivisionError("a bug\nof several lines")


def wait(file: str, seconds: float) -> None:
    note(file)
    logging.getLogger("ntmp_cli").info("waiting")
    time.sleep(seconds)
