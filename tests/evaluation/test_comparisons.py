from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paired_runs import OURS, THEIRS, rows, study
from scipy import stats

from ntmp_cli.evaluation.comparisons import Comparison, compare, default_reference, variants
from ntmp_cli.evaluation.significance import cliffs_delta, holm, wilcoxon


def test_a_comparison_holds_test_interval_and_effect_size() -> None:
    (comparison,) = compare(rows("count", OURS) + rows("uu", THEIRS), "count")
    differences = np.array(THEIRS) - np.array(OURS)
    keys = ("scope", "method", "reference", "metric")
    assert tuple(comparison[key] for key in keys) == ("cell", "uu", "count", "ap")
    assert (comparison["pairs"], comparison["missing"], comparison["cells"]) == (5, [], 1)
    assert (comparison["wins"], comparison["ties"], comparison["losses"]) == (1, 0, 4)
    assert comparison["difference"] == pytest.approx(differences.mean())
    limits = stats.ttest_1samp(differences, 0).confidence_interval()
    assert (comparison["difference_low"], comparison["difference_high"]) == pytest.approx(tuple(limits))
    assert comparison["p"] == wilcoxon(differences).p == comparison["p_holm"]
    assert (comparison["smallest_p"], comparison["smallest_p_holm"], comparison["family_size"]) == (0.0625, 0.0625, 1)
    cliff = cliffs_delta(np.array(THEIRS), np.array(OURS))
    all_pairs = [comparison[f"cliff_all_pairs{end}"] for end in ("", "_low", "_high")]  # type: ignore[literal-required]
    assert all_pairs == [cliff.delta, *cliff.interval]
    # The paper's: on the differences of pairs, of which one is won and four are lost.
    assert (comparison["cliff"], comparison["cliff_word"]) == (pytest.approx(-0.6), "large")
    assert cliff.delta != comparison["cliff"]
    assert -1 <= comparison["cliff_low"] < -0.6 < comparison["cliff_high"] <= 1  # type: ignore[operator]


def test_pairs_are_of_one_seed_whatever_the_order_of_the_runs() -> None:
    (straight,) = compare(rows("count", OURS) + rows("uu", THEIRS), "count")
    (shuffled,) = compare(rows("uu", THEIRS)[::-1] + rows("count", OURS)[::-1], "count")
    assert shuffled == straight


def test_missing_pairs_are_named_and_left_out() -> None:
    uu: list[float | None] = [0.8, None, 0.9, 0.83]
    extra = rows("uu", [0.7], seed=7, tuples_seed=3)
    (comparison,) = compare(rows("count", [*OURS[:3]]) + rows("uu", uu) + extra, "count")
    assert comparison["pairs"] == 2
    assert comparison["missing"] == [
        "seed 1: uu is undefined",
        "seed 3: no run of count",
        "seed 7 on tuples of seed 3: no run of count",
    ]
    assert comparison["difference"] == pytest.approx(np.mean([0.8 - 0.91, 0.9 - 0.90]))


def test_without_pairs_every_number_is_undefined() -> None:
    (comparison,) = compare(rows("count", [0.9], prior=0.2) + rows("uu", [0.8], prior=0.8), "count")
    assert comparison["missing"] == ["seed 0: no run of count"]
    assert comparison["pairs"] == comparison["family_size"] == 0
    for key in ("difference", "difference_low", "p", "p_holm", "smallest_p", "cliff", "cliff_word", "cliff_all_pairs"):
        assert comparison[key] is None  # type: ignore[literal-required]


def test_one_seed_gives_a_difference_and_a_p_of_one() -> None:
    (comparison,) = compare(rows("count", [0.9]) + rows("uu", [0.8]), "count")
    assert (comparison["p"], comparison["p_holm"], comparison["smallest_p"]) == (1, 1, 1)
    assert comparison["difference"] == pytest.approx(-0.1)
    assert comparison["difference_low"] is comparison["cliff_low"] is None


def test_equal_methods_differ_in_nothing() -> None:
    (comparison,) = compare(rows("count", OURS) + rows("uu", list(OURS)), "count")
    assert (comparison["p"], comparison["difference"], comparison["cliff"], comparison["ties"]) == (1, 0, 0, 5)


def test_oracles_and_descriptions_are_not_compared() -> None:
    everything = rows("count", OURS) + rows("labels", OURS, is_oracle=True) + rows("uu", THEIRS)
    everything += rows("uu", OURS, metric="temperature_labels") + rows("count", OURS, metric="temperature_labels")
    comparisons = compare(everything, "count")
    assert [(comparison["method"], comparison["metric"]) for comparison in comparisons] == [("uu", "ap")]
    against = compare(everything, "labels")
    assert [comparison["method"] for comparison in against] == ["count", "uu"]


def test_a_variant_is_compared_with_the_reference_of_its_own_variant() -> None:
    runs = rows("count", OURS, variant="epochs=1") + rows("count", [v - 0.2 for v in OURS], variant="epochs=2")
    runs += rows("uu", THEIRS, variant="epochs=1") + rows("uu", THEIRS, variant="epochs=2")
    by_variant = {comparison["variant"]: comparison for comparison in compare(runs, "count")}
    assert by_variant["epochs=1"]["reference_variant"] == "epochs=1"
    assert by_variant["epochs=2"]["difference"] == pytest.approx(by_variant["epochs=1"]["difference"] + 0.2)  # type: ignore[operator]


