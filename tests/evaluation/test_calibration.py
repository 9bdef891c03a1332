from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_log_prob
from ntmp_cli.evaluation.calibration import (
    BINS,
    COLDEST,
    HOTTEST,
    _no_worse_than_one,
    brier,
    brier_decomposition,
    calibration_error,
    equal_mass_calibration_error,
    equal_width_bins,
    label_nll,
    temperature_by_counts,
    temperature_by_labels,
)

# Borders of bins, both ends, and anything between: the cases in which binning goes wrong.
P = st.one_of(st.sampled_from([0.0, 1.0, 0.5, *(k / BINS for k in range(BINS + 1))]), st.floats(0, 1))
FORECASTS = st.lists(st.tuples(st.booleans(), P, st.integers(1, 4)), min_size=1, max_size=40)


def arrays(forecasts: list[tuple[bool, float, int]]) -> tuple[Any, Any, Any]:
    labels, p, weights = zip(*forecasts, strict=True)
    return np.array(labels), np.array(p, dtype=float), np.array(weights, dtype=float)


@given(FORECASTS)
def test_calibration_error_is_the_gap_of_each_bin(forecasts: list[tuple[bool, float, int]]) -> None:
    expected = []
    for k in range(BINS):
        inside = [(y, p) for y, p, _ in forecasts if k / BINS <= p < (k + 1) / BINS or (p == 1 and k == BINS - 1)]
        expected.append(abs(sum(y - p for y, p in inside)) / len(forecasts))
    labels, p, _ = arrays(forecasts)
    assert calibration_error(labels, p) == pytest.approx(math.fsum(expected), abs=1e-12)


@given(FORECASTS)
def test_equal_mass_error_is_that_of_whole_copies_in_equal_bins(forecasts: list[tuple[bool, float, int]]) -> None:
    """Fifteen copies of n instances, ties mixed evenly, cut into fifteen bins of n."""
    labels, p, _ = arrays(forecasts)
    mixed = np.array([labels[p == value].mean() for value in p])
    order = np.argsort(p)
    excess = np.repeat((mixed - p)[order], BINS).reshape(BINS, len(p))
    expected = np.abs(excess.sum(axis=1)).sum() / (BINS * len(p))
    assert equal_mass_calibration_error(labels, p) == pytest.approx(expected, abs=1e-12)


@given(FORECASTS)
def test_a_weight_counts_as_so_many_instances(forecasts: list[tuple[bool, float, int]]) -> None:
    labels, p, weights = arrays(forecasts)
    many = np.repeat(np.arange(len(p)), weights.astype(int))
    for measure in (calibration_error, equal_mass_calibration_error, brier):
        assert measure(labels, p, weights) == pytest.approx(measure(labels[many], p[many]), abs=1e-12)
    terms = zip(brier_decomposition(labels, p, weights), brier_decomposition(labels[many], p[many]), strict=True)
    assert all(weighted == pytest.approx(repeated, abs=1e-12) for weighted, repeated in terms)


def test_probabilities_of_0_and_1_land_in_the_end_bins() -> None:
    bins = equal_width_bins(np.array([False, True, True]), np.array([0.0, 1.0, 1.0]))
    assert bins.mass[[0, -1]].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert bins.frequency[[0, -1]].tolist() == [0, 1]
    assert np.isnan(bins.confidence[1:-1]).all()
    assert calibration_error(np.array([True, False]), np.array([0.0, 1.0])) == 1


def test_by_default_there_are_the_15_bins_of_the_paper() -> None:
    rng = np.random.default_rng(8)
    p = rng.random(3000)
    labels = rng.random(3000) < 0.5 + 0.4 * np.sin(20 * p)  # too many and too few positives inside of every bin
    place = np.floor(p * 15)
    expected = sum(abs((labels - p)[place == b].sum()) for b in range(15)) / 3000
    assert calibration_error(labels, p) == pytest.approx(expected)


def test_a_constant_forecast_is_off_by_its_distance_to_the_share_of_positives() -> None:
    labels = np.arange(10) < 3
    for measure in (calibration_error, equal_mass_calibration_error):
        assert measure(labels, np.full(10, 0.5)) == pytest.approx(0.2)
        assert measure(labels, np.full(10, 0.3)) == pytest.approx(0, abs=1e-15)


