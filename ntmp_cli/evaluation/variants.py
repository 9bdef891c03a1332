"""Labels that distinguish runs which a table would otherwise show under one name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any


def variants(settings: Sequence[Mapping[str, Any]], cells: Sequence[Hashable]) -> list[str]:
    """For each run, the settings in which runs of the same cell differ, e.g. `epochs=10,model=linear`."""
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, cell in enumerate(cells):
        members[cell].append(index)
    names = [""] * len(settings)
    for indices in members.values():
        keys = sorted({key for i in indices for key in settings[i]})
        differing = [key for key in keys if len({repr(settings[i].get(key)) for i in indices}) > 1]
        for i in indices:
            names[i] = ",".join(f"{key}={_short(settings[i].get(key))}" for key in differing)
    return names


def _short(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
