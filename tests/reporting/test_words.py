from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from summary_rows import comparison, group

from ntmp_cli.evaluation.comparisons import compare
from ntmp_cli.evaluation.summary import Row, summarise
from ntmp_cli.reporting.words import comparison_words, p_word, study_words, window_words

BETTER = "is significantly better"


def row(method: str, seed: int, value: float, metric: str = "accuracy", dataset: str = "mnist") -> Row:
    place = {"dataset": dataset, "tuples": "3:1", "n": 3, "m": 1, "prior": 0.5, "method": method, "variant": ""}
    place["is_oracle"] = method == "supervised"
    return Row(**place, metric=metric, seed=seed, tuples_seed=seed, value=value, run=f"{method}-{seed}")  # type: ignore[typeddict-item]


def sentence_of(values: list[float], reference_values: list[float], metric: str = "accuracy") -> str:
    rows = [row("ours", seed, value, metric) for seed, value in enumerate(values)]
    rows += [row("theirs", seed, value, metric) for seed, value in enumerate(reference_values)]
    return comparison_words(compare(rows, "theirs")[0])


def test_a_winner_that_the_test_supports_is_named_with_amount_interval_and_p() -> None:
    assert comparison_words(comparison()) == (
        "On mnist 3:1 at π = 0.5, ours is 5.00 points above theirs in accuracy on average over 12 pairs "
        "(95 % interval +4.00 to +6.00; 12 higher, 0 lower). "
        "ours is significantly better (p = 0.002 after Holm over 4 comparisons). Cliff's δ is +0.80 (large)."
    )


def test_the_reference_can_win() -> None:
    text = comparison_words(
        comparison(difference=-0.05, difference_low=-0.06, difference_high=-0.04, wins=0, losses=12, cliff=-0.8)
    )
    assert "ours is 5.00 points below theirs" in text
    assert f"theirs {BETTER}" in text


def test_less_is_better_where_it_is() -> None:
    text = comparison_words(comparison(metric="ece", wins=12, losses=0))
    assert "0.0500 above theirs in ece, where less is better, on average" in text
    assert f"theirs {BETTER}" in text


@pytest.mark.parametrize("seeds", [2, 3, 4, 5])
def test_with_few_seeds_the_sentence_says_that_the_test_cannot_decide(seeds: int) -> None:
    """However large the difference: the smallest two-sided p is 2^(1−S)."""
    text = sentence_of([0.99] * seeds, [0.5 + 0.01 * seed for seed in range(seeds)])
    assert f"The test cannot decide: the smallest p that {seeds} pairs can reach is {2.0 ** (1 - seeds):.3g}." in text
    assert "significant" not in text


def test_six_seeds_can_decide() -> None:
    assert f"ours {BETTER} (p = 0.0312)" in sentence_of([0.99] * 6, [0.5 + 0.01 * seed for seed in range(6)])


def test_what_the_test_does_not_find_is_not_claimed() -> None:
    text = comparison_words(comparison(p=0.2, p_holm=0.8, wins=8, losses=4))
    assert "The test shows no difference (p = 0.8 after Holm over 4 comparisons)." in text
    assert "significant" not in text


def test_no_winner_where_the_mean_and_most_pairs_disagree() -> None:
    text = comparison_words(comparison(difference=-0.05, wins=10, losses=2))
    assert "no winner is named" in text
    assert BETTER not in text


def test_a_p_that_holm_lowered_below_what_the_head_of_the_family_could_reach_counts() -> None:
    """With different numbers of pairs, a comparison that comes last is multiplied by one only."""
    assert BETTER in comparison_words(comparison(p=0.03125, p_holm=0.03125, smallest_p_holm=0.09375))


def test_an_oracle_never_wins() -> None:
    lost = {"difference": -0.05, "difference_low": -0.06, "difference_high": -0.04, "wins": 0, "losses": 12}
    for compared in (comparison(reference="supervised", **lost), comparison(reference="supervised")):
        text = comparison_words(compared)
        assert "the upper bound supervised" in text
        assert "the upper bound uses the labels" in text
        assert "better" not in text


def test_no_pairs_are_explained() -> None:
    nothing: dict[str, Any] = dict.fromkeys(("difference", "p", "p_holm", "smallest_p", "smallest_p_holm", "cliff"))
    text = comparison_words(comparison(**nothing, pairs=0, missing=["seed 0: no run of theirs"]))
    assert text == (
        "On mnist 3:1 at π = 0.5, ours and theirs have no run in common to be compared by accuracy "
        "(seed 0: no run of theirs)."
    )


