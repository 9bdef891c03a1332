"""An audit flags exact counts no more often than its level says, whatever the scores are like, and finds wrong ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit, logit

from ntmp_cli.counting.laws import OffByOne
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_law
from ntmp_cli.counting.recalibration import recalibrate
from ntmp_cli.evaluation.audit_calibration import Calibration, _calibrate, _centred, _DesignLaw, audit_folds
from ntmp_cli.evaluation.count_audit import Assumed, audit_counts
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import fit_table
from ntmp_cli.prior.estimator import ScoredTuples

N, SEPARATION = 3, 3.5
DESIGNS = {
    "any count": lambda rng, tuples: rng.integers(0, N + 1, tuples),
    "one positive each": lambda rng, tuples: np.ones(tuples, int),
    "sampled at random": lambda rng, tuples: rng.binomial(N, 0.3, tuples),
}


def simulated(design, tuples, noise, seed=0, freedom=None):
    """Scores as if classes were normal; with `freedom` they are of Student's t, and confident scores often wrong."""
    rng = np.random.default_rng(seed)
    true = DESIGNS[design](rng, tuples)
    y = np.arange(N) < true[:, None]
    scatter = rng.normal(size=y.shape) if freedom is None else rng.standard_t(freedom, y.shape)
    z = SEPARATION * (scatter + SEPARATION * y) - SEPARATION**2 / 2 + logit(y.mean())
    recorded = OffByOne(noise).sample(true, np.full(tuples, N), rng)
    return ScoredTuples(z.reshape(-1), np.full(tuples, N), recorded, np.empty(0)), recorded != true


def flagged_by_a_line(scored):
    """The audit without tails and without a test: a line through the scores and a noise rate in turn."""
    noise = 0.05
    for _ in range(8):
        line = recalibrate(scored.scores, replace(scored, noise=noise).observed)
        z = line.slope * scored.scores + line.intercept
        audit = audit_counts(z, scored.sizes, scored.counts, scored.rate)
        noise = audit.noise
    return audit.wrong > 0.5


@pytest.mark.parametrize("design", DESIGNS)
def test_exact_counts_are_not_flagged_where_confident_scores_are_often_wrong(design):
    scored, _ = simulated(design, 600, noise=0.0, freedom=3)
    audit = audit_folds([scored], 0.0, 0.95)
    assert audit.noise == audit.noise_ci[0] == 0
    assert audit.wrong.max() < 0.5
    if design == "sampled at random":
        assert flagged_by_a_line(scored).sum() > 10


@pytest.mark.parametrize("design", ["any count", "one positive each"])
def test_wrong_counts_are_found_where_scores_tell_counts_apart(design):
    scored, moved = simulated(design, 300, noise=0.1)
    audit = audit_folds([scored], 0.0, 0.95)
    flagged = audit.wrong > 0.5
    assert audit.gain is not None
    assert audit.gain > 3.84
    assert audit.noise_ci[0] < moved.mean() < audit.noise_ci[1]
    assert flagged[moved].mean() > 0.5
    assert flagged[~moved].mean() < 0.05


@pytest.mark.parametrize("seed", [0, 6])
def test_exact_counts_are_not_flagged_where_noise_explains_them_a_little_better(seed):
    """The likeliest noise rate would flag eight and more of them; it gains less than chance does."""
    rng = np.random.default_rng(seed)
    true = rng.binomial(4, 0.5, 300)
    y = np.arange(4) < true[:, None]
    z = 2.0 * (rng.standard_t(4, y.shape) + 2.0 * y) - 2.0
    audit = audit_folds([ScoredTuples(z.reshape(-1), np.full(300, 4), true, np.empty(0))], 0.0, 0.95)
    assert audit.gain is not None
    assert 1 < audit.gain < 3.84
    assert audit.noise == audit.wrong.max() == 0


def test_wrong_counts_are_likelier_as_wrong_ones_where_none_is_called_wrong():
    """Scores of heavy tails explain them as well, but they are still the first to check."""
    scored, moved = simulated("sampled at random", 300, noise=0.1, freedom=3)
    audit = audit_folds([scored], 0.0, 0.95)
    assert audit.wrong.max() == 0
    first = np.argsort(-audit.ratio)[:30]
    assert moved[first].mean() > 4 * moved.mean()
    assert (audit.ratio[moved] > 1).mean() > 3 * (audit.ratio[~moved] > 1).mean()


