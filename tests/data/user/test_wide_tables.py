"""Tables of many columns, and of long rows: blocks have many rows, and a file is opened once, not once per column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from ntmp_cli.data.user import parquet_tables
from ntmp_cli.data.user.mapping import Roles
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import FeatureColumns, open_table_rows
from ntmp_cli.data.user.streams import BLOCK_BYTES, FEWEST_ROWS, LEAST_ROWS, WIDE_BYTES, bytes_of_block
from ntmp_cli.data.user.table_files import LateTextError, open_table

ROWS, COLUMNS = 600, 800


def _write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blocks_of_a_wide_table_have_many_rows_and_all_values(tmp_path: Path, ending: str) -> None:
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    values[3, 5] = np.nan
    columns = {f"x{j}": pa.array(values[:, j], from_pandas=True) for j in range(COLUMNS)}
    path = _write(tmp_path / f"wide.{ending}", pa.table({"id": np.arange(ROWS), **columns}))
    rows = open_table_rows(open_table(path), Roles(), FeatureColumns(), optional=("id",))
    blocks = [block.cells for block in rows.rows(Problems())]
    assert len(blocks) <= ROWS // LEAST_ROWS + 1  # at a mebibyte a block would have 163 rows, or 70
    np.testing.assert_array_equal(np.concatenate(blocks), values)


def test_rows_longer_than_a_block_are_read(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    texts = ["x" * (BLOCK_BYTES + 1000) + str(row) for row in range(20)]
    path.write_text("a,note\n" + "".join(f"{row},{text}\n" for row, text in enumerate(texts)))
    rows = open_table_rows(open_table(path), Roles(), FeatureColumns(ignore=("note",)))
    cells = np.concatenate([block.cells for block in rows.rows(Problems())])
    np.testing.assert_array_equal(cells[:, 0], np.arange(20))


def _opened(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    opened: list[Path] = []
    original = pq.ParquetFile

    def counting(path: Path, **options: Any) -> pq.ParquetFile:
        opened.append(path)
        return original(path, **options)

    monkeypatch.setattr(pq, "ParquetFile", counting)
    return opened


def test_columns_of_text_are_looked_at_with_one_opening_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {f"g{j}": pa.array(["AA", "AG", "GG", None] * 5) for j in range(60)}
    path = _write(tmp_path / "genes.parquet", pa.table(columns))
    opened = _opened(monkeypatch)
    rows = open_table_rows(open_table(path), Roles(), FeatureColumns())
    assert rows.categorical == set(columns)
    assert len(opened) == 2  # its columns, its first values


def test_mistakes_all_over_a_file_are_searched_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers as text, with mistakes in every block."""
    number = 4 * LEAST_ROWS
    texts = [f"{row}.5" if row % 100 != 99 else f"bad{row}" for row in range(number)]
    path = _write(tmp_path / "mistakes.parquet", pa.table({"a": texts, "b": np.arange(number)}))
    opened = _opened(monkeypatch)
    problems = Problems()
    rows = open_table_rows(open_table(path, BLOCK_BYTES // 16), Roles(), FeatureColumns())
    list(rows.rows(problems))
    assert problems.total == number // 100
    assert len(opened) <= 4


def test_a_text_far_down_a_wide_table_makes_its_column_one_of_categories(tmp_path: Path) -> None:
    number = 2000
    columns = {f"x{j}": [str(row) for row in range(number)] for j in range(5)}
    columns["late"] = ["1"] * (number - 1) + ["many"]
    path = _write(tmp_path / "late.csv", pa.table(columns))
    rows = open_table_rows(open_table(path, 4096), Roles(), FeatureColumns())
    rows.categorical.clear()
    with pytest.raises(LateTextError, match="late"):
        list(rows.rows(Problems()))


@pytest.mark.parametrize(
    ("row_bytes", "block"),
    [
        (400, BLOCK_BYTES),
        (16_000, LEAST_ROWS * 16_000),  # many rows, so that the cost per column is shared
        (400_000, WIDE_BYTES),
        (2_000_000_000, FEWEST_ROWS * 2_000_000_000),  # a row that is longer than a block cannot be read
    ],
)
def test_blocks_are_bounded_in_bytes_however_wide_the_rows(row_bytes: int, block: int) -> None:
    assert bytes_of_block(BLOCK_BYTES, row_bytes) == block
    assert bytes_of_block(4096, 400_000) == FEWEST_ROWS * 400_000


def test_a_column_that_is_an_id_and_a_feature_keeps_its_place(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0], "tuple_id": [5.0, 6.0], "c": pa.array([None, 4.0])})
    path = _write(tmp_path / "t.parquet", table)
    features = FeatureColumns(names=["c", "tuple_id", "a"])
    rows = open_table_rows(open_table(path), Roles(), features, required=("tuple",))
    (block,) = rows.rows(Problems())
    np.testing.assert_array_equal(block.cells, [[np.nan, 5, 1], [4, 6, 2]])


def _read_by(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[set[str], np.ndarray[Any, Any]]:
    """Which of the two ways a Parquet file is read by, and its values."""
    used = set()

    def noted(name: str) -> None:
        read = getattr(parquet_tables, name)
        monkeypatch.setattr(parquet_tables, name, lambda *given: used.add(name) or read(*given))

    noted("_whole_groups")
    noted("_batch_by_batch")
    rows = open_table_rows(open_table(path), Roles(), FeatureColumns(), optional=("id",))
    return used, np.concatenate([block.cells for block in rows.rows(Problems())])


@pytest.mark.parametrize(
    ("rows", "columns", "group", "way"),
    [
        (900, 800, 400, "_whole_groups"),  # groups of more rows than a block, less than readers take
        (900, 3, 900, "_whole_groups"),
        (900, 800, 50, "_batch_by_batch"),  # whole groups would be blocks of 50 rows
        (20_000, 3, 20_000, "_batch_by_batch"),  # would be in memory at once
    ],
)
def test_small_row_groups_are_read_whole_and_others_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, columns: int, group: int, way: str
) -> None:
    monkeypatch.setattr(parquet_tables, "COLUMNS_AT_A_TIME", 300)
    values = np.random.default_rng(0).normal(size=(rows, columns))
    table = pa.table({"id": np.arange(rows), **{f"x{j}": values[:, j] for j in range(columns)}})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=group)
    used, cells = _read_by(tmp_path / "t.parquet", monkeypatch)
    assert used == {way}
    np.testing.assert_array_equal(cells, values)
