"""Evidence of the orientation: the pool against the tuples, and the counts under either sign, added up as one z."""

from __future__ import annotations

from dataclasses import replace
from math import log, sqrt

import numpy as np
import pytest

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.groups import rate_shift, signal_to_noise, usable_rate
from ntmp_cli.learning.method import HeldoutScores
from ntmp_cli.learning.methods.count import CountSettings
from ntmp_cli.learning.orientation_evidence import (
    CountFits,
    Evidence,
    OrientationTest,
    first_order_z,
    require_agreement,
    require_certainty,
)
from ntmp_cli.tuple_source import Task


def scored(
    n: int, m: int, tuples: int, pool: int, prior: float, *, separation: float = 3.0, seed: int = 0
) -> HeldoutScores:
    """Log-odds at the tuples' rate of two unit Gaussians; the labels of the pool are sampled independently."""
    rng = np.random.default_rng(seed)
    positive = np.append(np.tile(np.arange(n) < m, tuples), rng.random(pool) < prior)
    x = rng.standard_normal(len(positive)) + separation * (positive - 0.5)
    z = separation * x + log(m / (n - m))
    return HeldoutScores(z[: n * tuples], np.full(tuples, n), np.full(tuples, m), z[n * tuples :])


def mirrored(scores: HeldoutScores) -> HeldoutScores:
    return replace(scores, tuple_scores=-scores.tuple_scores, unlabeled_scores=-scores.unlabeled_scores)


def known(n: int, m: int, tuples: int, pool: int, prior: float | None, noise: float = 0.0) -> OrientationTest:
    """Scores are at the rate of the tuples."""
    return OrientationTest(Task([(n, m, tuples)], pool), m / n, prior, count_noise(noise))


def evidence_of(test: OrientationTest, scores: HeldoutScores) -> Evidence:
    return test.evidence([scores], test.count_fits(scores))


# Rates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.005, 1 / 3, 0.998])
def test_log_odds_of_a_rate_are_exact(rate):
    assert rate_shift(0.05, rate, 2000) == pytest.approx(log(0.05 / 0.95) - log(rate / (1 - rate)), abs=1e-12)


def test_a_rate_of_nought_is_half_a_positive_among_all_instances():
    assert usable_rate(0.0, 500) == 0.001
    assert usable_rate(1.0, 500) == 0.999


def test_the_signal_of_a_perfect_score_is_in_standard_errors():
    """Of one stratum and U it is the gap over the error of a difference of two shares."""
    sizes, rates = [4000.0, 1000.0], [0.02, 0.05]
    centre = (80 + 50) / 5000
    expected = 0.03 / sqrt(centre * (1 - centre) * (1 / 4000 + 1 / 1000))
    assert signal_to_noise(sizes, rates) == pytest.approx(expected, rel=1e-12)
    assert signal_to_noise([10.0, 10.0], [0.0, 0.0]) == 0


# First order --------------------------------------------------------------------------------------


def test_z_of_the_first_order_is_standard_normal_where_nothing_is_to_be_found():
    """A pool at the tuples' rate; a plain variance of members would ignore that a tuple's count is fixed."""
    values = np.array([first_order_z(scored(3, 1, 60, 150, 1 / 3, seed=seed)) for seed in range(400)])
    assert abs(values.mean()) < 0.2
    assert 0.88 < values.std() < 1.12


def test_z_of_the_first_order_changes_its_sign_with_the_scores():
    scores = scored(3, 1, 100, 300, 0.7)
    assert first_order_z(scores) == pytest.approx(-first_order_z(mirrored(scores)), rel=1e-6)
    assert first_order_z(scores) > 5


def test_constant_scores_have_no_orientation():
    nothing = np.zeros(6)
    scores = HeldoutScores(nothing, np.full(2, 3), np.ones(2, np.int64), nothing)
    assert evidence_of(known(3, 1, 2, 6, 0.5), scores) == (0, 0)


def test_the_pool_tells_no_more_than_its_own_sampling_allows():
    """Scores that tell U from tuples by something else than the class are not believed beyond that."""
    scores = scored(2, 1, 400, 1000, 0.46)
    other = replace(scores, unlabeled_scores=scores.unlabeled_scores - 4)
    most = 0.04 * sqrt(1000 / (0.46 * 0.54))
    assert abs(first_order_z(other)) > 5 * most
    assert evidence_of(known(2, 1, 400, 1000, 0.46), other).z == pytest.approx(most, rel=1e-9)


def test_pools_of_several_scorers_are_one_pool():
    test = known(2, 1, 400, 2000, 0.4)
    halves = [scored(2, 1, 200, 1000, 0.4, seed=seed) for seed in (1, 2)]
    z = sum(first_order_z(half) for half in halves) / sqrt(2)
    assert test.first_order(halves) == pytest.approx(z**2 / 2, rel=1e-9)
    assert test.first_order([]) == 0
    assert replace(test, prior=None).first_order(halves) == 0  # an estimate of the same counts is no evidence


