from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from result_rows import group, table

from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.comparisons import Comparison
from ntmp_cli.reporting import rendering
from ntmp_cli.reporting.rendering import Table


def column(built: Table, header: str) -> list[str]:
    """Texts of a column, the best ones in asterisks."""
    index = built.headers.index(header)
    cells = [built.shown(row)[index] for row in built.rows]
    return [f"*{cell.text}*" if cell.best else cell.text for cell in cells]


def test_accuracy_is_percent_and_other_metrics_have_four_decimals() -> None:
    built = table(group("ure", 0.96123), group("ure", 0.98765, "ap"))
    assert built.headers == ("dataset", "tuples", "π", "method", "accuracy (%)", "ap")
    assert column(built, "accuracy (%)") == ["96.12 ± 0.31"]
    assert column(built, "ap") == ["0.9877 ± 0.0031"]
    assert built.rows[0][-1].number == 0.98765


def test_metrics_are_the_requested_columns_in_their_order() -> None:
    rows = [group("ure", 0.9, metric) for metric in ("accuracy", "ap", "auroc")]
    assert table(*rows, metrics=["auroc", "accuracy"]).headers[-2:] == ("auroc", "accuracy (%)")


def test_best_of_each_block_is_marked_and_ties_as_printed_together() -> None:
    built = table(
        group("a", 0.90001),
        group("b", 0.90002),
        group("c", 0.8),
        group("a", 0.7, prior=0.2),
        group("b", 0.6, prior=0.2),
    )
    best = [text.startswith("*") for text in column(built, "accuracy (%)")]
    assert best == [True, True, False, True, False]
    assert [len(block) for block in built.blocks] == [3, 2]


def test_lower_is_better_for_fpr() -> None:
    assert column(table(group("a", 0.1, "fpr"), group("b", 0.2, "fpr")), "fpr")[0].startswith("*")


def test_not_marked_are_oracles_incomplete_means_and_the_only_method() -> None:
    built = table(group("supervised", 0.99), group("a", 0.95, undefined=2), group("b", 0.9), group("c", None))
    assert column(built, "accuracy (%)") == [
        "99.00 ± 0.31",
        "95.00 ± 0.31 (2 of 5 undefined)",
        "*90.00 ± 0.31*",
        "undefined",
    ]
    assert "uses the labels: supervised" in built.caption
    alone = table(group("a", 0.9))
    assert not any(cell.best for cell in alone.rows[0])
    assert "Bold" not in alone.caption


def test_variant_and_seeds_are_shown_only_where_they_tell_rows_apart() -> None:
    assert not {"variant", "seeds"} & set(table(group("a", 0.9), group("b", 0.9)).headers)
    built = table(group("a", 0.9), group("a", 0.8, variant="epochs=10", seeds=1, std=None))
    assert column(built, "variant") == ["", "epochs=10"]
    assert column(built, "seeds") == ["5", "1"]
    assert column(built, "accuracy (%)") == ["*90.00 ± 0.31*", "80.00"]


def test_the_operating_gap_is_a_column_where_it_is_known() -> None:
    built = table(group("ure", 0.9, gap=0.2517), group("uu", 0.8))
    assert built.headers[:5] == ("dataset", "tuples", "π", "Δ_op", "method")
    assert column(built, "Δ_op") == ["0.25", "—"]
    assert "Δ_op" not in table(group("ure", 0.9)).headers


def test_reference_adds_the_difference_of_the_first_metric() -> None:
    built = table(
        group("ure", 0.9),
        group("uu", 0.8512),
        group("count", 0.95),
        group("kmeans", None),
        group("same", 0.9000001),
        group("uu", 0.8, prior=0.2),
        reference="ure",
    )
    assert built.headers[-1] == "difference of accuracy"
    assert built.caption.endswith("Difference: of the means, to ure, in percentage points.")
    assert column(built, built.headers[-1]) == ["reference", "−4.88", "+5.00", "undefined", "0.00", "—"]
    assert built.rows[1][-1].number == pytest.approx(-0.0488)


def comparison(method: str, **changes: Any) -> Comparison:
    defaults = {
        **{"scope": "cell", "dataset": "digits", "tuples": "3:1", "n": 3, "m": 1, "prior": 0.5, "metric": "accuracy"},
        **{"method": method, "variant": "", "pairs": 5, "missing": [], "family_size": 2, "p": 0.0625, "p_holm": 0.125},
        **{"smallest_p": 0.0625, "smallest_p_holm": 0.125, "difference_low": -0.06, "difference_high": 0.0},
        **{"cliff": -0.2, "cliff_low": -0.5, "cliff_high": 0.1, "cliff_word": "small"},
    }
    return Comparison(**{**defaults, **changes})  # type: ignore[typeddict-item]


