"""Plans of sweeps: which cells, with which settings, under which names; what is left out, and why."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ntmp_cli.config.studies import CountNoiseSweepConfig, GapSweepConfig, GridSweepConfig, PriorSweepConfig
from ntmp_cli.data.specs import mean_rate, parse_spec, sample_sizes
from ntmp_cli.errors import NotIdentifiableError, UsageError
from ntmp_cli.learning.method import methods
from ntmp_cli.settings import build
from ntmp_cli.sweeps.plans import plan_count_noise, plan_gap, plan_grid, plan_prior


def test_the_prior_sweep_of_the_paper():
    plan = plan_prior(PriorSweepConfig(), 0.5, 1 / 3)
    assert [round(left.position["offset"], 2) for left in plan.left_out] == [-0.2, -0.18, -0.16, -0.14, -0.12]
    assert all("ᾱ = 0.3333" in left.why for left in plan.left_out)
    assert len(plan.cells) == 26 * 5
    cell = next(c for c in plan.cells if c.position == {"offset": 0.28} and c.seed == 3)
    assert (cell.name, cell.tuples_name) == ("offset=0.28,seed=3", "seed=3")
    assert (cell.training.prior, cell.training.method, cell.training.seed) == (0.78, "ure", 3)
    assert cell.training.settings.clamp_scope == "class"
    assert cell.tuples is not None
    assert (cell.tuples.prior, cell.tuples.seed) == (0.5, 3)


@given(st.floats(0.02, 0.98), st.floats(0, 1), st.floats(0, 0.2))
def test_priors_stay_in_range_and_away_from_the_mean_rate(prior, rate, margin):
    config = PriorSweepConfig(margin=margin, seeds=(0,))
    try:
        plan = plan_prior(config, prior, rate)
    except NotIdentifiableError:
        assert abs(prior - rate) < margin + 1e-9  # priors are tried to so many digits
        return
    for cell in plan.cells:
        assert 0 < cell.training.prior < 1
        assert abs(cell.training.prior - rate) >= margin - 1e-9
    # Nothing is lost silently, and nothing is left out without a reason.
    assert len(plan.cells) + len(plan.left_out) == 31
    for left in plan.left_out:
        tried = prior + left.position["offset"]
        assert not 1e-9 < tried < 1 - 1e-9 or abs(tried - rate) < margin + 1e-9


def test_an_estimate_at_the_mean_rate_has_nothing_to_be_compared_with():
    with pytest.raises(NotIdentifiableError, match=r"π̂ = 0\.35 itself lies within"):
        plan_prior(PriorSweepConfig(), 0.35, 1 / 3)


@pytest.mark.parametrize(("given", "trust"), [({}, "prior"), ({"trust": "counts"}, "counts")])
def test_a_sweep_of_wrong_priors_trusts_them_unless_told_otherwise(given, trust):
    """Some of them contradict the counts, and the question is what comes of that."""
    config = PriorSweepConfig(train={"method": "count", **given}, offsets=(0.0, 0.1), seeds=(0,))
    assert [cell.training.settings.trust for cell in plan_prior(config, 0.5, 0.2).cells] == [trust, trust]
    assert plan_prior(PriorSweepConfig(offsets=(0.0,)), 0.5, 0.2).cells[0].training.ignored == ()


def test_the_tuples_may_have_another_prior_than_the_estimate_and_another_method():
    config = PriorSweepConfig(make_tuples={"prior": 0.6}, train={"method": "count"}, offsets=(0.0,), seeds=(0,))
    (cell,) = plan_prior(config, 0.5, 0.2).cells
    assert cell.tuples is not None
    assert (cell.tuples.prior, cell.training.prior, cell.training.method) == (0.6, 0.5, "count")


def test_runs_are_crossed_with_points_and_seeds():
    runs = {"plain": {"clamp": "none"}, "abs": {"clamp": "abs"}}
    plan = plan_prior(PriorSweepConfig(runs=runs, offsets=(0.0, 0.1), seeds=(0, 1)), 0.7, 0.2)
    assert plan.runs == ("plain", "abs")
    assert len({cell.name for cell in plan.cells}) == len(plan.cells) == 8
    assert {(cell.run, cell.training.settings.clamp) for cell in plan.cells} == {("plain", "none"), ("abs", "abs")}
    assert {cell.tuples_name for cell in plan.cells} == {"seed=0", "seed=1"}


def test_count_noise_is_in_the_tuples_and_training_does_not_know():
    plan = plan_count_noise(CountNoiseSweepConfig(make_tuples={"prior": 0.5}, rates=(0.2, 0.0), seeds=(4,)))
    tuples = ["count_noise=0,seed=4", "count_noise=0.2,seed=4"]
    names = [f"run={run},{name}" for run in ("count", "ure+abs") for name in tuples]
    assert [cell.name for cell in plan.cells] == names
    assert [cell.tuples_name for cell in plan.cells] == 2 * tuples
    assert [cell.tuples.count_noise for cell in plan.cells if cell.tuples] == [0.0, 0.2, 0.0, 0.2]
    assert {cell.training.prior for cell in plan.cells} == {0.5}
    assert {cell.training.model_dump().get("count_noise", 0.0) for cell in plan.cells} == {0.0}


@pytest.mark.parametrize(
    ("settings", "labels"),
    [
        ({}, ["count", "ure+abs"]),
        ({"train": {"epochs": 3}}, ["count", "ure+abs"]),
        ({"train": {"method": "ure"}}, ["ure+relu"]),
        ({"train": {"clamp": "none"}}, ["ure"]),
        ({"runs": {"mine": {"method": "uucor"}}}, ["uucor"]),
    ],
)
def test_count_noise_compares_the_likelihood_and_the_clamped_risk_unless_told_otherwise(settings, labels):
    plan = plan_count_noise(CountNoiseSweepConfig(make_tuples={"prior": 0.5}, rates=(0.1,), seeds=(0,), **settings))
    trainings = [cell.training for cell in plan.cells]
    assert [methods.get(training.method).label(training) for training in trainings] == labels


def test_the_gap_is_between_the_prior_of_u_and_the_rate():
    plan = plan_gap(GapSweepConfig(seeds=(0,)), {"": 0.4})
    assert [left.position["prior"] for left in plan.left_out] == [0.4]  # nothing is identifiable there
    assert [cell.position["gap"] for cell in plan.cells] == [0.3, 0.2, 0.1, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert all(c.tuples and c.tuples.prior == c.training.prior == c.position["prior"] for c in plan.cells)
    assert len({cell.tuples_name for cell in plan.cells}) == 8


def test_several_tuples_share_the_axis_of_the_gap():
    plan = plan_gap(GapSweepConfig(seeds=(0,), priors=(0.2, 0.4)), {"3:1": 1 / 3, "5:2": 0.4})
    assert [(c.position["tuples"], c.position["prior"]) for c in plan.cells] == [
        ("3:1", 0.2),
        ("3:1", 0.4),
        ("5:2", 0.2),
    ]
    assert [c.tuples.tuples for c in plan.cells if c.tuples] == [("3:1",), ("3:1",), ("5:2",)]
    assert [c.position["gap"] for c in plan.cells] == pytest.approx([1 / 3 - 0.2, 0.4 - 1 / 3, 0.2])
    assert plan.left_out[0].position == {"tuples": "5:2", "prior": 0.4, "gap": 0}
    assert plan.cells[0].name == "tuples=1-of-3,prior=0.2,gap=0.1333333333,seed=0"


def grid(vary, **settings):
    return plan_grid(build(GridSweepConfig, {"vary": vary, **settings}, "grid"))


def test_a_grid_crosses_its_settings_and_tuples_are_shared_where_they_can_be():
    vary = {"make_tuples": {"prior": [0.2, 0.5]}, "train": {"lr": ["1e-3", 0.01], "model": ["linear", "mlp"]}}
    plan = grid(vary, seeds=[0, 1])
    assert len({cell.name for cell in plan.cells}) == len(plan.cells) == 16
    assert len({cell.tuples_name for cell in plan.cells}) == 4
    assert plan.cells[0].name == "prior=0.2,lr=0.001,model=linear,seed=0"
    assert all(cell.tuples and cell.training.prior == cell.tuples.prior for cell in plan.cells)


def test_values_that_no_folder_name_can_hold_get_different_names():
    plan = grid({"make_tuples": {"tuples": [["3:1"], ["3:2"], ["3:1", "3:2"]]}}, make_tuples={"prior": 0.5}, seeds=[0])
    names = [cell.name for cell in plan.cells]
    assert len(set(names)) == 3
    assert all(name.isascii() and not set(name) & set('/:\\"[] ') for name in names)
    assert {cell.tuples_name for cell in plan.cells} == set(names)


def test_settings_of_a_method_are_varied_as_all_others():
    plan = grid({"train": {"clamp": ["relu", "abs"], "margin": ["1e-2"]}}, train={"prior": 0.5}, seeds=[0])
    assert [cell.name for cell in plan.cells] == ["clamp=relu,margin=0.01,seed=0", "clamp=abs,margin=0.01,seed=0"]
    assert [cell.training.settings.clamp for cell in plan.cells] == ["relu", "abs"]
    assert {cell.training.method for cell in plan.cells} == {"ure"}


def test_a_setting_that_one_of_the_methods_does_not_have_is_a_coordinate_of_its_cells_still():
    plan = grid({"train": {"method": ["count", "ure"], "clamp": ["relu", "abs"]}}, train={"prior": 0.5}, seeds=[0])
    assert len({cell.name for cell in plan.cells}) == 4
    assert [cell.training.ignored for cell in plan.cells] == [("clamp",), ("clamp",), (), ()]


def test_a_setting_of_both_groups_is_distinguished():
    plan = grid(
        {"make_tuples": {"count_noise": [0.0, 0.1]}, "train": {"count_noise": [0.0, 0.1]}}, train={"prior": 0.5}
    )
    assert len({cell.name for cell in plan.cells}) == len(plan.cells) == 20
    assert len({cell.tuples_name for cell in plan.cells}) == 10


@pytest.mark.parametrize(
    ("vary", "settings", "says"),
    [
        ({"train": {"seed": [0, 1]}}, {}, "train.seed: seeds are given once"),
        ({"train": {"lr": []}}, {}, "at least one value"),
        ({"train": {"lr": [0.1, 0.1]}}, {}, "each of them once"),
        ({"train": {"lr": [0.1]}}, {"train": {"seed": 3}}, "train.seed: seeds are given once"),
        ({"train": {"learning_rate": [0.1]}}, {"train": {"prior": 0.5}}, "unknown setting"),
        ({"trian": {"lr": [0.1]}}, {}, "trian"),
        ({}, {}, "vary"),
    ],
)
def test_grids_that_cannot_be_meant_are_refused(vary, settings, says):
    with pytest.raises(UsageError, match=says):
        grid(vary, **settings)


def test_given_tuples_are_not_made_again():
    with pytest.raises(UsageError, match="make_tuples"):
        plan_prior(PriorSweepConfig(make_tuples={"n": 3, "m": 1}), 0.5, 0.2, given_tuples=True)
    config = build(GridSweepConfig, {"vary": {"make_tuples": {"prior": [0.2]}}}, "grid")
    with pytest.raises(UsageError, match="not made again"):
        plan_grid(config, given_tuples=True)
    plan = plan_prior(PriorSweepConfig(), 0.5, 0.2, given_tuples=True)
    assert {cell.tuples for cell in plan.cells} == {None}
    assert {cell.training.seed for cell in plan.cells} == {0, 1, 2, 3, 4}


def test_offsets_need_their_reference_and_points_are_given_once():
    with pytest.raises(ValidationError, match="0 must be among the offsets"):
        PriorSweepConfig(offsets=(0.1, 0.2))
    with pytest.raises(ValidationError, match="a point is given twice"):
        CountNoiseSweepConfig(rates=(0.1, 0.1))
    with pytest.raises(ValidationError, match="a seed is given twice"):
        GapSweepConfig(seeds=(1, 1))


@pytest.mark.parametrize("specs", [["3:1"], ["5:1-3"], ["5:~0.4"], ["3-7:1-2"], ["3:1@0.7", "5:4@0.3", "2-4:~0.9"]])
def test_the_mean_rate_is_that_of_sampled_tuples(specs):
    parsed = [parse_spec(text) for text in specs]
    n, m = sample_sizes(parsed, 200_000, np.random.default_rng(0))
    rates = m / n
    assert mean_rate(parsed) == pytest.approx(rates.mean(), abs=5 * rates.std() / np.sqrt(len(rates)) + 1e-12)
