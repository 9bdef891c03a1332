"""The page of one run says how accurate it is, against what, and what to do next."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import numpy as np

from ntmp_cli.reporting.baselines import constant_score
from ntmp_cli.reporting.single_run import accuracy_interval, single_run, single_run_verdict


def run(tp: int = 45, fp: int = 4, fn: int = 5, tn: int = 46, **changes: Any) -> dict[str, Any]:
    histogram = {"edges": np.linspace(-3, 3, 31).tolist(), "positives": [1] * 30, "negatives": [2] * 30}
    decisions = {"tp": tp, "fp": fp, "fn": fn, "tn": tn, "histogram": histogram}
    return {
        **{"run": "my run", "method": "count", "variant": "", "is_oracle": False},
        **{"tuples_config": {"table": "tuples.csv"}, "decisions": decisions},
        **changes,
    }


def commands(of: dict[str, Any], **metrics: float | None) -> list[str]:
    return [step.command for step in single_run(of, metrics).next_steps]


def advice(of: dict[str, Any], **metrics: float | None) -> str:
    return " ".join(step.advice for step in single_run(of, metrics).next_steps)


def test_the_verdict_has_the_accuracy_its_interval_and_the_majority_class():
    assert single_run_verdict(run()) == (
        "count classifies 91.0 % of 100 test instances correctly (95 % interval 83.8 to 95.2 %). The majority class "
        "would be 50.0 %."
    )
    low, high = accuracy_interval(run()["decisions"])
    assert low < 0.91 < high


def test_an_accuracy_that_chance_explains_is_not_praised():
    guessing = run(tp=26, fp=25, fn=24, tn=25)
    assert "The interval includes the majority class, 50.0 %" in single_run_verdict(guessing)
    assert commands(guessing)[0] == "ntmp design --tuples TUPLES"
    assert "ntmp design --tuples TUPLES" not in commands(run())
    unbalanced = run(tp=5, fp=8, fn=5, tn=82)
    assert "The interval includes the majority class, 90.0 %" in single_run_verdict(unbalanced)
    mirrored = run(tp=5, fp=46, fn=45, tn=4)
    assert single_run_verdict(mirrored).endswith("fewer than the majority class, 50.0 %.")


def test_an_upper_bound_is_called_that():
    assert single_run_verdict(run(is_oracle=True)).endswith("this is an upper bound.")


def test_facts_leave_out_what_is_undefined():
    facts = single_run(run(), {"auroc": 0.9, "ap": None}).facts
    assert facts["AUROC"] == "0.900"
    assert "average precision" not in facts
    assert facts["positive"] == "50.0 %"


def test_the_next_steps_follow_from_the_run():
    assert commands(run())[-2:] == [
        "ntmp predict 'my run' new.csv --out scored.csv",
        "ntmp audit --tuples TUPLES --run 'my run' --out audit",
    ]
    assert not any("supervised" in command for command in commands(run()))
    made = run(tuples_config={"dataset": "digits"})
    assert any("--method supervised" in command for command in commands(made))
    assert "differ from observed shares by 0.12" in advice(run(), ece_mass_at_prior=0.12)
    assert "differ from observed shares" not in advice(run(), ece_mass_at_prior=0.01)
    assert "many more false negatives than false positives (30 and 2)" in advice(run(tp=20, fp=2, fn=30, tn=48))
    assert "many more" not in advice(run())


def test_the_histogram_is_a_figure_and_the_same_bytes_every_time():
    first, again = (single_run(run(), {}).histogram for _ in range(2))
    assert first == again
    assert ElementTree.fromstring(first["svg"]).tag.endswith("svg")


def test_a_constant_score_has_a_value_where_the_metric_gives_it_one():
    decisions = [run(tp=10, fp=0, fn=10, tn=60)["decisions"]]
    assert constant_score("accuracy", decisions)[:2] == ("majority class", 0.75)
    assert constant_score("ap", decisions).value == 0.25
    assert constant_score("auroc", decisions).value == 0.5
    assert constant_score("ece", decisions) is None
    assert constant_score("accuracy", []) is None
