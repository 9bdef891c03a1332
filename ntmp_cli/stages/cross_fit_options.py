"""How stages that cross-fit classifiers are carried out."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from ntmp_cli.artifacts import IfExists
from ntmp_cli.learning.results import Watching


@dataclass(frozen=True)
class CrossFitOptions:
    """Nothing here changes what is estimated."""

    if_exists: IfExists = "fail"
    device: str = "auto"
    features: Path | None = None
    """Folder that keeps features of a frozen encoder; by default the one that the output lies in."""
    watching: Watching = lambda epochs: nullcontext()


DEFAULT_OPTIONS = CrossFitOptions()