@given(FORECASTS)
def test_brier_and_nll_agree_with_scikit_learn(forecasts: list[tuple[bool, float, int]]) -> None:
    labels, p, weights = arrays(forecasts)
    expected = brier_score_loss(labels, p, sample_weight=weights, pos_label=True)
    assert brier(labels, p, weights) == pytest.approx(expected, abs=1e-12)
    inside = np.clip(p, 0.001, 0.999)
    expected = log_loss(labels, inside, sample_weight=weights, labels=[False, True])
    assert label_nll(labels, logit(inside), weights) == pytest.approx(expected, rel=1e-9)


@given(FORECASTS)
def test_the_terms_of_the_brier_decomposition_add_up(forecasts: list[tuple[bool, float, int]]) -> None:
    labels, p, _ = arrays(forecasts)
    reliability, resolution, uncertainty, within = brier_decomposition(labels, p)
    assert reliability - resolution + uncertainty + within == pytest.approx(brier(labels, p), abs=1e-12)
    assert min(reliability, resolution) >= 0
    assert 0 <= uncertainty <= 0.25
    # Murphy's three terms suffice when a bin holds one forecast.
    centres = (np.minimum((p * BINS).astype(int), BINS - 1) + 0.5) / BINS
    assert brier_decomposition(labels, centres).within == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("label", [False, True])
def test_labels_of_one_class_have_no_uncertainty(label: bool) -> None:
    """Their shares of the bins, each of them rounded, add up to a little more or less than 1."""
    for instances in range(1, 200):
        labels, p = np.full(instances, label), np.linspace(0, 1, instances)
        for weights in (None, np.linspace(0.1, 0.7, instances)):
            assert brier_decomposition(labels, p, weights).uncertainty == 0


def test_an_impossible_label_has_no_likelihood_and_a_certain_one_costs_nothing() -> None:
    assert math.isnan(label_nll(np.array([True, False]), np.array([-math.inf, 0.0])))
    assert label_nll(np.array([True, False]), np.array([math.inf, -math.inf])) == 0


# Temperature by labels -----------------------------------------------------------------------------

SCORED = st.lists(st.tuples(st.booleans(), st.floats(-30, 30)), min_size=1, max_size=40)


@given(SCORED)
def test_temperature_is_never_worse_than_none_and_no_other_is_better(pairs: list[tuple[bool, float]]) -> None:
    labels, z = (np.array(column) for column in zip(*pairs, strict=True))
    temperature = temperature_by_labels(z.astype(float), labels)
    assert temperature.nll <= temperature.nll_at_one
    assert temperature.nll_at_one == pytest.approx(label_nll(labels, z))
    if temperature.fit == "fitted":
        assert temperature.nll == pytest.approx(label_nll(labels, z / temperature.value))
        grid = [label_nll(labels, z / t) for t in np.geomspace(COLDEST, HOTTEST, 60)]
        assert temperature.nll <= min(grid) + 1e-9


def test_temperature_is_logistic_regression_without_an_intercept() -> None:
    rng = np.random.default_rng(1)
    z = rng.normal(0, 4, 500)
    labels = rng.random(500) < expit(z / 2.5)
    model = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10, max_iter=1000).fit(z[:, None], labels)
    assert temperature_by_labels(z, labels).value == pytest.approx(1 / model.coef_[0, 0], rel=1e-5)


