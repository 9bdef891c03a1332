"""A call: a function by name with plain arguments, so that any process on any machine can carry it out."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntmp_cli.errors import InterruptedRunError, NtmpError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """`function` is named `package.module:function`; what it logs, and how it fails, goes to the file `log`."""

    name: str
    function: str
    arguments: dict[str, Any]
    log: str
    threads: int


@dataclass(frozen=True)
class Outcome:
    """How a call ended: `error` is None, or what went wrong in one line, and the exit code that it stands for."""

    name: str
    error: str | None = None
    exit_code: int = 0


def perform(call: Call) -> Outcome:
    """Carry out a call in this process. Whatever goes wrong is an outcome, but an interruption is passed on."""
    with _logged_to(Path(call.log)):
        log.info("process %d begins %s", os.getpid(), call.name)
        try:
            module, _, function = call.function.partition(":")
            work = getattr(importlib.import_module(module), function)
            with _threads(call.threads):
                work(**call.arguments)
        except InterruptedRunError:
            log.info("process %d was interrupted", os.getpid())
            raise
        except NtmpError as error:
            log.error(error.message)
            if error.hint:
                log.info(error.hint)
            return Outcome(call.name, error.message, error.exit_code)
        except Exception as error:
            log.exception("%s failed", call.name)
            what = str(error).strip().partition("\n")[0]
            return Outcome(call.name, f"{type(error).__name__}: {what}", 3 if isinstance(error, OSError) else 1)
        log.info("process %d ends %s", os.getpid(), call.name)
        return Outcome(call.name)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """So many threads for torch and for the linear algebra of numpy, if loaded, whatever the process began with."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(number):
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(number)
        yield


@contextmanager
def _logged_to(file: Path) -> Iterator[None]:
    logger = logging.getLogger("ntmp_cli")
    file.parent.mkdir(parents=True, exist_ok=True)
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = before[0], before[1]
        logger.setLevel(before[2])
        with suppress(OSError):  # a full disk; how the call ended matters more than its log
            handler.close()