def test_one_pair_has_no_interval_and_missing_ones_are_counted() -> None:
    text = comparison_words(
        comparison(pairs=1, difference_low=None, difference_high=None, p=1.0, p_holm=1.0, smallest_p_holm=1.0)
    )
    assert "(1 pair, so no interval)" in text
    assert "The test cannot decide" in text
    assert comparison_words(comparison(missing=["seed 0: x"])).endswith("1 could not be paired.")


def test_equal_means_are_called_equal_to_the_digits_shown() -> None:
    assert "have the same mean accuracy to the digits shown" in sentence_of([0.5] * 6, [0.5] * 6)


@pytest.mark.parametrize(("p", "text"), [(0.04999, "just below 0.05"), (0.05, "0.05"), (0.0501, "0.0501")])
def test_rounding_never_moves_p_across_the_level(p: float, text: str) -> None:
    assert p_word(p) == text


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12),
    st.sampled_from(["accuracy", "ece"]),
)
def test_a_winner_is_named_exactly_if_p_is_small_and_all_signs_agree(
    pairs: list[tuple[float, float]], metric: str
) -> None:
    values, reference_values = map(list, zip(*pairs, strict=True))
    text = sentence_of(values, reference_values, metric)
    rows = [row("ours", s, v, metric) for s, v in enumerate(values)]
    rows += [row("theirs", s, v, metric) for s, v in enumerate(reference_values)]
    (compared,) = compare(rows, "theirs")
    assert compared["p_holm"] is not None
    sign = np.sign(compared["difference"] or 0.0)
    if metric == "ece":
        sign = -sign
    assert (BETTER in text) <= (compared["p_holm"] < 0.05)
    assert ("significant" in text) == (compared["p_holm"] < 0.05)
    if BETTER in text:
        assert f"{'ours' if sign > 0 else 'theirs'} {BETTER}" in text
    if len(pairs) < 6:
        assert "The test cannot decide" in text


# The study -----------------------------------------------------------------------------------------


def test_a_study_is_summed_up_without_its_oracle() -> None:
    rows = [row(name, seed, value) for seed in (0, 1) for name, value in (("a", 0.9), ("b", 0.8), ("supervised", 0.99))]
    rows += [row(name, seed, value, dataset="svhn") for seed in (0, 1) for name, value in (("a", 0.7), ("b", 0.7))]
    sentences = study_words(summarise(rows), "accuracy", compare(rows, "b"))
    assert sentences == [
        "3 methods on 2 data sets (2 cells of data set, tuples and prior); 2 seeds each.",
        "Best mean accuracy, ties included: a in 2 of 2, b in 1 of 2; supervised, which uses the labels, is not "
        "ranked.",
        "Tested against b by accuracy, cell by cell: 2 comparisons, none of which can reach p < 0.05 with 2 pairs; "
        "every difference within a cell is descriptive.",
    ]


def test_a_study_counts_what_the_tests_found() -> None:
    few = comparison(pairs=3, p=0.25, p_holm=0.25, smallest_p=0.25, smallest_p_holm=0.25)
    comparisons = [comparison(), comparison(p_holm=0.3), few]
    assert study_words([group("ours", 0.9)], "accuracy", comparisons)[-1] == (
        "Tested against theirs by accuracy, cell by cell: 3 comparisons, 1 with p < 0.05 after Holm; "
        "1 cannot reach p < 0.05 with so few pairs."
    )


def test_a_study_of_one_cell_names_it_and_leaves_the_leader_to_the_verdict() -> None:
    sentences = study_words([group("a", 0.9), group("b", 0.8)], "accuracy", [comparison()])
    assert sentences[0] == "2 methods on mnist, tuples 3:1, prior π = 0.5; 5 seeds each."
    assert len(sentences) == 2


def test_a_study_without_reference_says_that_nothing_was_tested() -> None:
    assert "Nothing was tested" in study_words([group("a", 0.9), group("b", 0.8)], "accuracy", [])[-1]


def test_windows_of_sweeps() -> None:
    known = {"run": "count", "metric": "ap", "window": [-0.1, 0.05], "critical_ci": None, "critical_performance": [0.1]}
    assert window_words(known) == (
        "count, ap: window [-0.1, 0.05], critical by interval width none, critical by change 0.1"
    )
    assert window_words({"run": "ure", "metric": "ap", "window": None, "critical_ci": 0.25}) == (
        "ure, ap: window none, critical by interval width 0.25"
    )
