"""Columns of Arrow from NumPy arrays and texts.

`pyarrow.array` imports pandas wherever it is installed, which takes longer than scoring some rows. These do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def number_column(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> Any:
    """Numbers (no booleans, which Arrow packs), without a copy where that is possible; null where `missing` says so."""
    values = np.ascontiguousarray(values)
    nulls = None if missing is None or not missing.any() else pa.py_buffer(np.packbits(~missing, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [nulls, pa.py_buffer(values)])


def text_column(texts: Sequence[str]) -> Any:
    """Texts, none of them missing."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))
