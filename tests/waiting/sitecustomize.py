"""On the PYTHONPATH of a sweep's processes: one training waits at a step, so that a test can stop or kill it there.

The first training to reach step WAITING_STEP writes its process id to WAITING_FILE and waits for a signal. All others,
and the training that repeats it, go on.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import ntmp_cli.interrupts

stop_requested = ntmp_cli.interrupts.stop_requested


def is_first(file: Path) -> bool:
    """Whether this process is the one that waits; the file appears with its content."""
    own = file.with_name(f"{file.name}.{os.getpid()}")
    own.write_text(str(os.getpid()))
    try:
        file.hardlink_to(own)
    except FileExistsError:
        return False
    finally:
        own.unlink()
    return True


@contextmanager
def waiting() -> Iterator[Callable[[], bool]]:
    asked_at = 0
    with stop_requested() as asked:

        def wait_once() -> bool:
            nonlocal asked_at
            asked_at += 1
            if asked_at == int(os.environ["WAITING_STEP"]) and is_first(Path(os.environ["WAITING_FILE"])):
                while not asked():
                    time.sleep(0.01)
            return asked()

        yield wait_once


# The sweep itself asks the same question; it does not train.
if "WAITING_FILE" in os.environ and "ntmp_cli" not in sys.orig_argv:
    ntmp_cli.interrupts.stop_requested = waiting
