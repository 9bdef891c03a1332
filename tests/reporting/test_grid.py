from __future__ import annotations

import csv
import io

from summary_rows import group

from ntmp_cli.reporting import rendering
from ntmp_cli.reporting.grid import metric_grid
from ntmp_cli.reporting.operating import Operating, operating_of, operating_words
from ntmp_cli.reporting.prior_curves import metrics_against_prior

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
    texts = [[f"*{c.text}*" if c.best else c.text for c in row] for row in grid.rows]
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
    assert "Bold: best mean of each row. Not ranked, because it sees the labels: supervised. " in grid.caption
    assert grid.caption.endswith("Operating gap Δ_op = 0.1.")


def test_csv_of_a_grid_holds_raw_values_by_method() -> None:
    first = next(csv.DictReader(io.StringIO(rendering.to_csv(metric_grid(ROWS, "accuracy", title="Study")))))
    assert (first["prior"], first["n"], first["a mean"], first["b std"]) == ("0.2", "3", "0.9000001", "0.01")


# Captions ------------------------------------------------------------------------------------------


def test_the_gap_is_a_mean_over_runs_and_shows_its_range_where_priors_were_estimated() -> None:
    strata = ((3, 1, 100),)
    runs = [Operating("3:1", 0.5, told, 1 / 3, strata) for told in (0.5, 0.52)]
    assert operating_words(runs) == [
        "Operating gap Δ_op = |ᾱ − π̂|: 0.1767 (0.1667 to 0.1867) for 3:1 at π = 0.5",
        "Tuples 3:1: ᾱ = 0.3333, (3, 1) × 100",
    ]


def test_mixed_tuples_are_given_by_their_rate_and_stratum_sizes() -> None:
    runs = [
        Operating("mix", 0.2, 0.2, rate, tuple((n, 1, 10 * n + extra) for n in range(2, 12)))
        for extra, rate in ((0, 0.30), (5, 0.31))
    ]
    gap, strata = operating_words(runs)
    assert "0.1050 (0.1000 to 0.1100) for mix at π = 0.2" in gap
    assert strata.startswith("Tuples mix: ᾱ = 0.3000 to 0.3100, (11, 1) × 110 to 115, (10, 1) × 100 to 105")
    assert strata.endswith("and 4 more strata")


def test_nothing_known_about_the_runs_is_no_sentence() -> None:
    assert operating_words([]) == []


# Metrics against the prior -------------------------------------------------------------------------


def test_metrics_are_drawn_against_the_prior_only_where_there_are_several() -> None:
    several = [group(name, 0.9 - p, "tpr", prior=p) for name in ("a", "b") for p in (0.2, 0.5, 0.8)]
    alone = [group("a", 0.5, "tpr", dataset="svhn")]
    images = metrics_against_prior([*several, *alone], title="Study")
    assert images.keys() == {"svg", "png"}
    assert b"<svg" in images["svg"]
    assert metrics_against_prior([*several, *alone], title="Study") == images
    assert metrics_against_prior(alone, title="Study") == {}
    assert metrics_against_prior([group("a", 0.9, prior=p) for p in (0.2, 0.5)], title="Study") == {}


def test_a_gap_is_that_of_the_prior_that_the_run_was_trained_with() -> None:
    task = {"strata": [[3, 1, 40]], "unlabeled": 60}
    run = {"tuples": "3:1", "prior": 0.5, "trained_prior": 0.4, "mean_rate": 1 / 3, "task": task}
    gap, tuples = operating_words([operating_of(run)])
    assert "0.0667 for 3:1 at π = 0.5" in gap
    assert tuples == "Tuples 3:1: ᾱ = 0.3333, (3, 1) × 40"
