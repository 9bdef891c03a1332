from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from ntmp_cli.evaluation.comparisons import Comparison, compare
from ntmp_cli.evaluation.rankings import friedman_p, rankings
from ntmp_cli.evaluation.resampling import percentile_interval
from ntmp_cli.evaluation.significance import cliffs_delta, holm, wilcoxon
from ntmp_cli.evaluation.summary import Row, summarise


def rows(method: str, values: list[float | None], **changes: Any) -> list[Row]:
    defaults = {"dataset": "digits", "tuples": "3:1", "n": 3, "m": 1, "prior": 0.5, "variant": "", "metric": "ap"}
    defaults["is_oracle"] = False
    return [
        Row(
            **{**defaults, "seed": s, "tuples_seed": s, "method": method, "value": v, "run": f"{method}-{s}", **changes}
        )  # type: ignore[typeddict-item]
        for s, v in enumerate(values)
    ]


OURS, THEIRS = [0.91, 0.93, 0.90, 0.95, 0.92], [0.80, 0.85, 0.91, 0.83, 0.82]


def test_a_comparison_says_what_its_parts_say() -> None:
    (found,) = compare(rows("count", OURS) + rows("uu", THEIRS), "count")
    differences = np.array(THEIRS) - np.array(OURS)
    assert (found["scope"], found["method"], found["reference"], found["metric"]) == ("cell", "uu", "count", "ap")
    assert (found["pairs"], found["missing"], found["cells"]) == (5, [], 1)
    assert (found["wins"], found["ties"], found["losses"]) == (1, 0, 4)
    assert found["difference"] == pytest.approx(differences.mean())
    low, high = percentile_interval(differences[None])
    assert (found["difference_low"], found["difference_high"]) == pytest.approx((low[0], high[0]))
    assert found["p"] == wilcoxon(differences).p == found["p_holm"]
    assert (found["smallest_p"], found["smallest_p_holm"], found["family_size"]) == (0.0625, 0.0625, 1)
    cliff = cliffs_delta(np.array(THEIRS), np.array(OURS))
    assert (found["cliff"], found["cliff_low"], found["cliff_high"]) == (cliff.delta, cliff.low, cliff.high)
    assert (found["cliff_word"], found["cliff_within"]) == ("large", -0.6)


def test_pairs_are_of_one_seed_whatever_the_order_of_the_runs() -> None:
    (straight,) = compare(rows("count", OURS) + rows("uu", THEIRS), "count")
    (shuffled,) = compare(rows("uu", THEIRS)[::-1] + rows("count", OURS)[::-1], "count")
    assert shuffled == straight


def test_missing_pairs_are_named_and_left_out() -> None:
    uu: list[float | None] = [0.8, None, 0.9, 0.83]
    extra = rows("uu", [0.7], seed=7, tuples_seed=3)
    (found,) = compare(rows("count", [*OURS[:3]]) + rows("uu", uu) + extra, "count")
    assert found["pairs"] == 2
    assert found["missing"] == [
        "seed 1: uu is undefined",
        "seed 3: no run of count",
        "seed 7 on tuples of seed 3: no run of count",
    ]
    assert found["difference"] == pytest.approx(np.mean([0.8 - 0.91, 0.9 - 0.90]))


def test_without_pairs_every_number_is_undefined() -> None:
    (found,) = compare(rows("count", [0.9], prior=0.2) + rows("uu", [0.8], prior=0.8), "count")
    assert found["missing"] == ["seed 0: no run of count"]
    assert found["pairs"] == found["family_size"] == 0
    for key in ("difference", "difference_low", "p", "p_holm", "smallest_p", "cliff", "cliff_word", "cliff_within"):
        assert found[key] is None  # type: ignore[literal-required]


def test_one_seed_gives_a_difference_and_a_p_of_one() -> None:
    (found,) = compare(rows("count", [0.9]) + rows("uu", [0.8]), "count")
    assert (found["p"], found["p_holm"], found["smallest_p"]) == (1, 1, 1)
    assert found["difference"] == pytest.approx(-0.1)
    assert found["difference_low"] is found["cliff_low"] is None


def test_equal_methods_differ_in_nothing() -> None:
    (found,) = compare(rows("count", OURS) + rows("uu", list(OURS)), "count")
    assert (found["p"], found["difference"], found["cliff_within"], found["ties"]) == (1, 0, 0, 5)


def test_oracles_and_descriptions_are_not_compared() -> None:
    everything = rows("count", OURS) + rows("labels", OURS, is_oracle=True) + rows("uu", THEIRS)
    everything += rows("uu", OURS, metric="temperature_labels") + rows("count", OURS, metric="temperature_labels")
    found = compare(everything, "count")
    assert [(own["method"], own["metric"]) for own in found] == [("uu", "ap")]
    against = compare(everything, "labels")
    assert [own["method"] for own in against] == ["count", "uu"]


