"""Folders of images: which files are images, which folders are searched, and their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ntmp_cli.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


@contextmanager
def looking_at(where: Path) -> Iterator[None]:
    """Turn an OSError of a folder search (permissions, long names, lost network drives) into a DataError."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"{error.filename or where}: cannot be read ({error.strerror})",
            hint="Check the path and its permissions.",
        ) from None


def subfolders(path: Path) -> list[Path]:
    """Folders that are not hidden, in the order of their names."""
    if not path.is_dir():
        return []
    return sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
