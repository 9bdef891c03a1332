"""Tests of runs against the reference, point by point and over all points."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ntmp_cli.config.studies import CountNoiseSweepConfig
from ntmp_cli.sweeps.plans import SweepPlan, plan_count_noise
from ntmp_cli.sweeps.point_tests import PointTest, point_tests

RUNS = {"plain": {"clamp": "none"}, "abs": {"clamp": "abs"}}


def plan(seeds: int, **settings: object) -> SweepPlan:
    config = {"make_tuples": {"prior": 0.5}, "train": {"method": "ure"}, "rates": (0.0, 0.1), "runs": RUNS}
    return plan_count_noise(CountNoiseSweepConfig(**{**config, "seeds": tuple(range(seeds)), **settings}))


def values_of(of: SweepPlan) -> dict[str, dict[str, float | None]]:
    rng = np.random.default_rng(0)
    return {cell.name: {"ap": float(rng.random()) + (cell.run == "abs")} for cell in of.cells}


def differences(of: SweepPlan, values: dict[str, dict[str, float | None]], rate: float) -> list[float]:
    by = {(c.run, c.seed): values[c.name]["ap"] or 0.0 for c in of.cells if c.position["count_noise"] == rate}
    return [by["abs", seed] - by["plain", seed] for seed in of.config.seeds]


def test_every_point_is_a_paired_test_against_the_first_run_and_all_points_are_one_more() -> None:
    swept = plan(6)
    values = values_of(swept)
    (test,) = point_tests(swept, values)
    assert (test.run, test.reference) == ("abs", "plain")
    expected = [differences(swept, values, rate) for rate in (0.0, 0.1)]
    for point, found in zip(test.points, expected, strict=True):
        assert point.difference == pytest.approx(np.mean(found))
        assert point.p == pytest.approx(stats.wilcoxon(found, method="exact").pvalue)
    by_p = sorted(point.p or 0.0 for point in test.points)
    assert sorted(point.p_holm or 0.0 for point in test.points) == pytest.approx(
        [2 * by_p[0], max(2 * by_p[0], by_p[1])]
    )
    by_seed = np.mean(expected, axis=0)
    assert (test.overall.pairs, test.overall.difference) == (6, pytest.approx(np.mean(expected)))
    assert test.overall.p == pytest.approx(stats.wilcoxon(by_seed, method="exact").pvalue)
    assert [row["scope"] for row in test.rows("ap")] == ["point", "point", "overall"]


def test_a_reference_can_be_named_and_one_run_has_none() -> None:
    swept = plan(3, reference="abs")
    (test,) = point_tests(swept, values_of(swept))
    assert (test.run, test.reference, test.least_p) == ("plain", "abs", 0.5)
    alone = plan(3, runs={"abs": {"clamp": "abs"}})
    assert point_tests(alone, values_of(alone)) == []
    with pytest.raises(ValueError, match="no run of this name; the runs are plain, abs"):
        plan(3, reference="relu")


def test_seeds_that_one_run_lacks_are_left_out_of_its_pairs() -> None:
    swept = plan(6)
    values = values_of(swept)
    lost = next(cell.name for cell in swept.cells if cell.run == "abs" and cell.position["count_noise"] == 0.0)
    undefined = next(cell.name for cell in swept.cells if cell.run == "plain" and cell.seed == 5)
    del values[lost]
    values[undefined] = {"ap": None}
    (test,) = point_tests(swept, values)
    assert [point.pairs for point in test.points] == [4, 6]
    assert test.overall.pairs == 6  # two of the seeds by one point


def test_points_of_one_seed_are_no_independent_pairs() -> None:
    """Two seeds cannot prove anything, however many points a sweep has."""
    swept = plan(2, rates=tuple(np.linspace(0, 0.4, 20)))
    (test,) = point_tests(swept, values_of(swept))
    assert (test.overall.pairs, test.overall.p) == (2, 0.5)


@pytest.mark.parametrize(("p", "mark"), [(0.0009, "***"), (0.001, "**"), (0.01, "*"), (0.05, ""), (None, "")])
def test_marks_are_those_of_the_paper(p: float | None, mark: str) -> None:
    assert PointTest({}, 5, 0.1, p, p).mark == mark
