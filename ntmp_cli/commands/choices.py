"""Shell-completion choices, read from the registries when a shell needs them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from ntmp_cli.errors import NtmpError
from ntmp_cli.plugins import load_plugins
from ntmp_cli.registry import REGISTRIES


def names_of(kind: str) -> Callable[[], list[str]]:
    """A function that lists the names of one kind, including those of installed plugins."""

    def names() -> list[str]:
        with suppress(NtmpError):  # a broken plugin should not break the shell
            load_plugins()
        return REGISTRIES[kind].names()

    return names
