"""An output is never an input, inside one, or around one: writing it would destroy what was read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ntmp_cli.errors import UsageError


def refuse_overlap(out: Path, inputs: Iterable[Path], folders: Sequence[str] = (".",)) -> None:
    """Refuse an output that shares files with an input, also through links.

    A command that only makes `folders` below `out` may have its inputs beside them.
    """
    resolved = [(path, Path(os.path.realpath(path))) for path in inputs]
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
            raise UsageError(
                f"{place}: {how}, and inputs are never changed",
                hint="Write to another place, outside of every input.",
            )
