"""How often intervals over few repetitions cover the mean, by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from paired_runs import rows

from ntmp_cli.evaluation.comparisons import compare
from ntmp_cli.evaluation.intervals import difference_interval, metric_interval, t_interval
from ntmp_cli.evaluation.summary import summarise
from ntmp_cli.sweeps.windows import point

STUDIES = 2000
SEEDS = (3, 5, 10)


def share_covered(values, mean):
    limits = [metric_interval("accuracy", study) for study in values.tolist()]
    return np.mean([low <= mean <= high for low, high in limits])


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_interval_of_normal_values_covers_what_it_says(seeds):
    """The standard error of a share of 95 % in 2,000 studies is 0.5 %."""
    values = np.random.default_rng(seeds).normal(0.8, 0.01, (STUDIES, seeds))
    assert share_covered(values, 0.8) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("seeds", SEEDS)
def test_of_accuracies_crowded_near_one_it_covers_a_little_less(seeds):
    """Beta(18, 1): mean 0.947, skewness −1.8, as of a method that now and then fails."""
    values = np.random.default_rng(seeds).beta(18, 1, (STUDIES, seeds))
    assert 0.88 < share_covered(values, 18 / 19) < 0.95


def test_one_value_has_no_interval_and_equal_values_have_no_width():
    assert metric_interval("accuracy", [0.5]) == t_interval([]) == (None, None)
    assert metric_interval("accuracy", [0.5, 0.5]) == (0.5, 0.5)


def test_limits_stay_within_the_range_of_the_metric():
    assert metric_interval("accuracy", [0.9, 1.0]) == (pytest.approx(0.95 - 12.7062 * 0.05, rel=1e-5), 1.0)
    low, high = metric_interval("nll", [0.1, 0.9])
    assert (low, high > 1) == (0.0, True)
    assert difference_interval("accuracy", [-0.9, 0.9]) == (-1.0, 1.0)
    assert difference_interval("nll", [-0.9, 0.9])[0] < -1


def test_summaries_comparisons_and_sweeps_show_students_interval():
    """mean ± t s/√S with the textbook's t: 4.303 for two degrees of freedom."""
    values, half = [0.4, 0.5, 0.6], 4.30265 * 0.1 / 3**0.5
    (group,) = summarise(rows("count", values))
    assert (group["ci_low"], group["ci_high"]) == pytest.approx((0.5 - half, 0.5 + half))
    of_sweep = point(0.0, "accuracy", values)
    assert (of_sweep.low, of_sweep.high) == pytest.approx((0.5 - half, 0.5 + half))
    (comparison,) = compare(rows("count", [0.5] * 3) + rows("uu", values), "count")
    limits = comparison["difference_low"], comparison["difference_high"]
    assert limits == pytest.approx((-half, half))
