"""Long fields of a summary are kept in a file of their own: manifests stay small, because every opening reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ntmp_cli.artifacts.layout import STRATA

# The fields that grow with the number of strata, by kind.
LONG_FIELDS = {"tuples": ("strata", "knowledge"), "features": ("strata", "knowledge"), "run": ("task",)}
# More rows than this are long.
MOST_ROWS = 500
_ELSEWHERE = f"in {STRATA}"


def long_fields(kind: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that go to a file: none unless there are many strata."""
    names = LONG_FIELDS.get(kind, ())
    return {name: summary[name] for name in names if _rows(summary.get(name)) > MOST_ROWS}


def without_long_fields(kind: str, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary as a manifest holds it: of long fields only the name of their file."""
    return {**summary, **dict.fromkeys(long_fields(kind, summary), _ELSEWHERE)}


def is_elsewhere(kind: str, summary: Mapping[str, Any]) -> bool:
    """Whether fields of a manifest's summary are in the file."""
    return any(summary.get(name) == _ELSEWHERE for name in LONG_FIELDS.get(kind, ()))


def with_long_fields(kind: str, summary: Mapping[str, Any], kept: object) -> dict[str, Any]:
    """The whole summary. A field that the file lacks stays as it is, which its model refuses."""
    fields = kept if isinstance(kept, dict) else {}
    names = [name for name in LONG_FIELDS[kind] if summary.get(name) == _ELSEWHERE and name in fields]
    return {**summary, **{name: fields[name] for name in names}}


def _rows(value: object) -> int:
    """The length of the longest list in a field."""
    if isinstance(value, dict):
        return max(map(_rows, value.values()), default=0)
    return len(value) if isinstance(value, list) else 0
