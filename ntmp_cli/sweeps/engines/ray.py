"""A Ray cluster, joined or started on this machine. Needs the extra `ray`, and storage that all nodes see."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import redirect_stdout
from itertools import islice
from typing import Any

from ntmp_cli.errors import InterruptedRunError, UsageError
from ntmp_cli.sweeps.calls import Call, CallOutcome, perform
from ntmp_cli.sweeps.engine import PATIENCE_SECONDS, RETRIES, Resources, engines

STOP_SECONDS = 10
START_SECONDS = 300


@engines.register("ray")
def ray_cluster(calls: Sequence[Call], resources: Resources) -> Generator[CallOutcome | None]:
    """Tasks on a Ray cluster (--ray-address), or on one started on this machine; tasks of lost workers are repeated."""
    _prepare(resources.address)
    ray = _ray()
    # Ray reports dead workers on stdout, which is for results.
    with redirect_stdout(sys.stderr):
        connection = _Connection(ray, resources)
        try:
            yield from connection.wait()
            yield from _outcomes(ray, calls, resources)
        finally:
            connection.close()


def _outcomes(ray: Any, calls: Sequence[Call], resources: Resources) -> Generator[CallOutcome | None]:
    pending: dict[Any, Call] = {}
    try:
        # A call that was interrupted in a worker that is shut down is repeated as well: it goes on from its checkpoint.
        task = ray.remote(perform).options(
            num_cpus=resources.threads,
            num_gpus=1 if resources.gpu else 0,
            max_retries=RETRIES,
            retry_exceptions=[InterruptedRunError],
        )
        waiting = iter(calls)
        for call in islice(waiting, resources.jobs):
            pending[task.remote(call)] = call
        while pending:
            ready, _ = ray.wait(list(pending), num_returns=1, timeout=PATIENCE_SECONDS)
            if not ready:
                yield None
            for reference in ready:
                outcome = _outcome(ray, reference, pending.pop(reference))
                for call in islice(waiting, 1):
                    pending[task.remote(call)] = call
                yield outcome
    finally:
        for reference in pending:
            ray.cancel(reference, force=False)
        if pending:
            ray.wait(list(pending), num_returns=len(pending), timeout=STOP_SECONDS)


def _prepare(address: str | None) -> None:
    """Set what Ray reads from the environment when it is imported, and check that a cluster answers.

    Ray replaces 127.0.0.1 by this machine's outer address, unless the variable below says that there is no cluster
    beyond the machine; and it waits for minutes where nothing answers.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")
    host, _, port = (address or "").rpartition(":")
    inside = host in ("127.0.0.1", "localhost", "::1")
    if port.isdigit() and not host.startswith("ray:"):
        outer = _outer_address() if inside else host
        reached = _answers(outer, int(port))
        if not reached and not (inside and _answers("127.0.0.1", int(port))):
            raise _no_cluster(str(address), "nothing answers")
        inside = inside and not reached
    if address is None or inside:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"


def _answers(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), timeout=5):
            return True
    except OSError:
        return False


def _outer_address() -> str:
    """The address that a connection to elsewhere would come from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 80))  # reserved for documentation
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _no_cluster(address: str, reason: str) -> UsageError:
    return UsageError(
        f"--ray-address {address}: no Ray cluster to join there ({reason})",
        hint="Start one with `ray start --head`, or leave the address out to have one on this machine.",
    )


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise UsageError("--engine ray needs the package ray", hint="pip install 'ntmp[ray]'") from None
    return ray


class _Connection:
    """Ray started here, or a cluster joined, by a thread: Ray has been seen to wait for ever while it starts.

    The thread lives as long as the connection, because on Linux the processes of a node end with the thread that
    started them.
    """

    def __init__(self, ray: Any, resources: Resources) -> None:
        self._ray, self._resources = ray, resources
        self._error: Exception | None = None
        self._answered, self._closed, self._late = threading.Event(), threading.Event(), False
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            _init(self._ray, self._resources)
        except Exception as error:  # Ray raises plain exceptions where a node does not start
            self._error = error
        finally:
            self._answered.set()
        self._closed.wait()
        if self._late:
            self._ray.shutdown()

    def wait(self) -> Generator[None]:
        """Yield None at intervals until Ray answers, so that the caller can stop; an error if it does not answer."""
        end = time.monotonic() + START_SECONDS
        while not self._answered.wait(PATIENCE_SECONDS):
            if time.monotonic() > end:
                raise _not_started(self._resources, f"no answer in {START_SECONDS} seconds")
            yield None
        if self._error is not None:
            reason = str(self._error).strip().partition("\n")[0] or type(self._error).__name__
            raise _not_started(self._resources, reason) from self._error

    def close(self) -> None:
        """Disconnect; a start that has not ended yet is undone when it ends."""
        self._late = not self._answered.is_set()
        if not self._late:
            self._ray.shutdown()
        self._closed.set()


def _not_started(resources: Resources, reason: str) -> UsageError:
    if resources.address is not None:
        return _no_cluster(resources.address, reason)
    return UsageError(
        f"--engine ray: Ray did not start on this machine: {reason}",
        hint="Run the same command again, with fewer --jobs if the machine is busy, or with --engine local.",
    )


def _init(ray: Any, resources: Resources) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
    if resources.address is None:
        cores = resources.jobs_here * resources.threads
        ray.init("local", num_cpus=cores, include_dashboard=False, **quiet)
    else:
        ray.init(resources.address, **quiet)


def _outcome(ray: Any, reference: Any, call: Call) -> CallOutcome:
    try:
        outcome: CallOutcome = ray.get(reference)
    except ray.exceptions.RayError as error:
        reason = str(error).strip().partition("\n")[0]
        return CallOutcome(call.name, f"Ray failed after {RETRIES} retries: {reason}", 1)
    return outcome