def test_the_ratio_is_that_of_both_laws_of_the_recorded_count():
    z, sizes, counts = np.array([2.0, -1.0, 0.5, 1.0, -3.0]), np.array([3, 2]), np.array([1, 2])
    audit = audit_counts(z, sizes, counts, 0.6, assumed=Assumed(noise=0.0, at_random=True))
    for tuple_, (n, m) in enumerate(zip(sizes, counts, strict=True)):
        law = count_law(z[None, :3] if tuple_ == 0 else z[None, 3:])[0]
        moved = sum(law[k] / (1 if k in (0, n) else 2) for k in (m - 1, m + 1) if 0 <= k <= n)
        assert audit.ratio[tuple_] == pytest.approx(moved / law[m])


def test_the_level_holds_over_small_sets_of_exact_counts():
    """At a level of 0.95 one audit in twenty may flag anything."""
    flags = 0
    for seed in range(12):
        scored, _ = simulated("sampled at random", 40, noise=0.0, seed=seed, freedom=5)
        flags += bool((audit_folds([scored], 0.0, 0.95).wrong > 0.5).any())
    assert flags <= 1


def test_natural_groups_with_exact_counts_are_not_flagged():
    """Members share an intercept that the scores do not know."""
    rng = np.random.default_rng(0)
    z = np.repeat(rng.normal(size=80), 4) + 0.3 * rng.normal(size=320)
    y = rng.random(320) < expit(z + np.repeat(2.5 * rng.normal(size=80), 4))
    scored = ScoredTuples(z, np.full(80, 4), y.reshape(80, 4).sum(axis=1), np.empty(0))
    assert (audit_folds([scored], 2.5, 0.95).wrong <= 0.5).all()
    assert flagged_by_a_line(scored).any()


def test_the_exact_counts_of_the_tutorial_are_not_flagged():
    """70 groups of four tumours: one was called wrong with P = 1.000."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.data))[:280]
    counts = data.target[order].reshape(70, 4).sum(axis=1)
    table = TableData(data.data[order], CountObservations(np.full(70, 4), counts))
    scored = ScoredTuples(
        fit_table(table, "linear", np.random.default_rng(0)).scores, np.full(70, 4), counts, np.empty(0)
    )
    assert (audit_folds([scored], 0.0, 0.95).wrong <= 0.5).all()
    assert flagged_by_a_line(scored).any()


def test_folds_of_different_scales_are_calibrated_each_by_itself():
    scored, _ = simulated("one positive each", 400, noise=0.1)
    half = len(scored.scores) // 2
    folds = [
        ScoredTuples(factor * scored.scores[members], scored.sizes[tuples], scored.counts[tuples], np.empty(0))
        for factor, members, tuples in (
            (1.0, slice(half), slice(200)),
            (0.2, slice(half, None), slice(200, None)),
        )
    ]
    together, scaled = audit_folds([scored], 0.0, 0.95), audit_folds(folds, 0.0, 0.95)
    assert scaled.noise == pytest.approx(together.noise, abs=0.01)
    assert np.abs(scaled.wrong - together.wrong).mean() < 0.02


def test_the_mean_probability_is_the_rate():
    z = np.random.default_rng(0).normal(size=500)
    for slope, tails, rate in ((1.0, (0.0, 0.0), 0.3), (5.0, (0.05, 0.1), 0.2), (0.01, (0.0, 0.2), 0.7)):
        calibration = _centred(z, rate, slope, tails, 0.0)
        assert calibration.probabilities(z).mean() == pytest.approx(rate, abs=1e-8)
        assert calibration.probabilities(z).min() >= tails[0]
        assert calibration.probabilities(z).max() <= 1 - tails[1] + 1e-12


def test_the_fitted_calibration_is_likelier_than_its_neighbours():
    """The gradient is in closed form, intercept included: at its zero no small change gains."""
    scored, _ = simulated("sampled at random", 300, noise=0.05, freedom=3)
    law = _DesignLaw(0.05, {N: np.array([1.0, 0.8, 1.1, 1.5])})
    fitted = _calibrate(scored, 0.0, law, Calibration(1.0, 0.0, (0.01, 0.01)))
    observed = CountObservations(scored.sizes, scored.counts, law)

    def value(slope, low, high):
        from ntmp_cli.counting.poisson_binomial import count_log_prob

        at = _centred(scored.scores, scored.rate, slope, (low, high), fitted.intercept)
        return count_log_prob(at(scored.scores), observed).sum()

    low, high = fitted.tails
    best = value(fitted.slope, low, high)
    assert low > 0
    assert high > 0
    for change in (0.97, 1.03):
        assert value(change * fitted.slope, low, high) < best
        assert value(fitted.slope, change * low, high) < best
        assert value(fitted.slope, low, change * high) < best
