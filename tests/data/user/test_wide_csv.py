"""Wide CSV tables are read as pyarrow reads them, without its memory."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ntmp_cli.data.user import csv_tables, wide_csv
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.table_files import open_table
from ntmp_cli.errors import DataError

COLUMNS, ROWS = 1200, 40
Lines = list[list[str]]


def plain() -> Lines:
    values = np.random.default_rng(0).normal(size=(ROWS, COLUMNS))
    return [[f'"t{row // 4}"', "1", *map(str, line), f"end {row}"] for row, line in enumerate(values.tolist())]


def changed(row: int, column: int, cell: str) -> Lines:
    lines = plain()
    lines[row][column] = cell
    return lines


def written(path: Path, lines: Lines, sign: str = ",", end: str = "\n") -> Path:
    header = ["tuple_id", "count", *(f"x{j}" for j in range(COLUMNS)), "place"]
    content = (end.join(sign.join(line) for line in [header, *lines]) + end).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path: Path) -> tuple[Any, str]:
    """All rows, or the message of the problems."""
    try:
        table, problems = open_table(path, 2**16), Problems()
        numbers = {name: "number" for name in table.types if name not in ("tuple_id", "count", "place")}
        wanted: Any = {"tuple_id": "as is", "count": "as is", "place": "text", **numbers}
        batches = list(table.batches(wanted, problems))
        problems.raise_if_any()
    except DataError as error:
        return None, str(error)
    rows = pa.Table.from_batches(batches)
    cells = np.concatenate([batch.select(list(numbers)).to_tensor(null_to_nan=True).to_numpy() for batch in batches])
    return ({name: rows.column(name).to_pylist() for name in ("tuple_id", "count", "place")}, cells.tobytes()), ""


RAGGED = [*plain()[:20], plain()[20][:-1], *plain()[21:]]
TABLES = {
    "plain": plain(),
    "missing": changed(7, 5, ""),
    "missing at the ends": [["", "", *line[2:-1], ""] for line in plain()],
    "marked as missing": changed(9, 5, " NA"),
    "spaces": changed(9, 5, "  2.5 "),
    "quoted number": changed(30, 5, '"2.5"'),
    "quoted delimiter": changed(30, 0, '"a,b;c"'),
    "quoted delimiter in a ragged row": [*plain()[:20], ['"a,b;c"', *plain()[20][2:]], *plain()[21:]],
    "quoted quote": changed(30, 0, '"a""b"'),
    "text among numbers": changed(30, 5, "2.5x"),
    "ragged": RAGGED,
    "empty line": [*plain()[:20], [], *plain()[20:]],
    "line end in a row": changed(30, 5, "2.5\r3"),
}


@pytest.mark.parametrize("what", TABLES)
def test_rows_and_messages_are_those_of_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    path = written(tmp_path / "t.csv", TABLES[what])
    monkeypatch.setattr(wide_csv, "PIECE_BYTES", 2**16)
    rows = read(path)
    monkeypatch.setattr(wide_csv, "WIDE_COLUMNS", 10**6)
    monkeypatch.setattr(csv_tables, "WIDE_COLUMNS", 10**6)
    assert rows == read(path)


@pytest.mark.parametrize(
    ("name", "sign", "end"), [("t.csv", ";", "\r\n"), ("t.tsv", "\t", "\n"), ("t.csv.gz", ",", "\n")]
)
def test_every_kind_of_file_gives_the_same_rows(tmp_path: Path, name: str, sign: str, end: str) -> None:
    assert read(written(tmp_path / name, plain(), sign, end)) == read(written(tmp_path / "plain.csv", plain()))


def test_the_file_is_not_read_far_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow reads far ahead, whatever the size of a block: 1.3 GB with 20,000 columns."""
    path = written(tmp_path / "t.csv", plain() * 10)
    monkeypatch.setattr(wide_csv, "PIECE_BYTES", 2**16)
    table = open_table(path, 2**16)
    streams = []
    opened = csv_tables.opened_stream

    def kept(location: Any) -> Any:
        streams.append(opened(location))
        return streams[-1]

    monkeypatch.setattr(csv_tables, "opened_stream", kept)
    wanted: Any = {name: "number" for name in table.types if name.startswith("x")}
    batches = table.batches(wanted, Problems())
    next(batches)
    assert streams[-1].tell() < path.stat().st_size / 4


def test_types_are_found_for_some_columns_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.csv", plain())
    asked: list[int] = []
    reader = csv_tables.CsvTable._from_head

    def counted(self: Any, conversion: Any) -> Any:
        asked.append(len(conversion.include_columns))
        return reader(self, conversion)

    monkeypatch.setattr(csv_tables, "COLUMNS_OF_HEAD", 500)
    monkeypatch.setattr(csv_tables.CsvTable, "_from_head", counted)
    types = open_table(path).types
    assert asked == [500, 500, COLUMNS + 3 - 1000]
    assert list(types)[:3] + list(types)[-1:] == ["tuple_id", "count", "x0", "place"]


def test_a_row_longer_than_a_block_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.csv", [*plain(), ["1" * 2**22]])
    monkeypatch.setattr(wide_csv, "PIECE_BYTES", 2**16)
    rows, message = read(path)
    assert rows is None
    assert "not a readable CSV file" in message
