"""Columns made without pandas are those that pyarrow makes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from ntmp_cli.data.user.arrow_columns import (
    filled,
    null_of,
    number_column,
    number_scalar,
    numbers_of,
    text_column,
    text_scalar,
)


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


WITHOUT_PANDAS = """
import sys
import numpy as np
from ntmp_cli.data.user.arrow_columns import number_column, text_column
from ntmp_cli.data.user.rows import category_codes
from ntmp_cli.data.user.table_files import as_text
assert as_text(text_column(["b", " NA", "a "])).to_pylist() == ["b", None, "a"]
assert as_text(number_column(np.array([1.0, np.nan]))).to_pylist() == ["1", None]
codes, texts = category_codes(as_text(text_column(["b", "NA", "b"])))
assert [texts.get(code) for code in codes.tolist()] == ["b", None, "b"]
sys.exit("pandas" in sys.modules)
"""


def test_texts_of_a_table_are_read_without_pandas():
    assert subprocess.run([sys.executable, "-c", WITHOUT_PANDAS], check=False).returncode == 0


@pytest.mark.parametrize("dtype", [np.int8, np.int32])
def test_missing_numbers_are_filled(dtype):
    column = number_column(np.array([4, 5, 6], dtype), np.array([False, True, False]))
    for part, expected in ((column, [4, 9, 6]), (column.slice(1, 1), [9]), (column.slice(0, 0), [])):
        numbers = numbers_of(filled(part, 9))
        assert numbers.dtype == dtype
        assert numbers.tolist() == expected


def test_scalars_are_those_that_pyarrow_makes():
    assert number_scalar(2.0**63).equals(pa.scalar(2.0**63))
    assert text_scalar("'").equals(pa.scalar("'"))
    assert null_of(pa.string()).equals(pa.scalar(None, pa.string()))
