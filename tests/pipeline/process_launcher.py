"""Starts `ntmp` commands as processes of their own without importing torch for each of them.

A script: it imports everything once, then reads one request per line from stdin and forks. A request
{"argv": [...], "stdout": PATH, "stderr": PATH, ...} is answered with the process id, and the request
{"wait": PID} with how that process ended. A request may also say at which moment of its life the new
process sends itself a signal, so that a test can stop it at an exact place:

  "at_file_event": K     SIGKILL at the K-th access to a path in the folder "watch"; the file "log" names them
  "at_step": [E, S]      "signals", one after the other, after step S of epoch E of a training

With "file_size": N no file can grow beyond N bytes, as on a disk that is full.

A request {"commands": [[...], ...], "folder": PATH, "environment": {...}, "packages": PATH, "answer": PATH} runs
several commands in one process, in that folder, with these variables and the modules of that path; the file "answer"
then has the code, stdout and stderr of each.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import h5py  # noqa: F401
import matplotlib.backends.backend_svg
import matplotlib.figure  # noqa: F401
import sklearn.datasets  # noqa: F401
import torch
import torch._dynamo  # optimisers import it when they are first used

from ntmp_cli.app import run
from ntmp_cli.commands import progress, result_views, views  # noqa: F401
from ntmp_cli.data.labelled import datasets
from ntmp_cli.learning.method import methods
from ntmp_cli.stages import evaluate, make_tuples, train  # noqa: F401

TOUCHING = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "shutil.copyfile", "shutil.rmtree"}


def kill_at_file_event(number: int, watch: str, log: str | None) -> None:
    seen = 0
    log_file = os.open(log, os.O_WRONLY | os.O_CREAT, 0o644) if log else None

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        below = event in TOUCHING and any(str(a).startswith(watch) for a in arguments)
        # A tree is removed by names relative to an open folder.
        relative = event in {"os.remove", "os.rmdir"} and isinstance(arguments[-1], int) and arguments[-1] >= 0
        if below or relative or (event == "ctypes.dlsym" and arguments[-1] == "renameat2"):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)
            if log_file is not None:
                os.write(log_file, f"{event}\n".encode())

    sys.addaudithook(hook)


def signal_at_step(at: tuple[int, int], signals: list[int]) -> None:
    def step(self: object, epoch: int, step: int, steps: int, loss: object) -> None:
        if (epoch, step) == at:
            for number in signals:
                os.kill(os.getpid(), number)

    progress._Lines.step = step  # type: ignore[method-assign]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A limit on files while the command runs; what it says is held back, because it goes to files here."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    said = io.StringIO()
    with redirect_stdout(io.StringIO()), redirect_stderr(said):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    sys.stderr.write(said.getvalue())
    sys.stderr.flush()


def run_several(request: dict[str, Any]) -> int:
    os.chdir(request["folder"])
    os.environ |= request["environment"]
    sys.path[:0] = [request["packages"]] if request["packages"] else []
    ended = []
    for words in request["commands"]:
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = run(words)
        ended.append([code, out.getvalue(), err.getvalue()])
    Path(request["answer"]).write_text(json.dumps(ended), encoding="utf-8")
    return 0


def live(request: dict[str, Any]) -> None:
    """The life of a forked process; never returns."""
    code = 1
    try:
        if "commands" in request:
            code = run_several(request)
            return
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(request[name], os.O_WRONLY), descriptor)
        if "at_file_event" in request:
            kill_at_file_event(request["at_file_event"], request["watch"], request.get("log"))
        if "at_step" in request:
            signal_at_step(tuple(request["at_step"]), request["signals"])
        with largest_file(request["file_size"]) if "file_size" in request else nullcontext():
            code = run(request["argv"])
        sys.stdout.flush()
    finally:
        os._exit(code)


def main() -> None:
    torch.set_num_threads(1)
    for registry in (datasets, methods):
        registry.names()
    # Answers go to the real stdout; nothing else may write there.
    answers = os.fdopen(os.dup(1), "w")
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            answer = os.waitstatus_to_exitcode(status)
        else:
            answer = os.fork()
            if answer == 0:
                live(request)
        print(answer, file=answers, flush=True)


if __name__ == "__main__":
    main()
