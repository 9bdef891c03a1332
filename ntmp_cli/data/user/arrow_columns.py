"""Columns and scalars of Arrow from NumPy arrays and texts, and back.

`pyarrow.array`, `pyarrow.scalar` and `to_numpy` import pandas wherever it is installed, which takes longer than scoring
some rows; so do functions of `pyarrow.compute` that are given None, a number or a text of Python. These do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def number_column(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> Any:
    """Numbers (no booleans, which Arrow packs), without a copy if possible; null where `missing` is true."""
    values = np.ascontiguousarray(values)
    nulls = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [nulls, pa.py_buffer(values)])


def numbers_of(column: Any) -> NDArray[Any]:
    """The numbers of a column without nulls, as a read-only view."""
    return np.from_dlpack(column)


def text_column(texts: Sequence[str]) -> Any:
    """Texts, without nulls."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def null_of(kind: Any) -> Any:
    """The null of a type."""
    return pa.nulls(1, kind)[0]


def number_scalar(value: float) -> Any:
    return number_column(np.array([value]))[0]


def text_scalar(text: str) -> Any:
    return text_column([text])[0]


def filled(numbers: Any, value: int) -> Any:
    """Whole numbers with nulls replaced by `value`."""
    return numbers.fill_null(number_scalar(value).cast(numbers.type))
