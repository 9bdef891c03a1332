"""The table of colour images: what its file says, in words that claim no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import colour_rows
from benchmarks.colour_rows import FILE, RECIPES, Key, load, main, save
from docs.write_colour import PAGE, best_of_paper, cells, content, row, verdict
from docs.write_readme import region

KEY = Key("cifar10", 5, 2, 0.5, 0, "count", "patches-mlp")
VALUES = {"accuracy": 0.768, "accuracy_at_prior": 0.75, "auroc": 0.836, "seconds": 40}


def record(key: Key, **values: float) -> dict[str, object]:
    return {**key._asdict(), **VALUES, **values}


def test_the_page_shows_what_the_file_says() -> None:
    assert region(PAGE.read_text(encoding="utf-8"), "colour").strip() == content(load(FILE)).strip()


def test_all_eighteen_rows_are_there_with_the_best_cell_of_the_paper() -> None:
    assert len(cells()) == len(set(cells())) == 18
    assert best_of_paper(("cifar10", 5, 2, 0.5)) == pytest.approx(82.87)
    assert best_of_paper(("svhn", 7, 2, 0.2)) == pytest.approx(92.78)
    assert content({KEY: record(KEY)}).count("| not run |") == 17
    assert content({}).count("Not run.") == len(RECIPES)


def test_a_row_is_the_mean_over_seeds_and_says_where_it_is_below() -> None:
    other = KEY._replace(seed=1)
    labels = KEY._replace(n=3, m=1, method="supervised")
    records = {KEY: record(KEY), other: record(other, accuracy=0.788), labels: record(labels, accuracy=0.842)}
    words = [word.strip() for word in row(records, ("cifar10", 5, 2, 0.5)).strip("|").split("|")]
    assert words[:4] == ["CIFAR-10", "(5,2)", "0.5", "77.8"]
    assert words[6:] == ["84.2", "82.9", "2", "5.1 below the paper, 6.4 below labels"]
    assert verdict(83.0, 82.9, 84.0) == "at the paper's best or above"
    assert verdict(83.0, 82.9, None) == "at the paper's best or above"


def test_recipes_have_a_table_each() -> None:
    other = KEY._replace(recipe="convnet")
    lines = content({KEY: record(KEY), other: record(other, accuracy=0.9)}).splitlines()
    assert [line.split(" | ")[3] for line in lines if line.startswith("| CIFAR-10 | (5,2) | 0.5")] == ["76.8", "90.0"]


def test_records_are_kept_and_a_second_run_measures_what_is_missing(tmp_path: Path, monkeypatch) -> None:
    file, measured = tmp_path / "colour.yaml", []
    save(file, {KEY: record(KEY)})
    assert load(file) == {KEY: record(KEY)}

    def measure(key: Key, work: Path) -> dict[str, object]:
        measured.append(key)
        return record(key)

    monkeypatch.setattr(colour_rows, "measure", measure)
    words = [
        "--data",
        "cifar10",
        "--tuples",
        "5:2",
        "7:2",
        "--priors",
        "0.5",
        "--file",
        str(file),
        "--work",
        str(tmp_path),
    ]
    main(words)
    main(words)
    assert measured == [KEY._replace(n=7, m=2)]
    assert load(file).keys() == {KEY, KEY._replace(n=7, m=2)}
