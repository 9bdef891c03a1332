from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from summary_rows import comparison, group

from ntmp_cli.evaluation.comparisons import compare
from ntmp_cli.evaluation.summary import Row, summarise
from ntmp_cli.reporting.verdict import upper_bound, verdict

Values = dict[str, Sequence[float | None]]


def rows_of(values: Values, metric: str = "accuracy", prior: float = 0.5) -> list[Row]:
    place = {"dataset": "mnist", "tuples": "3:1", "n": 3, "m": 1, "prior": prior, "variant": ""}
    return [
        Row(
            **{**place, "method": method, "is_oracle": method == "supervised", "metric": metric},  # type: ignore[typeddict-item]
            **{"seed": seed, "tuples_seed": seed, "value": value, "run": f"{method}-{seed}"},
        )
        for method, method_values in values.items()
        for seed, value in enumerate(method_values)
    ]


def said(*cells: Values, metric: str = "accuracy", reference: str | None = None) -> str:
    """The verdict on one cell per dictionary of values, each of another prior."""
    rows = [row for at, values in enumerate(cells) for row in rows_of(values, metric, (at + 1) / 10)]
    compared = compare(rows, reference) if reference else []
    return verdict(summarise(rows), metric, compared)


THREE: Values = {"count": [0.97, 0.98, 0.978], "ure+relu": [0.80, 0.81, 0.814], "ure": [0.6, 0.7, 0.65]}


def test_a_leader_that_is_the_reference_is_set_against_the_best_of_the_others() -> None:
    assert said(THREE, reference="count") == (
        "count 97.6 % beats ure+relu 80.8 % on 3 of 3 seeds; three seeds cannot prove it."
    )


def test_another_leader_is_set_against_the_reference() -> None:
    assert said(THREE, reference="ure") == (
        "count 97.6 % beats the reference ure 65.0 % on 3 of 3 seeds; three seeds cannot prove it."
    )


def test_without_a_reference_the_difference_is_said_to_be_untested() -> None:
    assert said(THREE) == (
        "count 97.6 % is ahead of ure+relu 80.8 % on average over three seeds; the difference was not tested."
    )


def test_six_seeds_can_prove_it_and_holm_can_take_it_back() -> None:
    apart = {"a": [0.9 + seed / 100 for seed in range(6)], "b": [0.8] * 6}
    assert said(apart, reference="b").endswith("on 6 of 6 seeds; significant (p = 0.0312).")
    three: Values = {**apart, "c": [0.7] * 6, "d": [0.6] * 6}
    assert said(three, reference="b").endswith("on 6 of 6 seeds; six seeds cannot prove it among 3 comparisons.")


def test_a_mean_that_most_seeds_contradict_is_not_called_a_victory() -> None:
    values: Values = {"a": [0.99, 0.79, 0.79], "b": [0.8, 0.8, 0.8]}
    text = said(values, reference="b")
    assert text.startswith("a 85.7 % is ahead of the reference b 80.0 % on average, but better on only 1 of 3 seeds;")
    assert "beats" not in text


def test_a_difference_in_an_unclear_direction_is_not_claimed() -> None:
    compared = comparison(wins=5, losses=7)
    text = verdict([group("ours", 0.9), group("theirs", 0.85)], "accuracy", [compared])
    assert "beats" not in text
    assert text.endswith(
        "the two differ significantly (p = 0.002 after Holm over 4 comparisons), but the direction is not clear."
    )


def test_what_the_test_does_not_find_is_said() -> None:
    compared = comparison(p=0.2, p_holm=0.8, wins=8, losses=4)
    assert verdict([group("ours", 0.9), group("theirs", 0.85)], "accuracy", [compared]) == (
        "ours 90.0 % beats the reference theirs 85.0 % on 8 of 12 seeds; "
        "the test shows no difference (p = 0.8 after Holm over 4 comparisons)."
    )


def test_lower_is_better_where_it_is() -> None:
    text = said({"a": [0.02, 0.03, 0.04], "b": [0.1, 0.2, 0.3]}, metric="ece", reference="b")
    assert text.startswith("a 0.030 beats the reference b 0.200 in ece (lower is better) on 3 of 3 seeds;")


def test_means_that_look_equal_are_shown_with_more_digits() -> None:
    text = said({"a": [0.97112, 0.9712], "b": [0.9708, 0.9707]}, reference="b")
    assert text.startswith("a 97.12 % beats the reference b 97.08 % on 2 of 2 seeds;")
    assert said({"a": [0.9, 0.9], "b": [0.9, 0.9]}) == ("a and b have the same mean accuracy, 90.00 %, over two seeds.")