def test_a_variant_is_compared_with_the_reference_of_its_own_variant() -> None:
    some = rows("count", OURS, variant="epochs=1") + rows("count", [v - 0.2 for v in OURS], variant="epochs=2")
    some += rows("uu", THEIRS, variant="epochs=1") + rows("uu", THEIRS, variant="epochs=2")
    found = {own["variant"]: own for own in compare(some, "count")}
    assert found["epochs=1"]["reference_variant"] == "epochs=1"
    assert found["epochs=2"]["difference"] == pytest.approx(found["epochs=1"]["difference"] + 0.2)  # type: ignore[operator]


def study() -> list[Row]:
    """Three methods in four cells on two data sets, two metrics."""
    rng = np.random.default_rng(0)
    return [
        row
        for dataset in ("digits", "mnist")
        for prior in (0.2, 0.8)
        for method, level in (("count", 0.9), ("uu", 0.8), ("ure", 0.85))
        for metric in ("ap", "fpr")
        for row in rows(
            method, list(level + 0.03 * rng.standard_normal(5)), dataset=dataset, prior=prior, metric=metric
        )
    ]


@pytest.mark.parametrize(("family", "size"), [("cell", 2), ("dataset", 4), ("metric", 8), ("all", 16)])
def test_the_family_sets_what_holm_spans(family: Any, size: int) -> None:
    found = [own for own in compare(study(), "count", family=family) if own["scope"] == "cell"]
    assert len(found) == 16
    assert {own["family_size"] for own in found} == {size}
    assert {own["family"] for own in found} == {family}
    assert all(own["smallest_p_holm"] == min(1, size * 0.0625) for own in found)
    if family == "metric":
        members = [own for own in found if own["metric"] == "ap"]
        assert [own["p_holm"] for own in members] == pytest.approx(holm([own["p"] or 0 for own in members]))


def test_over_all_cells_pairs_are_those_of_every_cell() -> None:
    overall = [own for own in compare(study(), "count") if own["scope"] == "overall"]
    assert [(own["metric"], own["method"]) for own in overall] == [
        (metric, method) for metric in ("ap", "fpr") for method in ("ure", "uu")
    ]
    for own in overall:
        pairs = paired(own)
        assert (own["cells"], own["pairs"], own["dataset"], own["prior"]) == (4, 20, None, None)
        assert own["p"] == pytest.approx(stats.wilcoxon(pairs, method="exact").pvalue)
        assert own["difference"] == pytest.approx(np.mean(pairs))
        assert own["cliff"] == own["cliff_within"] == pytest.approx(np.sign(pairs).mean())
        assert own["family_size"] == 2


def paired(own: Comparison) -> list[float]:
    values = {
        (r["dataset"], r["prior"], r["seed"], r["method"]): r["value"] for r in study() if r["metric"] == own["metric"]
    }
    keys = [key for key in values if key[3] == own["method"]]
    return [values[key] - values[(*key[:3], "count")] for key in keys]  # type: ignore[operator]


def test_over_all_cells_what_is_missing_is_named_with_its_cell() -> None:
    some = [r for r in study() if not (r["method"] == "uu" and r["dataset"] == "mnist" and r["seed"] == 4)]
    (found,) = [own for own in compare(some, "count") if own["scope"] == "overall" and own["method"] == "uu"][:1]
    assert found["missing"] == ["mnist 3:1 π=0.2: seed 4: no run of uu", "mnist 3:1 π=0.8: seed 4: no run of uu"]


# Ranks ---------------------------------------------------------------------------------------------


def test_ranks_are_of_means_per_cell_and_lower_is_better_where_it_is() -> None:
    found = {(own["metric"], own["method"]): own for own in rankings(summarise(study()))}
    assert [found["ap", method]["mean_rank"] for method in ("count", "ure", "uu")] == [1, 2, 3]
    assert [found["fpr", method]["mean_rank"] for method in ("count", "ure", "uu")] == [3, 2, 1]
    assert (found["ap", "count"]["best"], found["ap", "count"]["cells"], found["ap", "uu"]["best"]) == (4, 4, 0)


def test_only_cells_with_every_method_are_ranked() -> None:
    some = [r for r in study() if not (r["method"] == "uu" and r["dataset"] == "mnist")]
    assert {own["cells"] for own in rankings(summarise(some))} == {2}
    assert rankings(summarise(rows("count", OURS))) == []
    summary = summarise({**row, "is_oracle": row["method"] == "uu"} for row in study())
    assert {own["method"] for own in rankings(summary)} == {"count", "ure"}


def test_friedman_agrees_with_scipy_with_ties() -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 4, (9, 4)).astype(float)
    ranks = np.array([stats.rankdata(row) for row in values])
    assert friedman_p(ranks) == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    assert friedman_p(np.full((5, 3), 2.0)) is None
    assert friedman_p(ranks[:1]) is None