# Counts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(3, 1), (5, 3), (50, 1)])
@pytest.mark.parametrize("scale", [0.05, 1.0, 20.0])
def test_the_counts_tell_the_side_whatever_the_scale_of_the_scores(n, m, scale):
    scores = scored(n, m, 60, 0, 0.5)
    scaled = replace(scores, tuple_scores=scale * scores.tuple_scores)
    test = known(n, m, 60, 0, None)
    assert evidence_of(test, scaled).counts > 4.5
    assert evidence_of(test, mirrored(scaled)).counts == pytest.approx(-evidence_of(test, scaled).counts, rel=1e-3)


def test_counts_on_the_plateau_and_of_half_positive_tuples_tell_nothing():
    noise = replace(scored(3, 1, 60, 0, 0.5), tuple_scores=np.random.default_rng(1).standard_normal(180))
    test = known(3, 1, 60, 0, None)
    assert test.count_fits(noise).on_plateau
    assert evidence_of(test, noise).counts == 0
    assert evidence_of(known(4, 2, 60, 0, None), scored(4, 2, 60, 0, 0.5)).counts == 0


def test_wrong_counts_are_expected_where_the_noise_is_known():
    """Recorded counts that no scores reproduce make every line flat; the law of noise explains them."""
    scores, rng = scored(3, 1, 200, 0, 0.5, separation=6.0), np.random.default_rng(3)
    wrong = rng.random(200) < 0.3
    recorded = replace(scores, counts=np.where(wrong, np.where(rng.random(200) < 0.5, 0, 2), 1))
    exact, noisy = (evidence_of(known(3, 1, 200, 0, None, noise), recorded).counts for noise in (0.0, 0.3))
    assert noisy > exact + 10


def test_fits_of_two_networks_are_compared_side_by_side_and_those_of_folds_added_up():
    one, other = CountFits(-10.0, -4.0, -8.0), CountFits(-10.0, -7.0, -3.0)
    assert one.better(other) == (-10, -4, -3)
    assert one.better(other.exchanged()) == (-10, -3, -7)
    assert one.plus(other) == (-20, -11, -11)


# One z --------------------------------------------------------------------------------------------


def test_nats_of_both_kinds_are_added_up():
    assert Evidence(2.0, 2.5).z == pytest.approx(3)
    assert Evidence(2.0, -2.5).z == pytest.approx(-1)
    assert Evidence(2.0, -2.5).mirrored().z == pytest.approx(1)


@pytest.mark.parametrize(("trust", "z"), [(None, -4.0), ("prior", 4.0), ("counts", -sqrt(32))])
def test_of_evidence_that_disagrees_the_trusted_kind_is_believed(trust, z):
    assert Evidence(8.0, -16.0).trusted(trust).z == pytest.approx(z)
    assert Evidence(8.0, 16.0).trusted(trust) == (8, 16)


def test_a_prior_on_the_wrong_side_of_the_rate_contradicts_the_counts():
    scores = scored(3, 1, 200, 600, 0.5)
    test = known(3, 1, 200, 600, 0.2)
    evidence = evidence_of(test, scores)
    with pytest.raises(
        NotIdentifiableError, match=r"prior 0\.2 .* rate 0\.3333 .* z = \d+\.\d, .* \d+\.\d nats"
    ) as error:
        require_agreement(evidence, test, CountSettings())
    assert "trust" in (error.value.hint or "")
    for trust in ("prior", "counts"):
        require_agreement(evidence, test, CountSettings(trust=trust))
    require_agreement(evidence_of(known(3, 1, 200, 600, 0.5), scores), known(3, 1, 200, 600, 0.5), CountSettings())


def test_an_orientation_that_nothing_tells_is_refused_and_an_uncertain_one_warned_of(caplog):
    test = known(2, 1, 100, 100, 0.46)
    with pytest.raises(NotIdentifiableError, match=r"which class is positive \(z = 0\.9\)"):
        require_certainty(0.9, test, CountSettings())
    assert not caplog.records
    for options in (CountSettings(trust="prior"), CountSettings(assume="prior<0.5")):
        require_certainty(0.9, test, options)
    require_certainty(2.9, test, CountSettings())
    assert [record.getMessage()[:33] for record in caplog.records] == 3 * ["the orientation is uncertain (z ="]
    caplog.clear()
    require_certainty(3.0, test, CountSettings())
    # Tuples of several rates have a gradient at a constant score: they are learned without a choice of side.
    several = replace(test, task=Task([(2, 1, 100), (2, 0, 50)], 100))
    assert not caplog.records
    require_certainty(0.2, several, CountSettings())
    assert len(caplog.records) == 1


def test_recorded_counts_that_noise_explains_are_of_one_rate():
    several = Task([(3, 1, 100), (3, 2, 10), (3, 0, 10)], 100)
    assert OrientationTest(several, 0.3, 0.5, count_noise(0.1)).one_rate
    assert not OrientationTest(several, 0.3, 0.5, count_noise(0.0)).one_rate
