"""Shared by several sources: the fixed split, default classes, paths, and refused options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.labelled import SourceRequest
from ntmp_cli.data.user.positives import known_positives
from ntmp_cli.errors import DataError, UsageError

SPLIT_SEED = 0
TEST_SHARE = 0.2


def fixed_split(count: int, where: str, share: float | None = None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Train and test indices, about 80/20 by default, of data that come unsplit; the same ones every time."""
    if count < 2:
        raise DataError(f"{where}: {count} instances cannot be split into train and test", hint="Pass more data.")
    order = np.random.default_rng(SPLIT_SEED).permutation(count)
    test = min(max(1, round((share or TEST_SHARE) * count)), count - 1)
    return order[:-test], order[-test:]


def default_positive(classes: Sequence[str]) -> tuple[str, ...]:
    """The positive class if the names are unambiguous, otherwise none."""
    return tuple(sorted(known_positives(classes) or ()))


def require_two_classes(classes: Sequence[str], where: str) -> None:
    if len(classes) < 2:
        raise DataError(
            f"{where}: every instance is of class '{''.join(classes)}', so there are no two classes to separate",
            hint="Pass data with at least two classes.",
        )


def path_argument(name: str, request: SourceRequest) -> Path:
    """The PATH of `NAME:PATH`."""
    if not request.argument:
        raise UsageError(f"{name}: a path is needed", hint=f"Write {name}:PATH.")
    return expand(Path(request.argument))


def expand(path: Path) -> Path:
    """The path with `~` replaced by the home folder."""
    try:
        return path.expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: no such user", hint="Write the path without ~.") from None


def refuse_argument(name: str, request: SourceRequest) -> None:
    if request.argument:
        raise UsageError(f"{name}:{request.argument}: {name} takes no argument", hint=f"Write {name}.")


def refuse_resize(name: str, request: SourceRequest) -> None:
    """Refuse --resize if it has no effect."""
    if request.resize is not None:
        raise UsageError(f"--resize {request.resize}: {name} is not a folder of images", hint="Leave --resize out.")


def default_root() -> Path:
    """The default folder of data sets, also for downloads: the user's cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path.
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "ntmp"
