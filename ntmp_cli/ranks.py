"""Which of the processes that torchrun started this one is. Without torch, so that messages can ask."""

from __future__ import annotations

import os


def is_first_process() -> bool:
    """The one that speaks and writes."""
    return os.environ.get("RANK", "0") == "0"


def number_of_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def local_rank() -> int:
    """Its number on this machine, and so the number of its GPU."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def processes_here(otherwise: int) -> int:
    """How many of them share this machine; `otherwise` if there is but one process."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", otherwise)) if number_of_processes() > 1 else otherwise
