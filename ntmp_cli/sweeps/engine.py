"""Protocol of an engine, which runs many calls, several at a time."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ntmp_cli.registry import REGISTRIES, Facts, Registry
from ntmp_cli.sweeps.calls import Call, CallOutcome

# How often a waiting engine yields None to its caller.
PATIENCE_SECONDS = 0.2
# How often a call whose process died is repeated, on every engine.
RETRIES = 3


@dataclass(frozen=True)
class Resources:
    """`jobs` calls at a time of `threads` threads each; `address` is that of a cluster to join."""

    jobs: int | None = None
    threads: int = 1
    address: str | None = None
    gpu: bool = False

    @property
    def jobs_here(self) -> int:
        """The given number of jobs, or as many as this machine has cores for."""
        if self.jobs is not None:
            return self.jobs
        return max(1, usable_cores() // self.threads)


def usable_cores() -> int:
    """Cores that this process may run on, which may be fewer than the machine has."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # only Linux knows
        return os.cpu_count() or 1


class Engine(Protocol):
    def __call__(self, calls: Sequence[Call], resources: Resources) -> Generator[CallOutcome | None]:
        """Yield the outcome of every call as it ends, and None at intervals. Closing the generator stops the calls."""
        ...


engines: Registry[Engine, Facts] = REGISTRIES["engines"]