@pytest.mark.parametrize("true", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_found_again(true: float) -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(0, 5, 20_000)
    assert temperature_by_labels(z * true, rng.random(len(z)) < expit(z)).value == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize(
    ("labels", "scores", "fit", "value"),
    [
        ([True, False], [2.0, -1.0], "undetermined", 1.0),
        ([True, True], [2.0, 1.0], "undetermined", 1.0),
        ([True, False], [0.0, 0.0], "undetermined", 1.0),
        ([False, True], [2.0, -1.0], "uninformative", HOTTEST),
        ([True, False, False], [math.inf, -math.inf, math.inf], "no held-out data", math.nan),
    ],
)
def test_what_cannot_be_fitted_is_named(labels: list[bool], scores: list[float], fit: str, value: float) -> None:
    temperature = temperature_by_labels(np.array(scores), np.array(labels))
    assert temperature.fit == fit
    assert temperature.value == pytest.approx(value, nan_ok=True)
    if not math.isnan(value):
        assert temperature.nll == pytest.approx(label_nll(np.array(labels), np.array(scores) / value))
        assert temperature.nll_at_one == pytest.approx(label_nll(np.array(labels), np.array(scores)))


def test_a_temperature_below_the_coldest_is_undetermined() -> None:
    labels = np.arange(40) < 37  # β = log(37/3)/.02 = 126 would fit them; with scores twice as large 63 does
    assert temperature_by_labels(np.full(40, 0.02), labels)[:2] == (1.0, "undetermined")
    assert temperature_by_labels(np.full(40, 0.04), labels).value == pytest.approx(0.04 / math.log(37 / 3))


def test_a_temperature_near_the_hottest_is_fitted() -> None:
    temperature = temperature_by_labels(np.full(40, 7.0), np.arange(40) < 21)
    assert temperature.fit == "fitted"
    assert temperature.value == pytest.approx(7 / math.log(21 / 19))
    assert HOTTEST / 2 < temperature.value < HOTTEST


# The likelihood of counts --------------------------------------------------------------------------


# Temperature by counts -----------------------------------------------------------------------------


def test_tuples_of_one_have_the_temperature_of_their_labels() -> None:
    rng = np.random.default_rng(5)
    z = rng.normal(0, 4, 300)
    labels = rng.random(300) < expit(z / 2)
    by_counts = temperature_by_counts(z, np.ones(300, dtype=np.int64), labels.astype(np.int64), shift=0.0)
    by_labels = temperature_by_labels(z, labels)
    assert by_counts.value == pytest.approx(by_labels.value, rel=1e-4)
    assert by_counts.nll == pytest.approx(by_labels.nll, rel=1e-9)


@pytest.mark.parametrize(("prior", "true"), [(0.2, 2.0), (0.5, 0.5), (0.8, 3.0)])
def test_counts_find_the_temperature_of_scores_at_another_prior(prior: float, true: float) -> None:
    """Gaussian classes: log-odds at π are known, tuples are of rate 1/3, and T is to undo a factor at π."""
    rng = np.random.default_rng(6)
    tuples, n = 6000, 3
    positive = np.tile([True, False, False], (tuples, 1))
    x = rng.normal(np.where(positive, 1.0, -1.0), 1.0)
    z = logit(prior) + 2 * x
    sizes, counts = np.full(tuples, n), np.ones(tuples, dtype=np.int64)
    shift = logit(prior) - logit(1 / 3)
    temperature = temperature_by_counts((true * z).ravel(), sizes, counts, shift)
    assert temperature.fit == "fitted"
    assert temperature.value == pytest.approx(true, rel=0.05)
    # Labels at the prior of deployment say the same: one temperature, whatever it is fitted to.
    labels = rng.random(20_000) < prior
    at_prior = logit(prior) + 2 * rng.normal(np.where(labels, 1.0, -1.0), 1.0)
    assert temperature_by_labels(true * at_prior, labels).value == pytest.approx(true, rel=0.05)


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("spread", [0.0, 1.0, 2.0])
def test_the_intercepts_of_tuples_are_not_taken_for_overconfidence(spread: float, factor: float) -> None:
    """Calibrated for instances of any tuple, whose labels it has not seen."""
    rng = np.random.default_rng(8)
    sizes = rng.integers(20, 60, 400)
    owner = np.repeat(np.arange(400), sizes)
    true = rng.normal(0, 1.5, len(owner))
    labels = rng.random(len(owner)) < expit(true + spread * rng.normal(size=400)[owner])
    counts = np.bincount(owner, labels).astype(np.int64)
    temperature = temperature_by_counts(factor * true, sizes, counts, 0.0, 0.0, spread)
    assert temperature.fit == "fitted"
    assert temperature.value == pytest.approx(factor * math.sqrt(1 + 0.346 * spread**2), rel=0.2)
    assert calibration_error(labels, expit(factor * true / temperature.value)) < 0.04


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.floats(-2, 2), st.sampled_from([0.0, 0.1]), st.data())
@settings(max_examples=50, deadline=None)
def test_temperature_by_counts_is_no_worse_than_any_on_a_grid(
    counts: list[int], shift: float, noise: float, data: Any
) -> None:
    z = np.array(data.draw(st.lists(st.floats(-10, 10), min_size=3 * len(counts), max_size=3 * len(counts))))
    sizes, m = np.full(len(counts), 3), np.array(counts)
    temperature = temperature_by_counts(z, sizes, m, shift, noise)
    assert temperature.nll <= temperature.nll_at_one
    observed = CountObservations(sizes, m, count_noise(noise))
    if temperature.fit == "fitted":
        assert temperature.nll == pytest.approx(
            float(-count_log_prob(z / temperature.value - shift, observed).mean(axis=-1))
        )
        # A floor between two valleys of a coarse grid may be missed; not the valley that the coarse grid saw.
        coarse = -count_log_prob(np.geomspace(0.01, 100, 13)[:, None] * z - shift, observed).mean(axis=-1)
        assert temperature.nll <= coarse.min() + 1e-9