def test_seeds_without_a_partner_are_not_counted() -> None:
    rows = rows_of({"a": [0.9, 0.9, 0.9], "b": [0.8, 0.8, 0.8]})
    text = verdict(summarise(rows[:-1]), "accuracy", compare(rows[:-1], "b"))
    assert "on 2 of 2 paired seeds; two seeds cannot prove it." in text


def test_a_method_that_is_undefined_on_a_seed_does_not_lead() -> None:
    values: Values = {"a": [0.99, None], "b": [0.8, 0.8], "c": [0.7, 0.7]}
    assert said(values).startswith("b 80.0 % is ahead of c 70.0 %")
    assert said({"a": [None], "b": [None]}) == "No method has an accuracy that is defined on all its seeds."


def test_one_method_and_one_seed() -> None:
    assert said({"a": [0.9]}) == "a 90.0 % with one seed; there is no other method to compare it with."
    assert said({"a": [0.9], "b": [0.8]}, reference="b") == (
        "a 90.0 % beats the reference b 80.0 % on 1 of 1 seed; one seed cannot prove it."
    )


def test_a_metric_that_only_describes_has_no_leader() -> None:
    assert said(THREE, metric="temperature_counts") == (
        "By temperature_counts no method is better than another: it only describes a training."
    )


# Oracles -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [None, "count", "ure", "supervised"])
def test_an_oracle_never_leads_and_is_named_as_the_upper_bound(reference: str | None) -> None:
    values: Values = {**THREE, "supervised": [0.99, 0.99, 0.99]}
    text = said(values, reference=reference)
    assert text.startswith("count 97.6 %")
    assert "supervised" not in text
    assert upper_bound(summarise(rows_of(values)), "accuracy") == "Upper bound, trained on labels: supervised 99.0 %."


def test_an_oracle_alone_is_not_judged() -> None:
    assert said({"supervised": [0.9]}) == "Only an upper bound was evaluated; there is no method to judge."
    assert upper_bound(summarise(rows_of(THREE)), "accuracy") == ""


def test_over_several_cells_the_upper_bound_has_no_single_number() -> None:
    rows = [row for prior in (0.1, 0.2) for row in rows_of({"a": [0.9], "supervised": [0.95]}, prior=prior)]
    assert upper_bound(summarise(rows), "accuracy") == "Upper bound, trained on labels and not ranked: supervised."


# Several cells -------------------------------------------------------------------------------------


def test_several_cells_are_counted_and_pooled_pairs_decide() -> None:
    cells = [THREE, {**THREE, "ure": [0.99, 0.5, 0.5]}]
    assert said(*cells, reference="count") == (
        "count has the best mean accuracy in 2 of 2 cells and beats ure+relu on 6 of 6 pairs; "
        "six pairs cannot prove it among 2 comparisons."
    )
    assert said(*cells, reference="ure+relu") == (
        "count has the best mean accuracy in 2 of 2 cells and beats the reference ure+relu on 6 of 6 pairs; "
        "six pairs cannot prove it among 2 comparisons."
    )
    assert said(*cells) == "count has the best mean accuracy in 2 of 2 cells; the differences were not tested."


def test_a_leader_of_cells_that_loses_most_pairs_is_not_called_a_winner() -> None:
    """Two narrow leads by mean, each owed to one seed of three, and one clear loss."""
    narrow: Values = {"a": [0.99, 0.79, 0.79], "b": [0.8, 0.8, 0.8]}
    text = said(narrow, narrow, {"a": [0.1] * 3, "b": [0.9] * 3}, reference="b")
    assert text.startswith(
        "a has the best mean accuracy in 2 of 3 cells, but is better than the reference b on only 2 of 9 pairs;"
    )


def test_cells_shared_evenly_have_no_single_leader() -> None:
    assert said({"a": [0.9], "b": [0.8]}, {"a": [0.8], "b": [0.9]}, reference="a") == (
        "a and b each have the best mean accuracy in 1 of 2 cells."
    )


def test_methods_that_never_meet_are_not_compared() -> None:
    assert said({"a": [0.9]}, {"b": [0.8]}).startswith("No two methods share a data set, tuples and prior")
    assert said({"a": [0.9]}, {"a": [0.8]}) == "a: accuracy 80.0 % to 90.0 % in 2 cells; there is no other method."


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=9),
    st.sampled_from(["accuracy", "ece"]),
)
def test_significance_is_claimed_exactly_for_a_small_p_and_never_of_few_seeds(
    pairs: list[tuple[float, float]], metric: str
) -> None:
    values: Values = dict(zip("ab", zip(*pairs, strict=True), strict=True))
    (compared,) = compare(rows_of(values, metric), "b")
    text = said(values, metric=metric, reference="b")
    if "same mean" in text:
        return
    assert ("significant" in text) == ((compared["p_holm"] or 0.0) < 0.05)
    assert len(pairs) >= 6 or "cannot prove it" in text
