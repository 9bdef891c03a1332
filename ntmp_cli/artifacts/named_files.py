"""Files that settings name: a manifest knows them by their content, so that it holds no path of a machine."""

from __future__ import annotations

from pathlib import Path

from ntmp_cli.artifacts.manifest import sha256_file
from ntmp_cli.settings import Settings

# Settings that may name a file.
WEIGHTS_FILES = ("encoder_weights", "clip_model", "clip_weights")


def file_identity(name: str | None) -> str | None:
    """The hash of the file of this name, or the name itself where there is no such file."""
    if name is not None and Path(name).is_file():
        return f"sha256:{sha256_file(Path(name))}"
    return name


def weights_files(config: Settings) -> tuple[Path, ...]:
    """The files that a frozen encoder is read from."""
    named = [getattr(config, name) for name in WEIGHTS_FILES]
    return tuple(Path(name) for name in named if name is not None and Path(name).is_file())