def test_temperature_by_counts_is_a_minimum() -> None:
    rng = np.random.default_rng(7)
    z = rng.normal(0, 3, 600)
    sizes, counts = np.full(200, 3), rng.binomial(1, 0.7, 200)
    temperature = temperature_by_counts(z + np.tile([3.0, -3.0, -3.0], 200), sizes, counts, 0.3)
    observed = CountObservations(sizes, counts)
    best = minimize_scalar(
        lambda t: float(-count_log_prob((z + np.tile([3.0, -3.0, -3.0], 200)) / t - 0.3, observed).mean(axis=-1)),
        bounds=(COLDEST, HOTTEST),
        method="bounded",
        options={"xatol": 1e-9},
    )
    assert temperature.value == pytest.approx(best.x, rel=1e-3)
    assert temperature.nll == pytest.approx(best.fun, abs=1e-9)


def test_counts_that_determine_no_temperature_are_named() -> None:
    sizes, counts = np.array([3, 3]), np.array([1, 2])
    right = np.array([4.0, -3.0, -2.0, 1.0, 2.0, -5.0])
    assert temperature_by_counts(right, sizes, counts, 0.1)[:2] == (1.0, "undetermined")
    ones = np.ones(2, dtype=np.int64)
    assert temperature_by_counts(np.array([3.0, -2.0]), ones, np.array([0, 1]), 0.1)[:2] == (HOTTEST, "uninformative")
    assert temperature_by_counts(np.zeros(6), sizes, counts, 0.1)[:2] == (1.0, "undetermined")
    # Positives alone, some of which look negative: probabilities of ½ would be the best.
    assert temperature_by_counts(np.array([3.0, -2.0]), ones, ones, -2.0)[:2] == (1.0, "undetermined")
    assert temperature_by_counts(np.array([math.inf, -math.inf, 0.0, 1.0, 2.0, 3.0]), sizes, counts, 0.1).nll >= 0
    nothing = np.zeros(0, dtype=np.int64)
    assert temperature_by_counts(np.zeros(0), nothing, nothing, 0.1).fit == "no held-out data"


def test_the_likelihoods_beside_a_temperature_that_is_not_fitted_are_those_at_it_and_at_one() -> None:
    ones = np.ones(2, dtype=np.int64)
    for scores, sizes, counts in (
        (np.array([3.0, -2.0]), ones, np.array([0, 1])),
        (np.array([4.0, -3.0, -2.0, 1.0, 2.0, -5.0]), np.array([3, 3]), np.array([1, 2])),
    ):
        temperature = temperature_by_counts(scores, sizes, counts, 0.1)
        assert temperature.fit in ("uninformative", "undetermined")
        observed = CountObservations(sizes, counts)
        assert temperature.nll == pytest.approx(
            float(-count_log_prob(scores / temperature.value - 0.1, observed).mean(axis=-1)), rel=1e-12
        )
        assert temperature.nll_at_one == pytest.approx(
            float(-count_log_prob(scores - 0.1, observed).mean(axis=-1)), rel=1e-12
        )


def test_a_temperature_that_is_worse_than_none_is_not_used() -> None:
    def nll(beta: float) -> float:
        return 0.5 + (beta - 1.01) ** 2

    assert _no_worse_than_one(1.5, nll) == (1.0, "fitted", nll(1.0), nll(1.0))
    assert _no_worse_than_one(1.01, nll) == (1 / 1.01, "fitted", nll(1.01), nll(1.0))
    assert _no_worse_than_one(1.5, lambda beta: 0.5).value == 1.0
