"""Users' arrays, in one npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.formats import read_npz
from ntmp_cli.data.instance_arrays import instances
from ntmp_cli.data.labelled import LabelledData, SourceRequest, datasets
from ntmp_cli.data.sources._shared import (
    default_positive,
    fixed_split,
    path_argument,
    refuse_resize,
    require_two_classes,
)
from ntmp_cli.errors import DataError

SPLIT_KEYS = ("x_train", "y_train", "x_test", "y_test")
UNSPLIT_KEYS = ("x", "y")


@datasets.register("npz")
def npz(request: SourceRequest) -> LabelledData:
    """npz:PATH, a NumPy archive of x_train, y_train, x_test and y_test, or of x and y."""
    refuse_resize("npz", request)
    path = path_argument("npz", request)
    arrays = read_npz(path, (SPLIT_KEYS, UNSPLIT_KEYS))
    notes: list[str] = []
    for x, y in (("x_train", "y_train"), ("x_test", "y_test"), UNSPLIT_KEYS):
        if x in arrays:
            _check_lengths(path, x, arrays[x], y, arrays[y])
    if "x" in arrays:
        arrays = split(arrays, str(path))
        notes.append("x and y have no test split: a fixed random 80/20 split was made")
    if arrays["x_train"].shape[1:] != arrays["x_test"].shape[1:]:
        shapes = " but ".join(f"{key} {arrays[key].shape[1:]}" for key in ("x_train", "x_test"))
        raise DataError(f"{path}: instances differ in shape, {shapes}", hint="Give both splits the same shape.")
    classes, y_train, y_test = class_indices(path, arrays["y_train"], arrays["y_test"])
    x_train, scale = instances(path, arrays["x_train"], notes)
    x_test, test_scale = instances(path, arrays["x_test"], [])
    if scale != test_scale:
        types = " but ".join(f"{key} {arrays[key].dtype}" for key in ("x_train", "x_test"))
        raise DataError(f"{path}: images differ in type, {types}", hint="Give both splits the same type.")
    return LabelledData(
        name=f"npz:{path.name}",
        x_train=x_train,
        y_train=y_train,
        x_test=x_test,
        y_test=y_test,
        classes=classes,
        positive=default_positive(classes),
        scale=scale,
        notes=tuple(notes),
    )


def _check_lengths(path: Path, x_name: str, x: NDArray[Any], y_name: str, y: NDArray[Any]) -> None:
    if x.ndim == 0 or y.ndim == 0:
        name = x_name if x.ndim == 0 else y_name
        raise DataError(f"{path}: {name} is a single value, not an array", hint="Store one row per instance.")
    if y.ndim > 2 or (y.ndim == 2 and y.shape[1] != 1):
        raise DataError(
            f"{path}: {y_name} has shape {y.shape}, expected one label per instance",
            hint="Turn one-hot labels into class numbers with argmax(axis=1).",
        )
    if len(x) == 0:
        raise DataError(f"{path}: {x_name} is empty", hint="Store one row per instance.")
    if len(x) != len(y):
        raise DataError(
            f"{path}: {x_name} has {len(x)} instances but {y_name} has {len(y)} labels",
            hint="Store one label per instance.",
        )


def split(arrays: dict[str, NDArray[Any]], where: str) -> dict[str, NDArray[Any]]:
    """Arrays x and y as the four arrays of a fixed split."""
    train, test = fixed_split(len(arrays["x"]), where)
    return {
        f"{key}_{name}": arrays[key][rows] for name, rows in (("train", train), ("test", test)) for key in UNSPLIT_KEYS
    }


def class_indices(
    path: Path, y_train: NDArray[Any], y_test: NDArray[Any]
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.int64]]:
    """Class names over both splits, integers in numerical order, and labels as indices into them."""
    train, test = _plain_labels(path, "train", y_train), _plain_labels(path, "test", y_test)
    if train.dtype.kind != test.dtype.kind:
        raise DataError(
            f"{path}: the train labels are {y_train.dtype} but the test labels {y_test.dtype}",
            hint="Store both as integers, booleans or text.",
        )
    values = sorted({*train.tolist(), *test.tolist()})
    classes = tuple(str(value) for value in values)
    require_two_classes(classes, str(path))
    index = {value: i for i, value in enumerate(values)}
    return classes, _look_up(index, train), _look_up(index, test)


def _look_up(index: dict[Any, int], labels: NDArray[Any]) -> NDArray[np.int64]:
    values, positions = np.unique(labels, return_inverse=True)
    return np.array([index[value] for value in values.tolist()], dtype=np.int64)[positions]


def _plain_labels(path: Path, name: str, y: NDArray[Any]) -> NDArray[Any]:
    """Labels as a vector of int64, bool or text."""
    y = y.ravel()
    if y.dtype.kind == "f":
        y = y.astype(np.float64)
        missing = np.flatnonzero(np.isnan(y))
        if len(missing):
            raise DataError(
                f"{path}: {len(missing)} {name} labels are NaN, the first at row {missing[0]}",
                hint="Remove the rows without a label.",
            )
        if not ((np.abs(y) < 2**53) & (y == np.round(y))).all():
            raise DataError(
                f"{path}: {name} labels are not classes but real numbers", hint="Store whole numbers or text."
            )
        return y.astype(np.int64)
    if y.dtype.kind == "S":
        try:
            y = np.char.decode(y, "utf-8")
        except UnicodeDecodeError:
            raise DataError(f"{path}: {name} labels are not UTF-8 text", hint="Store text with astype(str).") from None
    if y.dtype.kind == "U" and (y == "").any():
        row = np.flatnonzero(y == "")[0]
        raise DataError(f"{path}: the {name} label at row {row} is empty", hint="Remove the rows without a label.")
    if y.dtype.kind not in "biuU":
        raise DataError(
            f"{path}: {name} labels of type {y.dtype} are not classes",
            hint="Store integers, booleans or text.",
        )
    return y.astype(np.int64) if y.dtype.kind in "iu" else y
