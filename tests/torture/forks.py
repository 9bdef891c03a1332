"""Runs functions in forked processes: everything is imported once, every case has its own memory and time.

The parent never computes with torch or pyarrow itself: their threads would not survive a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MEMORY = 2 * 2**30
SECONDS = 60.0
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    """How a process ended: exit code (negative: by that signal), what it wrote, whether its time was up."""

    code: int
    out: str
    err: str
    timed_out: bool = False

    @property
    def clean(self) -> bool:
        """Whether it ended as a command may: done, or one message of what a user can act on."""
        return self.code in (0, 2, 3, 4) and "Traceback" not in self.err and not self.timed_out


def load_everything() -> None:
    """Import what commands import when they run, so that forks need not."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NTMP_PLUGINS": ""}
    import h5py  # noqa: F401
    import matplotlib.backends.backend_svg
    import matplotlib.figure  # noqa: F401
    import PIL.Image  # noqa: F401
    import sklearn.datasets  # noqa: F401
    import torch
    import torch._dynamo

    from ntmp_cli import app
    from ntmp_cli.commands import progress, result_views, views  # noqa: F401
    from ntmp_cli.data.labelled import datasets
    from ntmp_cli.learning.method import methods
    from ntmp_cli.stages import audit, evaluate, import_tuples, make_tuples, predict, report, train  # noqa: F401

    torch.set_num_threads(1)
    for registry in (datasets, methods):
        registry.names()
    assert app
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page


@dataclass
class Process:
    """A forked process that is still running."""

    pid: int
    folder: Path
    descriptor: int

    def wait(self, seconds: float = SECONDS) -> Ended:
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if not ready:
            self.kill()
        return self._reap(timed_out=not ready)

    def ended_within(self, seconds: float) -> bool:
        return bool(select.select([self.descriptor], [], [], seconds)[0])

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def _reap(self, *, timed_out: bool) -> Ended:
        _, status = os.waitpid(self.pid, 0)
        os.close(self.descriptor)
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("out", "err"))
        shutil.rmtree(self.folder)
        return Ended(os.waitstatus_to_exitcode(status), out, err, timed_out)


def start(work: Callable[[], int], *, limit_memory: bool = True) -> Process:
    """Fork; the new process ends with the number that `work` returns."""
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    files = [os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) for name in ("out", "err")]
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            for target, file in zip((1, 2), files, strict=True):
                os.dup2(file, target)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            sys.stdout, sys.stderr = (
                os.fdopen(target, "w", closefd=False, errors="backslashreplace") for target in (1, 2)
            )
            _die_with_parent()
            if limit_memory:
                _limit_memory()
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)
    for file in files:
        os.close(file)
    return Process(pid, folder, os.pidfd_open(pid))


def _die_with_parent() -> None:
    """Let the system kill this process when the harness ends, however that ends: a case may wait for ever."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _limit_memory() -> None:
    """Two gigabytes beyond what the imports have taken."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, resource.RLIM_INFINITY))


def command(*words: object) -> Callable[[], int]:
    """An `ntmp` command as work for a process."""
    from ntmp_cli.app import run

    return lambda: run([str(word) for word in words])


def ended(work: Callable[[], int]) -> Ended:
    return start(work).wait()


def done(*words: object) -> None:
    """Run a command that must succeed."""
    result = ended(command(*words))
    if result.code != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {result.code}\n{result.err}")


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A temporary folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Clock:
    """Seconds since it was made."""

    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began
