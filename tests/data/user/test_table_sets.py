"""A folder or pattern of tables is one data set: the same rows as one table, with messages that name the file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.user.inputs import Inputs
from ntmp_cli.data.user.table_sets import is_tables, open_tables, require_input
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.stages.import_tuples import import_tuples

ROWS = 240


def _table(late: str = "2") -> pa.Table:
    rng = np.random.default_rng(0)
    words = [*("0", "1") * (ROWS // 2 - 1), "1", late]
    return pa.table(
        {
            "tuple_id": np.arange(ROWS) % 60,
            "count": np.arange(ROWS) % 60 % 3,
            "x": rng.normal(size=ROWS).round(6),
            "word": words,
        }
    )


def _write(table: pa.Table, path: Path) -> None:
    if path.suffix == ".csv":
        pacsv.write_csv(table, path)
    else:
        pq.write_table(table, path)


def _split(folder: Path, table: pa.Table, ending: str) -> Path:
    """Three files of different lengths: rows of a tuple lie in all of them."""
    folder.mkdir()
    for name, start, stop in (("a", 0, 50), ("b", 50, 170), ("c", 170, ROWS)):
        _write(table.slice(start, stop - start), folder / f"{name}.{ending}")
    return folder


@pytest.mark.parametrize("late", ["2", "many"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_folder_and_a_pattern_give_the_tuples_of_one_table(tmp_path: Path, ending: str, late: str) -> None:
    """Also where only the last file shows that a column holds categories."""
    table = _table(late)
    _write(table, tmp_path / f"whole.{ending}")
    folder = _split(tmp_path / "rows", table, ending)
    payloads = []
    for number, path in enumerate([tmp_path / f"whole.{ending}", folder, folder / f"*.{ending}"]):
        tuples = import_tuples(ImportTuplesConfig(), Inputs(path), tmp_path / f"out-{number}", block_bytes=1000)
        payloads.append({entry.path: entry.sha256 for entry in tuples.manifest.files})
        assert [row.kind for row in tuples.summary.features] == ["numeric", "numeric" if late == "2" else "one-hot"]
    assert payloads[0] == payloads[1] == payloads[2]


def test_problems_name_the_file_and_its_row(tmp_path: Path) -> None:
    table = _table()
    counts = table["count"].to_pylist()
    folder = _split(tmp_path / "rows", table.set_column(1, "count", pa.array([*counts[:53], -1, *counts[54:]])), "csv")
    with pytest.raises(DataError, match=re.escape(f"{folder / 'b.csv'} row 4: ")):
        import_tuples(ImportTuplesConfig(), Inputs(folder), tmp_path / "out")


def test_an_image_outside_of_the_folder_is_named_by_its_file_and_row(tmp_path: Path) -> None:
    for name, image in (("a", "0.png"), ("b", "../0.png")):
        (tmp_path / f"{name}.csv").write_text(f"tuple_id,count,image\n{name},1,0.png\n{name},1,{image}\n")
    with pytest.raises(DataError, match=re.escape(f"{tmp_path / 'b.csv'} row 2: ../0.png lies outside")):
        import_tuples(ImportTuplesConfig(), Inputs(tmp_path), tmp_path.parent / f"{tmp_path.name}-out")


def test_tables_of_different_columns_are_refused(tmp_path: Path) -> None:
    folder = _split(tmp_path / "rows", _table(), "parquet")
    _write(_table().drop_columns(["x"]), folder / "b.parquet")
    with pytest.raises(DataError, match="only one of them has the column 'x'"):
        open_tables(folder)
    _write(_table().set_column(2, "x", pa.array(["text"] * ROWS)), folder / "b.parquet")
    with pytest.raises(DataError, match=r"column 'x' holds string, but in .*a.parquet double"):
        open_tables(folder)


def test_a_pattern_without_files_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no table matches"):
        require_input(tmp_path / "*.parquet")


def test_a_folder_of_images_with_counts_is_no_folder_of_tables(tmp_path: Path) -> None:
    (tmp_path / "t1").mkdir()
    (tmp_path / "counts.csv").write_text("tuple_id,count\nt1,1\n")
    assert not is_tables(tmp_path)


def test_an_output_inside_a_folder_of_tables_is_refused(tmp_path: Path) -> None:
    folder = _split(tmp_path / "rows", _table(), "csv")
    with pytest.raises(UsageError, match="lies inside the input"):
        import_tuples(ImportTuplesConfig(), Inputs(folder), folder / "out")
