"""docs/reproduction.md: its tables are those of docs/results/; trainings that are kept are not repeated."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import paper_rows
from benchmarks.clamps import VARIANTS, row_of_paper
from benchmarks.paper_rows import SAME, main, name_of, study_of
from benchmarks.training_store import CHOICE_SEEDS, TrainingKey, TrainingStore
from docs.write_reproduction import (
    BEFORE,
    DASH,
    PAGE,
    Value,
    accuracy_table,
    adaptive_rows,
    cells,
    count_table,
    difference,
    epochs_table,
    of_seeds,
    regions,
    render,
    small_data_table,
    value_of,
)
from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.method import methods

CELL = ("mnist", 3, 1, 0.5)
VALUES = {"accuracy": 0.9, "accuracy_at_prior": 0.8, "auroc": 0.7, "ap": 0.6}


def kept(**accuracies: list[float]) -> TrainingStore:
    store = TrainingStore()
    for column, values in accuracies.items():
        for seed, accuracy in enumerate(values):
            store.add(TrainingKey("ours", *CELL, column, seed), {**VALUES, "accuracy": accuracy}, commit="abc")
    return store


def row_of(table: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith("| MNIST | (3,1) | 0.5 |")]
    return line.strip("| ").split(" | ")


def test_the_tables_are_those_of_the_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert render(text) == text, "run `python -m docs.write_reproduction`"


def test_every_table_but_those_of_colour_images_is_written_from_results() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- begin (.*?) -->", text)) >= set(regions())
    by_hand = re.sub(r"<!-- begin .*?<!-- end .*? -->|\n## Colour images\n.*?(?=\n## )", "", text, flags=re.DOTALL)
    assert "\n| " not in by_hand


def test_cells_are_means_over_seeds_beside_the_papers_and_what_was_not_measured_is_a_dash() -> None:
    row = row_of(accuracy_table(kept(abs=[0.92, 0.94], ure=[0.91]), "ours"))
    assert row[3:10] == [
        "93.00 ± 1.41 / 97.76",
        f"{DASH} / 98.87",
        "91.00 / 87.53",
        "93.00 ± 1.41 / 68.84",  # UUcor is ABS by class
        "91.00 / 61.88",  # UU is URE
        f"{DASH} / 60.73",
        f"{DASH} / 59.96",
    ]
    assert row[10:] == [DASH, DASH]


def test_below_the_table_stand_seeds_rows_and_how_often_the_paper_is_reached() -> None:
    said = accuracy_table(kept(abs=[0.92, 0.94], ure=[0.91]), "ours")
    assert (
        "- ABS: 1 of 18 rows, 2 seeds each; at or above the paper's cell in 0, differences -4.8 to -4.8 points." in said
    )
    assert (
        "- URE: 1 of 18 rows, 1 seed each; at or above the paper's cell in 1, differences +3.5 to +3.5 points." in said
    )
    assert "- ReLU: not measured." in said
    assert accuracy_table(kept(abs=[0.92]), "literal") == "No row of this table has been measured yet."


def test_means_from_before_stand_where_they_have_more_seeds() -> None:
    facts = {"recipe": "ours", "data": "mnist", "n": 3, "m": 1, "prior": 0.5, "column": "count"}
    mean = {**facts, "seeds": [0, 1], "measured": "2026-01-01", "commit": "abc"}
    store = kept(count=[0.5])
    store.means = [{**mean, "accuracy": [0.99, 0.01], "accuracy_at_prior": [0.98, 0.02]}]
    assert value_of(store, "ours", CELL, "count") == Value(99.0, 1.0, 2)
    assert row_of(count_table(store))[3:5] == ["99.00 ± 1.00", "98.00 ± 2.00"]
    store.add(TrainingKey("ours", *CELL, "count", 1), VALUES, commit="abc")
    found = value_of(store, "ours", CELL, "count")
    assert found is not None
    assert (found.mean, found.seeds) == (pytest.approx(70.0), 2)


def test_a_store_is_read_as_it_was_written(tmp_path: Path) -> None:
    store, file = kept(abs=[0.92], ure=[0.91]), tmp_path / "paper.yaml"
    store.means = [{"recipe": "ours", "seeds": [0, 1], "commit": "1234567"}]
    store.save(file)
    read = TrainingStore.load(file)
    assert (read.trainings, read.means) == (store.trainings, store.means)
    assert [path.name for path in tmp_path.iterdir()] == ["paper.yaml"]
    assert TrainingStore.load(tmp_path / "none.yaml").trainings == {}


def test_a_repetition_trains_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, asked = tmp_path / "paper.yaml", []

    def measure(study: Any, wanted: list[TrainingKey], store: TrainingStore, file: Path, work: Path) -> None:
        asked.append([key.column for key in wanted])
        store.add(wanted[0], VALUES, commit="abc")
        store.save(file)  # stopped after the first

    monkeypatch.setattr(paper_rows, "measure_cell", measure)
    words = ["--recipe", "literal", "--data", "mnist", "--tuples", "5:2", "--priors", "0.2", "--file", str(file)]
    for _ in range(3):
        main([*words, "--columns", "abs", "uucor"])
    assert asked == [["abs", "uucor"], ["uucor"]]
    asked.clear()
    main(words)
    assert asked == [["relu", "ure", "kmeans", "kmeans++"]]


@pytest.mark.parametrize("recipe", ["ours", "literal"])
def test_every_cell_is_one_of_the_papers_files(recipe: str) -> None:
    for data, n, m, prior in cells():
        study = study_of(recipe, f"{n}:{m}", data, prior, 7)
        (tuples,) = study.tuples.values()
        assert (tuples.dataset, tuples.tuples, tuples.prior, tuples.seed) == (data, (f"{n}:{m}",), prior, 7)
        for (column, _), training in study.trainings.items():
            if (
                column in SAME[recipe]
            ):  # the column that fills it is of the same objective but for how tuples are pooled
                same = study.trainings[SAME[recipe][column], next(iter(study.tuples))]
                mine, theirs = (methods.get(one.method).risk_settings(one) for one in (training, same))  # type: ignore[attr-defined]
                assert (mine.clamp, mine.loss) == (theirs.clamp, theirs.loss)
                assert mine.clamp == "none" or mine.clamp_scope == theirs.clamp_scope


def test_a_difference_is_paired_and_has_its_error() -> None:
    places = [("digits", 3, 1, 0.5, seed) for seed in range(4)]
    before = {one: {"accuracy": 0.5} for one in places}
    after = {one: {"accuracy": 0.5 + step} for one, step in zip(places, (0.01, 0.03, -0.02, 0.02), strict=True)}
    assert difference(before, after, places, "accuracy") == "+1.0 ± 1.1 points, better in 3 of 4"


def test_seeds_that_variants_were_chosen_on_judge_nothing() -> None:
    store = TrainingStore()
    for seed in (CHOICE_SEEDS[0], 310):
        for name, accuracy in (("abs", 0.5), (BEFORE, 0.4)):
            key = TrainingKey("default", "digits", 3, 1, 0.5, name, seed)
            store.add(key, {**VALUES, "accuracy": accuracy}, commit="abc")
    judged, chosen = (of_seeds(store, chosen_on=on) for on in (False, True))
    assert {key.seed for key in judged.trainings} == {310}
    assert {key.seed for key in chosen.trainings} == {CHOICE_SEEDS[0]}
    judged.add(TrainingKey("ours", "mnist", 3, 1, 0.5, "flood 1", 0), VALUES, commit="other")
    said = small_data_table(judged)
    assert "| (3,1) | 0.5 | 1 | 40.0 | 50.0 | 0.700 | 0.700 |" in said
    assert "`other`" not in said  # that is not in the table


def test_the_table_by_epochs_counts_rows_whose_best_epoch_reaches_the_paper() -> None:
    store = TrainingStore()
    for recipe, accuracy in (("literal-1", 0.99), ("literal-10", 0.9), ("literal", 0.8)):
        store.add(TrainingKey(recipe, "mnist", 3, 1, 0.2, "abs", 0), {**VALUES, "accuracy": accuracy}, commit="abc")
    store.add(TrainingKey("literal", "mnist", 5, 2, 0.2, "abs", 0), {**VALUES, "accuracy": 0.8}, commit="abc")
    said = epochs_table(store)
    assert "| MNIST | (3,1) | 0.2 | 99.00 | – | 90.00 | 80.00 | 95.50 |" in said
    assert "The best of these epochs: after 1 in 1; after 100 in 1 rows." in said
    assert "in 1 of 2 rows of MNIST." in said
    assert "After 1 epoch minus after 100: +19.0 to +19.0 points in 1 rows." in said


def test_a_training_of_few_epochs_is_the_file_with_fewer_epochs() -> None:
    whole, first = (study_of("literal", "3:1", "mnist", 0.2, 0, epochs) for epochs in (None, 3))
    for place, training in whole.trainings.items():
        if "epochs" in type(training).model_fields:
            assert first.trainings[place] == training.model_copy(update={"epochs": 3})
    assert name_of("literal", 3) == "literal-3"


@pytest.mark.parametrize("column", ["abs", "relu"])
def test_adaptive_clamps_are_trained_like_the_rows_that_they_are_compared_with(column: str) -> None:
    tuples, training = row_of_paper("mnist", "5:2", 0.8, 1)
    study = study_of("ours", "5:2", "mnist", 0.8, 1)
    (cell,) = study.tuples
    assert tuples == study.tuples[cell]
    assert TrainConfig(**{**training, **VARIANTS[column](Path())}) == study.trainings[column, cell]


def test_adaptive_clamps_are_compared_on_the_rows_that_all_have() -> None:
    paper, clamps = TrainingStore(), TrainingStore()
    for column, accuracy in (("abs", 0.9), ("relu", 0.88)):
        for prior in (0.2, 0.5):
            key = TrainingKey("ours", "mnist", 3, 1, prior, column, 0)
            paper.add(key, {**VALUES, "accuracy": accuracy}, commit="abc")
    clamps.add(TrainingKey("ours", "mnist", 3, 1, 0.2, "flood 1", 0), {**VALUES, "accuracy": 0.93}, commit="def")
    clamps.add(TrainingKey("default", "mnist", 3, 1, 0.5, "flood 1", 0), VALUES, commit="old")
    said = adaptive_rows(paper, clamps)
    assert "| abs(term − s.e.) | 93.0 |" in said
    assert "1 trainings each: 1 cells of MNIST, seed 0. Code: `abc`, `def`." in said
