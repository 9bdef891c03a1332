"""Tables as JSON lines (one object per line, sorted keys), and as CSV for other programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ntmp_cli.artifacts.manifest import Artifact
from ntmp_cli.errors import ArtifactError


def json_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True, allow_nan=False) + "\n" for row in rows).encode("ascii")


def read_json_lines(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    path = artifact.file(name)
    try:
        rows = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    except ValueError:
        raise ArtifactError(f"{path}: damaged: not JSON lines") from None
    artifact.require_rows(name, len(rows))
    return rows


def read_json_rows(artifact: Artifact, name: str) -> list[dict[str, Any]]:
    """A table that is one JSON list."""
    rows: list[dict[str, Any]] = artifact.read_json(name)
    artifact.require_rows(name, len(rows))
    return rows


def table_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
