from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.evaluation.summary import Row, summarise


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


@pytest.mark.parametrize("values", [(0.5, math.inf), (math.inf, math.inf)])
def test_an_infinite_value_is_refused_with_its_run_and_metric(values: tuple[float, float]) -> None:
    """`statistics` fails on it, and its difference to another infinite one is not a number."""
    with pytest.raises(DataError) as caught:
        summarise([row(seed=seed, value=value, metric="nll", run=f"runs/{seed}") for seed, value in enumerate(values)])
    first = next(seed for seed, value in enumerate(values) if math.isinf(value))
    assert str(caught.value).startswith(f"runs/{first}: nll is infinite")
    assert "--metric" in (caught.value.hint or "")
