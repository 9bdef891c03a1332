"""A Ray cluster, joined or started on this machine. Needs the extra `ray`, and storage that all nodes see."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from itertools import islice
from typing import Any

from ntmp_cli.errors import InterruptedRunError, UsageError
from ntmp_cli.sweeps.calls import Call, CallOutcome, perform
from ntmp_cli.sweeps.engine import PATIENCE_SECONDS, RETRIES, Resources, engines

STOP_SECONDS = 10
# Ray starts in five seconds, on a busy machine in half a minute.
START_SECONDS = 300


@engines.register("ray")
def ray_cluster(calls: Sequence[Call], resources: Resources) -> Generator[CallOutcome | None]:
    """Tasks on a Ray cluster (--ray-address), or on one started on this machine; tasks of lost workers are repeated."""
    _prepare(resources.address)
    ray = _ray()
    # Ray reports dead workers on stdout, which is for results.
    with redirect_stdout(sys.stderr), _connected(ray, resources):
        yield from _outcomes(ray, calls, resources)


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


@contextmanager
def _connected(ray: Any, resources: Resources) -> Iterator[None]:
    """Start Ray or join a cluster. It has been seen to wait for ever, so a thread does it, which has a time limit.

    The thread lives as long as the connection: the processes of a node end with the thread that started them.
    """
    errors: list[Exception] = []
    answered, finished = threading.Event(), threading.Event()

    def connect() -> None:
        try:
            _init(ray, resources)
        except Exception as error:  # Ray raises plain exceptions where a node does not start
            errors.append(error)
        answered.set()
        finished.wait()

    threading.Thread(target=connect, daemon=True).start()
    try:
        if not answered.wait(START_SECONDS):
            raise _not_started(resources, f"no answer in {START_SECONDS} seconds")
        if errors:
            raise _not_started(resources, str(errors[0]).strip().partition("\n")[0])
        try:
            yield
        finally:
            ray.shutdown()
    finally:
        finished.set()


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
