"""Refuses an output that is an input, lies inside one or contains one: writing it would destroy the input."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ntmp_cli.errors import UsageError
from ntmp_cli.storage import Location, StorageUrl


def refuse_overlap(out: Location, inputs: Iterable[Location], folders: Sequence[str] = (".",)) -> None:
    """Refuse an output that shares files with an input, also through links.

    A command that only creates `folders` below `out` may have its inputs beside them.
    """
    inputs = tuple(inputs)
    if isinstance(out, StorageUrl):
        _refuse_same_url(out, [url for url in inputs if isinstance(url, StorageUrl)])
        return
    resolved = [(path, Path(os.path.realpath(path))) for path in inputs if isinstance(path, Path)]
    for place in (out / folder for folder in folders):
        target = Path(os.path.realpath(place))
        for path, source in resolved:
            if target == source:
                how = f"is the input {path} itself"
            elif target.is_relative_to(source):
                how = f"lies inside the input {path}"
            elif source.is_relative_to(target):
                how = f"contains the input {path}"
            else:
                continue
            raise _overlap(place, how)


def _refuse_same_url(out: StorageUrl, inputs: Sequence[StorageUrl]) -> None:
    for url in inputs:
        if out.is_inside(url):
            raise _overlap(out, f"is the input {url}, or lies inside it")
        if url.is_inside(out):
            raise _overlap(out, f"contains the input {url}")


def _overlap(place: Location, how: str) -> UsageError:
    return UsageError(
        f"{place}: {how}, and inputs are never changed", hint="Write to another place, outside of every input."
    )
