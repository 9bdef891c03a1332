"""Simulated tuples of one's own labelled table, down to predictions on raw rows."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import roc_auc_score

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.data.labelled import TableColumns, load_labelled
from ntmp_cli.errors import UsageError

ROWS = 900


def patients(positive: str = "yes", negative: str = "no") -> pa.Table:
    """Ages with gaps, jobs, and a column whose name an import would reserve; about two fifths are positive."""
    rng = np.random.default_rng(0)
    y = rng.random(ROWS) < 0.4
    age = np.round(rng.normal(40 + 15 * y, 10), 1)
    ages = ["?" if rng.random() < 0.1 else f"{value}" for value in age]
    jobs = [rng.choice(["cook", "nurse", "NA"], p=[0.7, 0.2, 0.1] if is_sick else [0.2, 0.7, 0.1]) for is_sick in y]
    return pa.table(
        {
            "id": np.arange(ROWS),
            "age": ages,
            "job": pa.array(jobs),
            "count": rng.poisson(2 + 2 * y),
            "sick": [positive if is_sick else negative for is_sick in y],
        }
    )


def write(path: Path, table: pa.Table) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path)
        return path
    sign = "\t" if path.suffix == ".tsv" else ","
    rows = [sign.join(map(str, row.values())) for row in table.to_pylist()]
    path.write_text("\n".join([sign.join(table.column_names), *rows]) + "\n")
    return path


MAKING = ("--label-column", "sick", "--n", 4, "--m", 1, "--prior", 0.5)


@pytest.fixture(scope="module")
def made(tmp_path_factory, ntmp_done) -> Path:
    folder = tmp_path_factory.mktemp("labelled")
    path = write(folder / "patients.csv", patients())
    ntmp_done("make-tuples", "--dataset", f"table:{path}", *MAKING, "--out", folder / "t")
    return folder


def test_a_labelled_table_becomes_tuples_a_run_an_evaluation_and_predictions(made, tmp_path, ntmp_done):
    tuples = open_artifact(made / "t", "tuples").summary
    assert (tuples.dataset, tuples.test, tuples.positive_classes) == ("table:patients.csv", 180, ("yes",))
    assert tuples.instance.standardised
    assert [(row.name, row.kind) for row in tuples.features] == [
        ("age", "numeric"),
        ("job", "one-hot"),
        ("count", "numeric"),
    ]
    assert tuples.notes == ("the table has no test split: a fixed random 80/20 split was made",)
    ntmp_done("train", "--tuples", made / "t", "--model", "linear", "--out", tmp_path / "r")
    ntmp_done("evaluate", tmp_path / "r", "--out", tmp_path / "e")
    # Raw rows of the table go through the stored mapping: the scores of its test rows are those of the run.
    ended = ntmp_done("predict", tmp_path / "r", made / "patients.csv", "--out", tmp_path / "p.csv")
    assert "did not" not in ended.err
    predicted = pacsv.read_csv(tmp_path / "p.csv")
    assert predicted.column_names == ["id", "score", "probability", "label"]
    scores = predicted["score"].to_numpy()
    labels = np.array(patients()["sick"].to_pylist()) == "yes"
    assert roc_auc_score(labels, scores) > 0.85
    expected = read_scores(open_artifact(tmp_path / "r"))["test"]
    with h5py.File(made / "t" / "oracle" / "test-labels.h5") as file:
        test_labels = file["labels"][()].astype(bool)
    test_rows = np.random.default_rng(0).permutation(ROWS)[-180:]
    assert np.allclose(scores[test_rows], expected, atol=1e-5)
    assert np.array_equal(labels[test_rows], test_labels)


def test_statistics_come_from_the_training_split(made):
    table = patients()
    train = np.random.default_rng(0).permutation(ROWS)[:-180]
    ages = np.array([np.nan if text == "?" else float(text) for text in table["age"].to_pylist()])[train]
    columns = json.loads((made / "t" / "mapping.json").read_text())["features"]["columns"]
    assert columns[0]["mean"] == pytest.approx(np.nanmean(ages))
    assert columns[0]["scale"] == pytest.approx(np.nanstd(ages))
    summary = open_artifact(made / "t", "tuples").summary
    assert summary.features[0].missing == np.isnan(ages).sum()


@pytest.mark.parametrize("name", ["patients.tsv", "patients.parquet"])
def test_other_formats_give_the_same_tuples(name, made, tmp_path, ntmp_done):
    path = write(tmp_path / name, patients())
    ntmp_done("make-tuples", "--dataset", f"table:{path}", *MAKING, "--out", tmp_path / "t")
    first, second = (
        {entry.path: entry.sha256 for entry in open_artifact(folder / "t").manifest.files}
        for folder in (made, tmp_path)
    )
    assert first == second


def test_columns_are_named_as_for_an_import(tmp_path, ntmp_done):
    path = write(tmp_path / "patients.csv", patients("1", "0"))
    words = ("--categorical", "count", "--ignore", "job", "--label-column", "sick", "--test-share", 0.5)
    ntmp_done("make-tuples", "--dataset", f"table:{path}", *words, "--out", tmp_path / "t")
    summary = open_artifact(tmp_path / "t", "tuples").summary
    assert [(row.name, row.kind) for row in summary.features] == [("age", "numeric"), ("count", "one-hot")]
    assert (summary.test, summary.positive_classes) == (450, ("1",))


def test_the_order_of_rows_does_not_decide_the_classes(tmp_path):
    table = patients("b", "a")
    path = write(tmp_path / "patients.csv", table)
    columns = TableColumns(label="sick")
    data = load_labelled(f"table:{path}", columns=columns)
    assert (data.classes, data.positive) == (("a", "b"), ())
    write(path, table.take(np.argsort(-np.array(table["sick"].to_pylist() == np.array("b"), dtype=int))))
    assert load_labelled(f"table:{path}", columns=columns).classes == ("a", "b")


def test_categories_of_the_same_instances_are_part_of_the_fingerprint(tmp_path):
    columns, table = TableColumns(label="sick"), patients()
    first = load_labelled(f"table:{write(tmp_path / 'a.csv', table)}", columns=columns)
    jobs = pa.array([None if job == "NA" else job.replace("cook", "chef") for job in table["job"].to_pylist()])
    second = load_labelled(f"table:{write(tmp_path / 'b.parquet', table.set_column(2, 'job', jobs))}", columns=columns)
    assert np.array_equal(first.x_train, second.x_train)
    assert first.fingerprint() != second.fingerprint()


def test_a_text_far_down_is_a_category_here_too(tmp_path):
    lines = [f"{i % 5},{i % 2}" for i in range(400_000)]
    (tmp_path / "long.csv").write_text("\n".join(["grade,label", *lines, "5+,1"]) + "\n")
    data = load_labelled(f"table:{tmp_path}/long.csv")
    assert data.mapping is not None
    assert data.mapping.features.columns[0].kind == "one-hot"


# --- mistakes ---------------------------------------------------------------------------------------


def test_labels_that_say_nothing_are_asked_for(tmp_path, ntmp):
    path = write(tmp_path / "patients.csv", patients("ill", "well"))
    words = ("make-tuples", "--dataset", f"table:{path}", *MAKING)
    ended = ntmp(*words, "--out", tmp_path / "t")
    assert (ended.code, ended.err) == (
        2,
        "error: table:patients.csv: which classes are positive? The data has ill, well\n"
        "Name them with --positive CLASS, once per class.\n",
    )
    assert ntmp(*words, "--positive", "ill", "--out", tmp_path / "t").code == 0


MISTAKES = {
    "no label column": (
        "a,b\n1,2\n",
        (),
        3,
        "{p}: has no column 'label', the label (--label-column)\nThe columns are a",
    ),
    "a row without label": (
        "a,label\n1,1\n2,\n3,0\n4,?\n",
        (),
        3,
        "2 problems in the data, nothing was written\n  {p} row 2: has no label\n  {p} row 4: has no label\n",
    ),
    "texts among numbers": (
        "a,label\n1,1\nx,0\n",
        ("--numeric", "a"),
        3,
        "1 problem in the data, nothing was written\n  {p} row 2, column 'a': 'x' is not a number\n",
    ),
    "one class": ("a,label\n1,1\n2,1\n", (), 3, "{p}: every instance is of class '1', so there are no two classes"),
    "no rows": ("a,label\n", (), 3, "{p}: has no rows\nStore one row per item.\n"),
    "no features": ("label,id\n1,2\n", (), 3, "{p}: has no feature column besides label, id\n"),
    "resizing": ("a,label\n1,1\n2,0\n", ("--resize", 3), 2, "--resize 3: table is not a folder of images\n"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_tables_that_cannot_be_meant_are_refused(mistake, tmp_path, ntmp):
    content, words, code, message = MISTAKES[mistake]
    path = tmp_path / "p.csv"
    path.write_text(content)
    ended = ntmp("make-tuples", "--dataset", f"table:{path}", *words, "--out", tmp_path / "t")
    assert ended.code == code
    assert ended.err.startswith("error: " + message.format(p=path))
    assert [child.name for child in tmp_path.iterdir()] == ["p.csv"]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("gone.csv", 3, "{p}: no such file\n"),
        ("p.xlsx", 2, "{p}: not the name of a table\nTables end in .csv, .tsv, "),
    ],
)
def test_files_that_are_no_tables_are_refused(name, code, message, tmp_path, ntmp):
    ended = ntmp("make-tuples", "--dataset", f"table:{tmp_path / name}", "--out", tmp_path / "t")
    assert ended.code == code
    assert ended.err.startswith("error: " + message.format(p=tmp_path / name))


def test_columns_of_what_is_no_table_are_refused():
    with pytest.raises(UsageError) as caught:
        load_labelled("digits", columns=TableColumns(label="y", test_share=0.5))
    assert caught.value.message == "--label-column, --test-share: only for --dataset table:FILE, not for digits"


def test_a_table_is_not_read_from_standard_input():
    with pytest.raises(UsageError, match="read more than once"):
        load_labelled("table:-")
