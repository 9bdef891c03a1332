"""What the columns of a table hold: numbers or categories, by their values all through the file; what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.data.user.streams import HEAD_BYTES

MARKERS = ("?", "NA", "N/A", "nan", "null", "")


def write(path: Path, columns: dict[str, list[Any]], rows: int = 60) -> Path:
    """A table of tuples of three with these columns, cut to so many rows."""
    ids = {"tuple_id": [f"t{i // 3}" for i in range(rows)], "count": [i // 3 % 4 for i in range(rows)]}
    repeated = {name: (values * (rows // len(values) + 1))[:rows] for name, values in columns.items()}
    table = pa.table({**ids, **repeated})
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    else:
        lines = [",".join(table.column_names), *(",".join(map(str, row.values())) for row in table.to_pylist())]
        path.write_text("\n".join(lines) + "\n")
    return path


def kinds(path: Path, ntmp_done: Any, *words: object) -> dict[str, tuple[str, int]]:
    """Kind and missing values of every feature."""
    understood = ntmp_done("import-tuples", path, *words, "--dry-run", "--json").json
    return {row["name"]: (row["kind"], row["missing"]) for row in understood["features"]}


def payload(path: Path) -> dict[str, str]:
    return {entry.path: entry.sha256 for entry in open_artifact(path).manifest.files}


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_texts_are_categories_and_markers_are_missing_in_every_column(name, tmp_path, ntmp_done):
    columns = {
        "size": ["1.5", "2", "3", "-4e2", *MARKERS],
        "colour": ["red", "green", " red", "blue", *MARKERS],
        "grade": ["0", "1", "2", "3+", "2"],
    }
    assert kinds(write(tmp_path / name, columns), ntmp_done) == {
        "size": ("numeric", 36),
        "colour": ("one-hot", 36),
        "grade": ("one-hot", 0),
    }
    ntmp_done("import-tuples", tmp_path / name, "--out", tmp_path / "t")
    stored = json.loads((tmp_path / "t" / "mapping.json").read_text())["features"]["columns"]
    assert [column.get("categories") for column in stored] == [None, ["blue", "green", "red"], ["0", "1", "2", "3+"]]


def test_csv_and_parquet_files_of_texts_give_the_same_instances(tmp_path, ntmp_done):
    columns = {"size": ["1.5", "2", "3", *MARKERS], "colour": ["red", "green", *MARKERS]}
    for name in ("t.csv", "t.parquet"):
        ntmp_done("import-tuples", write(tmp_path / name, columns), "--out", tmp_path / f"{name}-t")
    assert payload(tmp_path / "t.csv-t") == payload(tmp_path / "t.parquet-t")


def test_numbers_are_categories_where_the_user_or_the_file_says_so(tmp_path, ntmp_done):
    path = write(tmp_path / "t.parquet", {"zone": ["1", "2", "3"], "ward": [1, 2, 3]})
    assert kinds(path, ntmp_done) == {"zone": ("numeric", 0), "ward": ("numeric", 0)}
    assert kinds(path, ntmp_done, "--categorical", "ward")["ward"] == ("one-hot", 0)
    table = pq.read_table(path)
    pq.write_table(table.set_column(2, "zone", table["zone"].dictionary_encode()), path)
    assert kinds(path, ntmp_done)["zone"] == ("one-hot", 0)


# --- beyond the first rows --------------------------------------------------------------------------

LONG = 120_000
HEADER = "tuple_id,count,size,zone\n"


def long_table(path: Path, last: str, zone: str = "{zone}") -> Path:
    """More rows than are looked at first; `size` has many values, `zone` three, and the last row is given."""
    lines = [f"t{i // 3},1,{i / 7:.4f},{zone.format(zone=i % 3)}" for i in range(LONG - 1)]
    path.write_text(HEADER + "\n".join([*lines, f"t{(LONG - 1) // 3},1,{last}"]) + "\n")
    assert path.stat().st_size > 2 * HEAD_BYTES
    return path


def test_a_text_in_the_last_row_makes_a_column_one_of_categories(tmp_path, ntmp_done):
    late = long_table(tmp_path / "late.csv", "5,north")
    ntmp_done("import-tuples", late, "--out", tmp_path / "guessed")
    ntmp_done("import-tuples", late, "--categorical", "zone", "--out", tmp_path / "named")
    assert payload(tmp_path / "guessed") == payload(tmp_path / "named")
    assert kinds(late, ntmp_done) == {"size": ("numeric", 0), "zone": ("one-hot", 0)}
    # The same of a column of text in a Parquet file.
    pq.write_table(pacsv.read_csv(late), tmp_path / "late.parquet")
    ntmp_done("import-tuples", tmp_path / "late.parquet", "--out", tmp_path / "parquet")
    assert payload(tmp_path / "parquet") == payload(tmp_path / "named")


def test_a_file_of_unlabeled_rows_follows_what_the_main_file_turns_out_to_hold(tmp_path, ntmp_done):
    late = long_table(tmp_path / "late.csv", "5,north")
    (tmp_path / "u.csv").write_text("size,zone\n1,1\n2,south\n3,?\n")
    assert kinds(late, ntmp_done, "--unlabeled", tmp_path / "u.csv")["zone"] == ("one-hot", 1)


def test_mistakes_among_many_numbers_are_listed_however_late_they_come(tmp_path, ntmp, ntmp_done):
    late = long_table(tmp_path / "late.csv", "5k,1")
    ended = ntmp("import-tuples", late, "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (
        3,
        "error: 1 problem in the data, nothing was written\n"
        f"  {late} row {LONG}, column 'size': '5k' is not a number\n"
        "Rows are counted from 1, without the header. Correct them and try again. If the texts in size are not "
        "mistakes, pass --categorical COLUMN.\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["late.csv"]
    assert kinds(late, ntmp_done, "--categorical", "size")["size"] == ("hashed", 0)


def test_a_column_that_is_empty_at_first_holds_what_comes_later(tmp_path, ntmp_done):
    assert kinds(long_table(tmp_path / "a.csv", "5,north", zone=""), ntmp_done)["zone"] == ("one-hot", LONG - 1)
    assert kinds(long_table(tmp_path / "b.csv", "5,7", zone="NA"), ntmp_done)["zone"] == ("numeric", LONG - 1)


# --- what the user says -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_texts_in_a_numeric_column_are_mistakes(name, tmp_path, ntmp):
    path = write(tmp_path / name, {"grade": ["1", "2", "?", "3+"]}, rows=6)
    ended = ntmp("import-tuples", path, "--numeric", "grade", "--out", tmp_path / "out")
    assert (ended.code, ended.err) == (
        3,
        f"error: 1 problem in the data, nothing was written\n  {path} row 4, column 'grade': '3+' is not a number\n"
        "Rows are counted from 1, without the header. Correct them and try again.\n",
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--numeric", "a", "--categorical", "a"), "numeric: 'a' is named as categorical too"),
        (("--ignore", "a", "--numeric", "a"), "ignore: 'a' is named as numeric too"),
    ],
)
def test_a_column_has_one_kind(words, message, tmp_path, ntmp):
    path = write(tmp_path / "t.csv", {"a": ["1", "2"]})
    ended = ntmp("import-tuples", path, *words, "--out", tmp_path / "out")
    assert ended.code == 2
    assert message in ended.err


def test_a_numeric_column_must_be_there(tmp_path, ntmp):
    path = write(tmp_path / "t.csv", {"size": ["1", "2"]})
    ended = ntmp("import-tuples", path, "--numeric", "sise", "--out", tmp_path / "out")
    assert ended.code == 3
    assert f"{path}: has no column 'sise', which --numeric names; did you mean 'size'?" in ended.err


# --- at prediction ----------------------------------------------------------------------------------


def test_unseen_categories_and_extra_columns_are_counted_in_one_line_each(tmp_path, ntmp, ntmp_done):
    columns = {"size": ["1", "2", "4"], "colour": ["red", "blue"], "kind": ["a", "b", "c"], "note": ["x"]}
    path = write(tmp_path / "t.csv", columns)
    ntmp_done("import-tuples", path, "--ignore", "note", "--out", tmp_path / "t")
    ntmp_done("train", "--tuples", tmp_path / "t", "--model", "linear", "--prior", 0.4, "--out", tmp_path / "r")
    quiet = ntmp_done("predict", tmp_path / "r", path, "--out", tmp_path / "quiet.csv").err
    assert "did not" not in quiet
    new = tmp_path / "new.csv"
    new.write_text("id,colour,size,kind,note,hue,label\n1,green,2,a,,1,0\n2,?,NA,z,,2,1\n3,pink,1,b,,3,0\n")
    ended = ntmp_done("predict", tmp_path / "r", new, "--out", tmp_path / "p.csv")
    lines = [line for line in ended.err.splitlines() if "did not" in line]
    assert lines == [
        f"warning: {new}: categories that training did not see (their features are 0): colour (2), kind (1)",
        f"warning: {new}: 1 column that the training did not have: hue",
    ]
    assert pacsv.read_csv(tmp_path / "p.csv").num_rows == 3
    new.write_text("id,colour,size\n1,green,2\n")
    ended = ntmp("predict", tmp_path / "r", new, "--out", tmp_path / "q.csv")
    assert ended.code == 3
    assert ended.err.startswith(f"error: {new}: has no column 'kind', which is a feature")
