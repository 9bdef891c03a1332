"""Everything that can go wrong because of input, with the exit code it ends in.

Packages raise these; only `app.py` turns them into a message and an exit code. Any other exception is
an internal error and exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

ONE_COUNT = (
    "ntmp is binary: one count per tuple; give the class of interest by --positive, or train one class at a time "
    "(--count-column, once per class)."
)
"""The hint for data of several classes."""


class NtmpError(Exception):
    """A problem that the user can act on: what is wrong and, in `hint`, what to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(NtmpError):
    """A command line or configuration that cannot be meant."""

    exit_code = 2


class ArtifactError(NtmpError):
    """An ntmp artefact that is missing, damaged, or of the wrong kind."""

    exit_code = 3


class DataError(NtmpError):
    """Source data that is missing or cannot be used."""

    exit_code = 3


class OutputError(NtmpError):
    """An output that could not be written: the disk is full, over its quota, or broken."""

    exit_code = 3


class NotIdentifiableError(NtmpError):
    """The request has no answer, or none that floating point can reach."""

    exit_code = 4


class InterruptedRunError(NtmpError):
    """The user or the scheduler stopped us; what was done is kept where that is possible."""

    exit_code = 130


class FailedCellsError(NtmpError):
    """Some trainings of a sweep, or some tables to be scored, failed; the others are done and published."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code


# How libraries written in C say that memory ran out; Python itself has MemoryError.
_OUT_OF_MEMORY = (
    *("can't allocate memory", "cannot allocate memory", "out of memory", "not enough memory", "std::bad_alloc"),
    *("can't start new thread", "failed to map segment"),
)


def is_memory_error(error: BaseException) -> bool:
    """Whether an error means that there is not enough memory."""
    if isinstance(error, RuntimeError | ImportError | OSError):
        return any(words in str(error).lower() for words in _OUT_OF_MEMORY)
    return isinstance(error, MemoryError)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion for a mistyped name: `did you mean 'epochs'?`, or the choices."""
    choices = sorted(known)
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"choose from: {', '.join(choices)}"