@pytest.mark.parametrize(("family", "size"), [("cell", 2), ("dataset", 4), ("metric", 8), ("all", 16)])
def test_the_family_sets_what_holm_spans(family: Any, size: int) -> None:
    comparisons = [
        comparison for comparison in compare(study(), "count", family=family) if comparison["scope"] == "cell"
    ]
    assert len(comparisons) == 16
    assert {comparison["family_size"] for comparison in comparisons} == {size}
    assert {comparison["family"] for comparison in comparisons} == {family}
    assert all(comparison["smallest_p_holm"] == min(1, size * 0.0625) for comparison in comparisons)
    if family == "metric":
        members = [comparison for comparison in comparisons if comparison["metric"] == "ap"]
        assert [comparison["p_holm"] for comparison in members] == pytest.approx(
            holm([comparison["p"] or 0 for comparison in members])
        )


def test_over_all_cells_pairs_are_those_of_every_cell() -> None:
    overall = [comparison for comparison in compare(study(), "count") if comparison["scope"] == "overall"]
    assert [(comparison["metric"], comparison["method"]) for comparison in overall] == [
        (metric, method) for metric in ("ap", "fpr") for method in ("ure", "uu")
    ]
    for comparison in overall:
        pairs = paired(comparison)
        assert (comparison["cells"], comparison["pairs"], comparison["dataset"], comparison["prior"]) == (
            4,
            20,
            None,
            None,
        )
        assert comparison["p"] == pytest.approx(stats.wilcoxon(pairs, method="exact").pvalue)
        assert comparison["difference"] == pytest.approx(np.mean(pairs))
        assert comparison["cliff"] == pytest.approx(np.sign(pairs).mean())
        assert comparison["cliff_all_pairs"] is None  # values of different cells are not comparable
        assert comparison["family_size"] == 2


def paired(comparison: Comparison) -> list[float]:
    values = {
        (r["dataset"], r["prior"], r["seed"], r["method"]): r["value"]
        for r in study()
        if r["metric"] == comparison["metric"]
    }
    keys = [key for key in values if key[3] == comparison["method"]]
    return [values[key] - values[(*key[:3], "count")] for key in keys]  # type: ignore[operator]


def test_over_all_cells_what_is_missing_is_named_with_its_cell() -> None:
    runs = [r for r in study() if not (r["method"] == "uu" and r["dataset"] == "mnist" and r["seed"] == 4)]
    (overall,) = [
        comparison
        for comparison in compare(runs, "count")
        if comparison["scope"] == "overall" and comparison["method"] == "uu"
    ][:1]
    assert overall["missing"] == ["mnist 3:1 π=0.2: seed 4: no run of uu", "mnist 3:1 π=0.8: seed 4: no run of uu"]


def test_a_variant_names_the_settings_in_which_runs_of_a_cell_differ() -> None:
    settings = [{"lr": 0.1, "tuples": ["3:1", "5:2"]}, {"lr": 0.2, "tuples": ["3:1"]}, {"lr": 0.3}]
    assert variants(settings, ["a", "a", "b"]) == ["lr=0.1,tuples=3:1+5:2", "lr=0.2,tuples=3:1", ""]


def test_a_variant_names_only_what_is_set() -> None:
    settings = [{"epochs": None, "augment": None}, {"epochs": 5, "augment": None}, {"augment": "flip"}]
    assert variants(settings, ["a"] * 3) == ["default", "epochs=5", "augment=flip"]


def runs_of(*names: str) -> list[Any]:
    """Labels of runs, `method` or `method variant`; that of an oracle begins with a star."""
    parts = [name.lstrip("*").partition(" ") for name in names]
    return [
        row
        for name, (method, _, variant) in zip(names, parts, strict=True)
        for row in rows(method, [0.9], variant=variant, is_oracle=name[0] == "*")
    ]


@pytest.mark.parametrize(
    ("names", "reference"),
    [
        (["ure", "count", "uu"], "count"),
        (["ure", "uu"], "ure"),
        (["*labels", "uu", "ure"], "uu"),
        (["uu", "uu"], None),
        (["*labels", "uu"], None),
        (["ure a=1", "ure a=2"], "ure a=1"),
        (["ure", "count a=2", "count a=1"], "count a=2"),
    ],
)
def test_the_default_reference_is_count_or_the_first_and_never_the_best(names, reference):
    assert default_reference(runs_of(*names)) == reference


def test_a_variant_is_compared_with_the_other_variants_of_its_method():
    everything = [
        *rows("count", OURS, variant="prior=0.5"),
        *rows("count", THEIRS, variant="prior=estimated"),
        *rows("uu", THEIRS),
    ]
    found = {(c["method"], c["variant"]): c for c in compare(everything, "count prior=0.5")}
    assert found.keys() == {("count", "prior=estimated"), ("uu", "")}
    assert {c["reference_variant"] for c in found.values()} == {"prior=0.5"}
    assert all(c["pairs"] == len(OURS) and c["p"] is not None for c in found.values())
    assert compare(everything[: 2 * len(OURS)], "count") == []
