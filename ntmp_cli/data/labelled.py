"""What every data source returns: train and test arrays with their labels."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.user.mapping import FeatureMapping
from ntmp_cli.errors import ONE_COUNT, DataError, UsageError, did_you_mean
from ntmp_cli.registry import REGISTRIES, Facts, Registry

_HASH_BLOCK = 4 * 2**20


# The source whose instances are rows of named columns.
TABLE = "table"


@dataclass(frozen=True)
class TableColumns:
    """Roles of the columns of a labelled table, and the share of its test split (default: that of other sources)."""

    label: str = "label"
    categorical: tuple[str, ...] = ()
    numeric: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    max_categories: int = 50
    hash_width: int = 64
    test_share: float | None = None


DEFAULT_COLUMNS = TableColumns()


@dataclass(frozen=True)
class SourceRequest:
    """What a source may depend on: its argument (`npz:PATH`), the folder of data sets, whether to download."""

    argument: str = ""
    root: Path | None = None
    download: bool = False
    resize: int | None = None
    columns: TableColumns = DEFAULT_COLUMNS


@dataclass(frozen=True)
class LabelledData:
    """Raw instances with class names.

    Instances are (N, C, H, W) images of dtype uint8 or (N, D) float32 features; the value that a
    network sees is `x / scale`. Class labels are indices into `classes`.
    """

    name: str
    x_train: NDArray[np.generic]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.generic]
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]
    positive: tuple[str, ...] = ()
    scale: float = 1.0
    notes: tuple[str, ...] = field(default=())
    files: tuple[Path, ...] = field(default=(), repr=False)
    """The files read, if the name of the data set does not tell."""
    mapping: FeatureMapping | None = None
    """The mapping from raw rows of a table to features."""
    missing: tuple[int, ...] = ()
    """Number of missing training values by column of that table."""

    def fingerprint(self) -> str:
        """SHA-256 of everything that sampling depends on, for the lineage of the tuples."""
        arrays = (self.x_train, self.y_train, self.x_test, self.y_test)
        digest = hashlib.sha256(repr((self.classes, self.scale, [(a.shape, a.dtype.str) for a in arrays])).encode())
        if self.mapping is not None:
            digest.update(self.mapping.model_dump_json().encode())
        views = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays]
        blocks = [view[start : start + _HASH_BLOCK] for view in views for start in range(0, len(view), _HASH_BLOCK)]
        # A hash of block hashes, because blocks can be hashed in parallel.
        with ThreadPoolExecutor() as pool:
            for block_digest in pool.map(lambda block: hashlib.sha256(block).digest(), blocks):
                digest.update(block_digest)
        return digest.hexdigest()


# A source is a function of a SourceRequest; `npz:PATH` calls the source `npz` with argument PATH.
datasets: Registry[Callable[[SourceRequest], LabelledData], Facts] = REGISTRIES["datasets"]


def load_labelled(
    dataset: str,
    *,
    root: Path | None = None,
    download: bool = False,
    resize: int | None = None,
    columns: TableColumns = DEFAULT_COLUMNS,
) -> LabelledData:
    """Load a data set by name and check that training can use it."""
    name, _, argument = dataset.partition(":")
    source = datasets.get(name)
    given = [f.name for f in fields(columns) if getattr(columns, f.name) != f.default]
    if given and name != TABLE:
        options = ", ".join("--label-column" if what == "label" else f"--{what.replace('_', '-')}" for what in given)
        raise UsageError(f"{options}: only for --dataset {TABLE}:FILE, not for {dataset}", hint="Leave it out.")
    data = source(SourceRequest(argument, root, download, resize, columns))
    for split, x, y in (("train", data.x_train, data.y_train), ("test", data.x_test, data.y_test)):
        if len(x) == 0:
            raise DataError(f"{data.name}: the {split} split is empty")
        if len(x) != len(y):
            raise DataError(f"{data.name}: the {split} split has {len(x)} instances but {len(y)} labels")
        if x.dtype.kind == "f" and not np.isfinite(x).all():
            bad = np.flatnonzero(~np.isfinite(x).reshape(len(x), -1).all(axis=1))
            raise DataError(
                f"{data.name}: {len(bad)} {split} instances hold NaN or infinite values, the first at row {bad[0]}",
                hint="Remove or impute these rows before making tuples.",
            )
    return data


def named_paths(dataset: str) -> tuple[Path, ...]:
    """The file or folder that a data set names, as in `npz:PATH`."""
    path = os.path.expanduser(dataset.partition(":")[2])  # noqa: PTH111 - never fails, unlike Path.expanduser
    return (Path(path),) if path and os.path.exists(path) else ()  # noqa: PTH110 - false also for what is no path


def binary_labels(data: LabelledData, positive: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Train and test labels as booleans, from the classes that count as positive."""
    chosen = positive or data.positive
    if not chosen:
        raise UsageError(
            f"{data.name}: which classes are positive? The data has {', '.join(data.classes[:20])}",
            hint="Name them with --positive CLASS, once per class."
            + (f" {ONE_COUNT}" if len(data.classes) > 2 else ""),
        )
    for name in chosen:
        if name not in data.classes:
            raise UsageError(f"--positive {name}: no such class in {data.name}; {did_you_mean(name, data.classes)}")
    is_positive = np.isin(np.array(data.classes), np.array(chosen))
    if is_positive.all():
        raise UsageError(f"--positive: every class of {data.name} is positive, so there is nothing to learn")
    return is_positive[data.y_train], is_positive[data.y_test]
