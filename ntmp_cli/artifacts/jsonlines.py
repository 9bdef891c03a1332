"""Tables as JSON lines (one object per line, sorted keys), and as CSV for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ntmp_cli.artifacts.manifest import Artifact, strict_json
from ntmp_cli.plain_text import without_formula


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True, allow_nan=False) + "\n" for row in rows).encode("ascii")


def read_json_lines(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    try:
        rows = [strict_json(line) for line in artifact.file(name).read_bytes().splitlines()]
    except ValueError:
        raise artifact.damaged(name, "not JSON lines") from None
    return _objects(artifact, name, rows)


def read_json_rows(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    """A table that is one JSON list."""
    return _objects(artifact, name, artifact.read_json(name))


def _objects(artifact: Artifact, name: str, rows: Any) -> list[dict[str, Any]]:
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise artifact.damaged(name, "not a table of named values")
    artifact.require_rows(name, len(rows))
    return rows


def table_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: without_formula(cell) if isinstance(cell, str) else cell for key, cell in row.items()})
    return text.getvalue().encode()
