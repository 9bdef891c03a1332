from __future__ import annotations

import csv
import io

from summary_rows import group

from ntmp_cli.reporting import rendering
from ntmp_cli.reporting.grid import metric_grid

ROWS = [
    group("b", 0.91, prior=0.5),
    group("a", 0.92, prior=0.5),
    group("supervised", 0.99, prior=0.5),
    group("a", 0.8, prior=0.2, dataset="svhn"),
    group("b", 0.9, prior=0.2),
    group("a", 0.9000001, prior=0.2),
    group("a", 0.7, n=10, m=1),
    group("b", None, n=10, m=1, undefined=5),
    group("a", 0.3, "ap"),
]


def test_rows_are_tuples_prior_and_data_set_and_columns_methods_with_oracles_last() -> None:
    grid = metric_grid(ROWS, "accuracy", title="Study.")
    assert grid.headers == ("tuples", "π", "dataset", "a", "b", "supervised")
    texts = [[f"*{c.text}*" if c.best else c.text for c in grid.shown(row)] for row in grid.rows]
    assert texts == [
        ["3:1", "0.2", "mnist", "*90.00 ± 1.00*", "*90.00 ± 1.00*", "—"],
        ["3:1", "0.2", "svhn", "80.00 ± 1.00", "—", "—"],
        ["3:1", "0.5", "mnist", "*92.00 ± 1.00*", "91.00 ± 1.00", "99.00 ± 1.00"],
        ["10:1", "0.5", "mnist", "*70.00 ± 1.00*", "undefined", "—"],
    ]
    assert [len(block) for block in grid.blocks] == [2, 1, 1]


def test_the_caption_says_what_bold_means_who_is_unranked_and_where_the_study_operates() -> None:
    grid = metric_grid(ROWS, "accuracy", title="Study.").with_notes(["Operating gap Δ_op = 0.1"])
    assert grid.caption.startswith("Study: accuracy (%) on the test split. Mean ± standard deviation over 5 seeds;")
    assert "Bold: best mean of each row. Not ranked, because it uses the labels: supervised. " in grid.caption
    assert grid.caption.endswith("Operating gap Δ_op = 0.1.")


def test_columns_stand_as_in_the_paper_then_ours_then_oracles() -> None:
    methods = ["count", "kmeans++", "kmeans", "supervised", "uu", "uucor", "ure", "ure+abs/source", "ure+relu/source"]
    grid = metric_grid([group(method, 0.9) for method in methods], "accuracy", title="Study")
    paper = ("ure+abs/source", "ure+relu/source", "ure", "uucor", "uu", "kmeans", "kmeans++")
    assert grid.headers[3:] == (*paper, "count", "supervised")


def test_the_operating_gap_of_a_row_is_the_mean_over_its_methods() -> None:
    grid = metric_grid([group("a", 0.9, gap=0.1), group("b", 0.8, gap=0.2)], "accuracy", title="Study")
    assert grid.headers[:4] == ("tuples", "π", "dataset", "Δ_op")
    assert grid.rows[0][3].text == "0.15"


def test_csv_of_a_grid_holds_raw_values_by_method() -> None:
    first = next(csv.DictReader(io.StringIO(rendering.to_csv(metric_grid(ROWS, "accuracy", title="Study")))))
    assert (first["prior"], first["n"], first["a mean"], first["b std"]) == ("0.2", "3", "0.9000001", "0.01")
