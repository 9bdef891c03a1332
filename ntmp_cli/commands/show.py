"""Results on stdout: one JSON object, or a table for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from ntmp_cli.artifacts import Artifact


def show(result: Mapping[str, Any], as_json: bool, render: Callable[[Console], None]) -> None:
    """Print `result` as JSON, or let `render` draw it."""
    if as_json:
        sys.stdout.write(json.dumps(result, allow_nan=False) + "\n")
        return
    from rich.console import Console

    # A file or a pipe has no width of its own; tables should not be squeezed into the default 80 columns there.
    render(Console(highlight=False, width=None if sys.stdout.isatty() else 180))


def identity(artifact: Artifact, out: Path) -> dict[str, Any]:
    """What every result says about the directory it is about."""
    return {"kind": artifact.kind, "out": str(out), "manifest_sha256": artifact.sha256}
