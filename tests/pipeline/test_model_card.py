"""`train` and `export` leave a model card that says what the run was made of, and what predict would say of it."""

from __future__ import annotations

import json
import re

import own_data
import pyarrow.csv as pacsv
import pytest
from conftest import TINY_TRAINING, TINY_TUPLES, done


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """All unlabeled rows are the pool, so that a prediction of the same rows expects what the card expects."""
    folder = own_data.write_csv(tmp_path_factory.mktemp("card"))
    unlabeled = pacsv.read_csv(folder / "unlabeled.csv")
    hostile = unlabeled.rename_columns(["ra|d`ius", "texture, mean", *unlabeled.column_names[2:]])
    tuples = pacsv.read_csv(folder / "tuples.csv")
    pacsv.write_csv(hostile, folder / "unlabeled.csv")
    pacsv.write_csv(tuples.rename_columns(["tuple_id", "count", *hostile.column_names]), folder / "tuples.csv")
    files = (folder / "tuples.csv", "--unlabeled", folder / "unlabeled.csv")
    done("import-tuples", *files, "--heldout-share", 0, "--out", folder / "t")
    done("train", "--tuples", folder / "t", "--prior", own_data.PRIOR, "--model", "linear", "--out", folder / "run")
    return folder


def card(folder):
    return (folder / "model-card.md").read_text(encoding="utf-8")


def test_the_card_says_what_the_run_was_trained_on(work):
    text = card(work / "run")
    assert "| tuples | 50, of 5 items (250 items in all) |" in text
    assert "| unlabeled pool | 200 items |" in text
    assert "| value | 0.63 |\n| source | given by the user |" in text
    assert "| input | 6 features |" in text
    assert "- Positive scores mean the counted class: " in text
    assert "ntmp predict RUN new.csv" in text
    assert 'Columns: "ra\\|d\\`ius", "texture, mean",' in text


def test_the_card_expects_what_a_prediction_of_the_pool_expects(work):
    predicted = done("predict", work / "run", work / "unlabeled.csv", "--out", work / "scored.csv", "--json").json
    for name, metric in predicted["expected"].items():
        (row,) = re.findall(rf"^\| {name} \| (.*) \| (.*) to (.*) \|$", card(work / "run"), flags=re.MULTILINE)
        assert row == tuple(f"{value:.1%}" for value in (metric["value"], *metric["ci"]))


def test_the_card_says_what_the_expected_quality_is_over(work):
    assert "On new items from the same population as the unlabeled pool, of which a share of 0.63 is positive." in card(
        work / "run"
    )


def test_no_path_of_the_machine_is_on_the_card(work):
    assert str(work) not in card(work / "run")
    assert "/" not in card(work / "run").replace("---", "")


def test_an_export_has_the_card_of_its_run_and_its_own_use(work):
    pytest.importorskip("onnx")
    done("export", work / "run", "--format", "onnx", "--out", work / "exported")
    of_run, of_export = card(work / "run"), card(work / "exported")
    assert of_export.startswith(of_run.partition("## Score new rows")[0])
    assert "`model.onnx` takes an array `rows` of rows × 6 (float64)." in of_export
    assert "ntmp predict" not in of_export


def test_few_tuples_cannot_tell_the_accuracy(tmp_path):
    done("make-tuples", *TINY_TUPLES, "--out", tmp_path / "t")
    done("train", "--tuples", tmp_path / "t", *TINY_TRAINING, "--method", "ure", "--out", tmp_path / "run")
    held_out = json.loads((tmp_path / "t" / "manifest.json").read_text())["summary"]["tuples"]["heldout"]
    assert f"The accuracy on new items cannot be estimated from {held_out} tuples." in card(tmp_path / "run")
    assert "| metric |" not in card(tmp_path / "run")