def test_comparisons_add_interval_p_and_effect_size() -> None:
    undefined = dict.fromkeys(("p", "p_holm", "cliff", "difference_low", "difference_high"))
    built = table(
        *(group("ure", 0.9), group("uu", 0.85), group("supervised", 0.99), group("few", 0.8), group("none", 0.7)),
        reference="ure",
        comparisons=[
            comparison("uu"),
            comparison("uu", metric="ap", p_holm=0.9),
            comparison("uu", scope="overall", dataset=None, p_holm=0.9),
            comparison("few", pairs=3, smallest_p=0.25, smallest_p_holm=0.5, missing=["seed 3: no run of ure"]),
            comparison("none", pairs=0, missing=["seed 0: no run of ure"], **undefined),
        ],
    )
    assert built.headers[-4:] == ("difference of accuracy", "95 % CI of the difference", "p (Holm)", "Cliff's δ")
    assert column(built, "95 % CI of the difference") == ["—", "[−6.00, 0.00]", "—", "[−6.00, 0.00]", "—"]
    assert column(built, "p (Holm)") == ["—", "0.125", "—", "0.125 (3 pairs)", "—"]
    assert column(built, "Cliff's δ") == ["—", "−0.20 (small)", "—", "−0.20 (small)", "—"]
    for sentence in (
        "p: paired Wilcoxon signed-rank test, two-sided, after Holm over 2 comparisons.",
        "Smallest reachable p: 0.0625 with 5 pairs (0.125 after Holm), 0.25 with 3 pairs (0.5 after Holm).",
        "Missing pairs: few seed 3: no run of ure; none seed 0: no run of ure.",
    ):
        assert sentence in built.caption
    row = list(csv.DictReader(io.StringIO(rendering.to_csv(built))))[1]
    assert (row["accuracy_p_holm"], row["accuracy_p"], row["accuracy_pairs"]) == ("0.125", "0.0625", "5")
    assert (row["accuracy_cliff"], row["accuracy_cliff_word"]) == ("-0.2", "small")
    assert row["accuracy_difference_low"] == "-0.06"
    latex = rendering.to_latex(built)
    assert r"Cliff's $\delta$" in latex
    assert r"{[}$-$6.00, 0.00{]}" in latex


def test_many_missing_pairs_are_counted() -> None:
    incomplete = comparison("uu", missing=[f"seed {seed}: no run of ure" for seed in range(8)])
    built = table(group("ure", 0.9), group("uu", 0.8), reference="ure", comparisons=[incomplete])
    assert built.caption.count("seed") == 5 + 2
    assert built.caption.endswith("and 3 more (comparisons.jsonl).")


def test_calibration_errors_are_better_when_lower_and_temperatures_neither() -> None:
    built = table(*(group(name, mean, "ece") for name, mean in (("a", 0.1), ("b", 0.2))))
    assert column(built, "ece")[0].startswith("*")
    plain = table(*(group(name, mean, "temperature_counts") for name, mean in (("a", 0.1), ("b", 0.2))))
    assert not any(cell.best for row in plain.rows for cell in row)


def test_reference_in_several_variants_is_the_one_of_the_same_variant() -> None:
    built = table(
        group("ure", 0.9),
        group("ure", 0.8, variant="epochs=10"),
        group("uu", 0.7),
        group("uu", 0.7, variant="epochs=10"),
        group("uu", 0.7, variant="epochs=99"),
        reference="ure",
    )
    assert column(built, built.headers[-1]) == ["reference", "reference", "−20.00", "−10.00", "—"]


def test_caption_names_counts_rate_prior_and_seeds() -> None:
    built = table(
        group("a", 0.9),
        group("b", 0.9, prior=0.8, seeds=3),
        group("a", 0.9, tuples="3:1+5:2@0.5", n=None, m=None),
        title="Digits.",
        reference="a",
    )
    assert built.caption == (
        "Digits. Mean ± standard deviation over 3 to 5 seeds; (n, m) = (3, 1) with α = 0.3333, "
        "tuples 3:1+5:2@0.5; π = 0.5, 0.8. Difference: of the means, to a, in percentage points."
    )
    assert "Values of one seed;" in table(group("a", 0.9, seeds=1, std=None)).caption


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(UsageError, match="no results"):
        table()
    with pytest.raises(UsageError, match="metric 'app' is not in the evaluation; did you mean 'ap'"):
        table(group("a", 0.9, "ap"), metrics=["app"])
    with pytest.raises(UsageError, match=r"reference 'ure\+ab' is not among the methods; did you mean 'ure\+abs'"):
        table(group("ure+abs", 0.9), reference="ure+ab")


def test_who_is_an_oracle_is_said_by_the_rows_and_not_by_a_name() -> None:
    rows = group("supervised", 0.95, is_oracle=False), group("other", 0.99, is_oracle=True), group("a", 0.9)
    built = table(*rows)
    assert [cell.text for row in built.rows for cell in row if cell.best] == ["95.00 ± 0.31"]
    assert "uses the labels: other" in built.caption


def test_a_metric_missing_from_one_method_is_a_dash() -> None:
    assert column(table(group("a", 0.9), group("a", 0.9, "ap"), group("b", 0.8)), "ap")[1] == "—"
