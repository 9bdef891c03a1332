"""How far long work is. Packages and stages report their steps; a caller may watch them.

As with log lines, reports go to the listener, here of the same context; without a listener they cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

# Takes how many more units are done.
Advance = Callable[[int], None]


class Step(NamedTuple):
    """Work that can last: what it does, in words; how many units it has, if that is known, perhaps by estimate."""

    what: str
    total: int | None = None
    unit: str = ""


Listener = Callable[[Step], AbstractContextManager[Advance]]

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def long_step(what: str, total: int | None = None, unit: str = "") -> Iterator[Advance]:
    """Report a step while it lasts: `with long_step("score rows", 1000, "rows") as advance: … advance(10)`."""
    listener = _listener.get()
    if listener is None:
        yield lambda number: None
        return
    with listener(Step(what, total, unit)) as advance:
        yield advance


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """All steps inside report to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
