from __future__ import annotations

from ntmp_cli.reporting.operating import Operating, data_caption, operating_of, operating_words, strata_text


def test_the_gap_is_a_mean_over_runs_and_shows_its_range_where_priors_were_estimated() -> None:
    strata = ((3, 1, 100),)
    runs = [Operating("3:1", 0.5, trained_prior, 1 / 3, strata) for trained_prior in (0.5, 0.52)]
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


def test_the_caption_of_a_sweep_names_data_tuples_rate_strata_gaps_and_seeds() -> None:
    runs = [Operating("3:1", prior, prior, 1 / 3, ((3, 1, 100),), "mnist") for prior in (0.2, 0.8)]
    assert data_caption(runs, (0, 1, 2)) == (
        "Data: mnist. Tuples 3:1: ᾱ = 0.3333, (3, 1) × 100. Δ_op = |ᾱ − π̂| = 0.1333 to 0.4667. Seeds: 0, 1, 2."
    )


def test_nothing_known_about_the_runs_is_no_sentence() -> None:
    assert operating_words([]) == []


def test_a_gap_is_that_of_the_prior_that_the_run_was_trained_with() -> None:
    task = {"strata": [[3, 1, 40]], "unlabeled": 60}
    run = {"tuples": "3:1", "prior": 0.5, "trained_prior": 0.4, "mean_rate": 1 / 3, "task": task}
    gap, tuples = operating_words([operating_of(run)])
    assert "0.0667 for 3:1 at π = 0.5" in gap
    assert tuples == "Tuples 3:1: ᾱ = 0.3333, (3, 1) × 40"


def test_very_many_strata_are_listed_by_the_largest_and_a_number() -> None:
    few = ((3, 1, 40), (5, 2.5, 1200))
    assert strata_text(few) == "(3, 1) × 40, (5, 2.5) × 1,200"
    many = tuple((n, 1, n) for n in range(2, 5002))
    text = strata_text(many)
    assert text.startswith("(5001, 1) × 5,001, (5000, 1) × 5,000")
    assert text.endswith("× 4,978 and 4,976 more strata")
    assert len(text) < 1000
