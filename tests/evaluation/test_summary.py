from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.summary import Row, summarise, t_interval


def row(**changes: Any) -> Row:
    defaults = {
        "dataset": "digits",
        "tuples": "3:1",
        "n": 3,
        "m": 1,
        "prior": 0.5,
        "method": "ure+abs",
        "is_oracle": False,
        "variant": "",
        "seed": 0,
        "metric": "accuracy",
        "value": 0.9,
        "run": "runs/a",
    }
    return Row(**{**defaults, **changes})  # type: ignore[typeddict-item]


ROWS = st.lists(
    st.builds(
        lambda method, variant, seed, metric, value: row(
            method=method, variant=variant, seed=seed, metric=metric, value=value
        ),
        st.sampled_from(["ure", "uu"]),
        st.sampled_from(["", "epochs=10"]),
        st.integers(0, 4),
        st.sampled_from(["ap", "accuracy"]),
        st.one_of(st.none(), st.just(math.nan), st.floats(0, 1)),
    ),
    max_size=40,
    unique_by=lambda r: (r["method"], r["variant"], r["seed"], r["metric"]),
)


@given(ROWS)
def test_summary_agrees_with_numpy(rows: list[Row]) -> None:
    summary = summarise(rows)
    assert sum(group["seeds"] for group in summary) == len(rows)
    for group in summary:
        keys = ("method", "variant", "metric")
        members = [r for r in rows if all(r[key] == group[key] for key in keys)]  # type: ignore[literal-required]
        defined = np.array([r["value"] for r in members if r["value"] is not None and not math.isnan(r["value"])])
        assert group["seeds"] == len(members)
        assert group["undefined"] == len(members) - len(defined)
        if not len(defined):
            assert group["mean"] is group["std"] is group["min"] is group["max"] is None
            continue
        assert group["mean"] == pytest.approx(defined.mean(), abs=1e-12)
        assert (group["min"], group["max"]) == (defined.min(), defined.max())
        if len(defined) == 1:
            assert group["std"] is None
        else:
            assert group["std"] == pytest.approx(defined.std(ddof=1), abs=1e-12)


@given(ROWS, st.randoms(use_true_random=False))
def test_order_of_runs_changes_no_digit(rows: list[Row], shuffler: random.Random) -> None:
    by_metric = [row(method="first", metric=metric) for metric in ("accuracy", "ap")]
    shuffled = list(rows)
    shuffler.shuffle(shuffled)
    assert summarise(by_metric + shuffled) == summarise(by_metric + rows)


def test_groups_come_in_a_fixed_order() -> None:
    rows = [
        row(dataset="mnist"),
        row(tuples="3:1+5:2@0.5", n=None, m=None),
        row(tuples="10:1", n=10),
        row(prior=0.8),
        row(method="uu"),
        row(variant="epochs=10"),
        row(metric="ap"),
        row(),
    ]
    got = [(g["dataset"], g["tuples"], g["prior"], g["method"], g["variant"], g["metric"]) for g in summarise(rows)]
    assert got == [
        ("digits", "3:1", 0.5, "ure+abs", "", "accuracy"),
        ("digits", "3:1", 0.5, "ure+abs", "", "ap"),
        ("digits", "3:1", 0.5, "ure+abs", "epochs=10", "accuracy"),
        ("digits", "3:1", 0.5, "uu", "", "accuracy"),
        ("digits", "3:1", 0.8, "ure+abs", "", "accuracy"),
        ("digits", "10:1", 0.5, "ure+abs", "", "accuracy"),
        ("digits", "3:1+5:2@0.5", 0.5, "ure+abs", "", "accuracy"),
        ("mnist", "3:1", 0.5, "ure+abs", "", "accuracy"),
    ]


def test_metrics_keep_the_order_of_their_first_appearance() -> None:
    rows = [row(metric=metric, seed=seed) for seed in (0, 1) for metric in ("tpr", "accuracy", "ap")]
    assert [group["metric"] for group in summarise(rows)] == ["tpr", "accuracy", "ap"]


def test_two_runs_of_one_seed_are_refused_by_name() -> None:
    with pytest.raises(UsageError) as caught:
        summarise([row(), row(seed=1, run="runs/b"), row(run="runs/c", value=0.9)])
    assert str(caught.value) == ("runs runs/a and runs/c are both seed 0 of ure+abs on digits 3:1 with prior 0.5")


def test_a_run_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="run runs/a is given twice"):
        summarise([row(), row()])


def test_variants_are_told_apart() -> None:
    assert len(summarise([row(), row(variant="epochs=10", run="runs/b")])) == 2


def test_no_rows_give_no_groups() -> None:
    assert summarise([]) == []


# The interval of the first screen --------------------------------------------------------------------


def interval(*values: float | None, metric: str = "accuracy") -> tuple[float, float] | None:
    (summary,) = summarise([row(seed=seed, value=value, metric=metric) for seed, value in enumerate(values)])
    return t_interval(summary)


def test_the_interval_is_students() -> None:
    """mean ± t s/√S with the textbook's t: 4.303 for two degrees of freedom, 12.706 for one."""
    assert interval(0.4, 0.5, 0.6) == pytest.approx((0.5 - 4.30265 * 0.1 / 3**0.5, 0.5 + 4.30265 * 0.1 / 3**0.5))
    assert interval(0.49, 0.51, None) == pytest.approx((0.5 - 12.7062 * 0.01, 0.5 + 12.7062 * 0.01), rel=1e-5)


def test_one_value_has_no_interval_and_equal_values_have_no_width() -> None:
    assert interval(0.5) is None
    assert interval(0.5, None) is None
    assert interval(0.5, 0.5) == (0.5, 0.5)


def test_limits_stay_within_the_range_of_the_metric() -> None:
    assert interval(0.9, 1.0) == (pytest.approx(0.95 - 12.7062 * 0.05, rel=1e-5), 1.0)
    low, high = interval(0.1, 0.9, metric="nll") or (1.0, 0.0)
    assert (low, high > 1) == (0.0, True)


def test_the_interval_covers_what_it_says_where_the_bootstrap_does_not() -> None:
    """Of 4,000 studies with three seeds; the standard error of a share of 95 % is 0.35 %, of 75 % it is 0.7 %."""
    values = np.random.default_rng(0).normal(0.5, 0.01, (4000, 3))
    rows = [
        row(dataset=f"{study}", seed=seed, value=float(value))
        for study, values_of_study in enumerate(values)
        for seed, value in enumerate(values_of_study)
    ]
    groups = summarise(rows)
    limits = [t_interval(group) or (1.0, 0.0) for group in groups]
    assert np.mean([low <= 0.5 <= high for low, high in limits]) == pytest.approx(0.95, abs=0.015)
    bootstrap = [(group["ci_low"] or 1.0, group["ci_high"] or 0.0) for group in groups]
    assert np.mean([low <= 0.5 <= high for low, high in bootstrap]) == pytest.approx(0.75, abs=0.03)
