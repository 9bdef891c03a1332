"""Results on stdout: one JSON object, or formatted text."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from ntmp_cli.artifacts import Artifact


# Widths of output to a pipe or a file: that of a default terminal, and one that fits all columns.
PIPED, PIPED_WIDE = 80, 1000


def show(result: Mapping[str, Any], as_json: bool, render: Callable[[Console], None], *, wide: bool = False) -> None:
    """Print `result` as JSON, or call `render`; `wide` output to a pipe or a file is not wrapped."""
    if as_json:
        sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")
        return
    from ntmp_cli.commands.terminal import PlainConsole

    render(PlainConsole(highlight=False, width=None if sys.stdout.isatty() else _piped_width(wide)))


def _piped_width(wide: bool) -> int:
    columns = os.environ.get("COLUMNS", "")
    return PIPED_WIDE if wide else int(columns) if columns.isdecimal() and int(columns) else PIPED


def identity(artifact: Artifact, out: Path) -> dict[str, Any]:
    """Kind, path and manifest hash of a directory: fields of every result."""
    return {"kind": artifact.kind, "out": str(out), "manifest_sha256": artifact.sha256}
