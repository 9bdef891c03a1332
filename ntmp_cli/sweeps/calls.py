"""A call: a function by name with plain arguments, so that any process on any machine can call it."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ntmp_cli.errors import InterruptedRunError, NtmpError, is_memory_error
from ntmp_cli.plugins import load_plugins

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Call:
    """`function` is named `package.module:function`. Its log lines and its error are written to the file `log`.

    Without a file only internal errors are logged, to stderr.
    """

    name: str
    function: str
    arguments: dict[str, Any]
    log: str | None
    threads: int
    plugins: Sequence[str] = ()
    """Files of plugins that the function needs."""


@dataclass(frozen=True)
class CallOutcome:
    """Outcome of a call: `error` is None or a message of one line, with its exit code."""

    name: str
    error: str | None = None
    exit_code: int = 0


def perform(call: Call) -> CallOutcome:
    """Carry out a call in this process. An error becomes an outcome; an interruption is raised."""
    with _logged_to(call.log):
        log.info("process %d begins %s", os.getpid(), call.name)
        try:
            load_plugins(map(Path, call.plugins))
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
            return CallOutcome(call.name, error.message, error.exit_code)
        except Exception as error:
            log.exception("%s failed", call.name)
            reason = str(error).strip().partition("\n")[0]
            line = "not enough memory" if is_memory_error(error) else f"{type(error).__name__}: {reason}"
            return CallOutcome(call.name, line, 3 if isinstance(error, OSError) or is_memory_error(error) else 1)
        log.info("process %d ends %s", os.getpid(), call.name)
        return CallOutcome(call.name)


@contextmanager
def _threads(number: int) -> Iterator[None]:
    """Limit the threads of torch and pyarrow, if loaded, and of numpy's linear algebra."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(number):
        if torch := sys.modules.get("torch"):
            torch.set_num_threads(number)
        if pyarrow := sys.modules.get("pyarrow"):
            pyarrow.set_cpu_count(number)
        yield


@contextmanager
def _logged_to(file: str | None) -> Iterator[None]:
    logger = logging.getLogger("ntmp_cli")
    handler: logging.Handler
    if file is None:
        handler = logging.StreamHandler()
        handler.addFilter(lambda record: record.exc_info is not None)
    else:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
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
        with suppress(OSError):  # a full disk; the outcome matters more than the log
            handler.close()
