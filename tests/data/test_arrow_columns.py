"""Columns made without pandas are those that pyarrow makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from ntmp_cli.data.user.arrow_columns import number_column, text_column


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.int8])
@pytest.mark.parametrize("size", [0, 1, 8, 13])
def test_numbers_are_those_of_pyarrow(dtype, size):
    values = np.arange(size, dtype=dtype)
    missing = np.arange(size) % 3 == 1
    assert number_column(values).equals(pa.array(values))
    assert number_column(values, missing).equals(pa.array(values, mask=missing))
    assert number_column(values, np.zeros(size, bool)).null_count == 0


def test_every_second_number_of_an_array_is_one():
    values = np.arange(10.0)[::2]
    assert number_column(values).to_pylist() == values.tolist()


@pytest.mark.parametrize("texts", [[], [""], ["?", "", "NA", "ß", "日本"]])
def test_texts_are_those_of_pyarrow(texts):
    column = text_column(texts)
    column.validate(full=True)
    assert column.equals(pa.array(texts, pa.string()))
