"""Worker processes on this machine that live as long as the sweep, so that each loads torch only once."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import suppress
from dataclasses import asdict

from ntmp_cli.sweeps.calls import Call, CallOutcome
from ntmp_cli.sweeps.engine import PATIENCE_SECONDS, RETRIES, Resources, engines
from ntmp_cli.sweeps.worker import GRACE_SECONDS

# The same import path as here, however this program was started.
_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from ntmp_cli.sweeps.worker import main; main()"


@engines.register("local")
def local(calls: Sequence[Call], resources: Resources) -> Generator[CallOutcome | None]:
    """Processes on this machine, one call each at a time; a call whose process dies is repeated."""
    pool = _Pool(calls, resources)
    slots = [threading.Thread(target=pool.serve, daemon=True) for _ in range(min(resources.jobs_here, len(calls)))]
    for slot in slots:
        slot.start()
    try:
        for _ in calls:
            while (outcome := pool.outcome()) is None:
                yield None
            yield outcome
    finally:
        pool.stop()
        for slot in slots:
            slot.join()


class _Pool:
    """Calls, outcomes and processes that the threads share; each thread serves one process."""

    def __init__(self, calls: Sequence[Call], resources: Resources) -> None:
        self._threads = resources.threads
        self._waiting: queue.SimpleQueue[Call] = queue.SimpleQueue()
        for call in calls:
            self._waiting.put(call)
        self._outcomes: queue.SimpleQueue[CallOutcome] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._stopping = False
        self._workers: list[_Worker] = []

    def outcome(self) -> CallOutcome | None:
        try:
            return self._outcomes.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            return None

    def serve(self) -> None:
        """Pass calls from the common queue to a process; start a new process if it dies."""
        worker = None
        while not self._stopping:
            try:
                call = self._waiting.get_nowait()
            except queue.Empty:
                break
            ended = ""
            outcome = None
            for _ in range(1 + RETRIES):
                worker = worker or self._new_worker()
                if worker is None:  # the sweep is being stopped
                    return
                outcome = worker.send(call)
                if outcome is not None or self._stopping:
                    break
                ended, worker = worker.how_it_ended(), None
            if self._stopping:
                break
            lost = f"its process {ended}, {1 + RETRIES} times; is there enough memory for so many --jobs?"
            self._outcomes.put(outcome or CallOutcome(call.name, lost, 1))
        if worker is not None:
            worker.end()

    def _new_worker(self) -> _Worker | None:
        with self._lock:
            if self._stopping:
                return None
            worker = _Worker(self._threads)
            self._workers.append(worker)
            return worker

    def stop(self) -> None:
        with self._lock:
            self._stopping = True
        for worker in self._workers:
            worker.end()
        for worker in self._workers:
            worker.wait()


class _Worker:
    """A process that carries out one call after the other, until its input is closed or this process ends."""

    def __init__(self, threads: int) -> None:
        limits = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads))
        # In another process group, so that Ctrl-C reaches this process only, which then stops the workers.
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **limits},
            process_group=0,
        )

    def send(self, call: Call) -> CallOutcome | None:
        """The outcome of a call, or None if the process died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asdict(call)).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except (OSError, ValueError):  # its input is closed, by death or by `end`
            return None
        return CallOutcome(**json.loads(answer)) if answer.endswith(b"\n") else None

    def how_it_ended(self) -> str:
        self.end()
        code = self.wait()
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"

    def end(self) -> None:
        """Close its input: an idle process stops at once, a training one after saving its state."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def wait(self) -> int:
        """Wait for its end, and kill it after the grace period; its exit code."""
        try:
            self._process.wait(GRACE_SECONDS + 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code
