"""How large a compressed file may become: a few bytes must not fill the memory or the disk."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ntmp_cli.errors import DataError

# The variable that the option --unpack-limit-mb sets, so that processes of a sweep know it too.
LIMIT_VARIABLE = "NTMP_UNPACK_LIMIT_MB"
# zlib packs empty data 1,000 to 1, and data that say something seldom 100 to 1. Small files may grow by more.
RATIO = 100
LEAST = 2**29
LEAST_IMAGE = 2**26


def unpack_limit(packed: int, least: int | None = None) -> int:
    """The most bytes that a file of `packed` bytes may unpack to."""
    given = os.environ.get(LIMIT_VARIABLE, "")
    return int(given) * 2**20 if given.isdecimal() else max(LEAST if least is None else least, RATIO * packed)


def require_unpackable(where: Path | str, packed: int, unpacked: int, least: int | None = None) -> None:
    """Refuse a file of `packed` bytes that says that it holds `unpacked` ones, or that has given as many so far."""
    if unpacked > (limit := unpack_limit(packed, least)):
        raise DataError(
            f"{where}: {packed:,} bytes unpack to {unpacked:,} or more, and {limit:,} are allowed",
            hint="If you trust the file, allow more: `ntmp --unpack-limit-mb N COMMAND …`.",
        )


def require_regular(path: Path) -> int:
    """Refuse devices and pipes, which have no end or are read only once; the size of the file."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise DataError(f"{path}: not a regular file", hint="Pass a file on a disk.")
    return status.st_size
