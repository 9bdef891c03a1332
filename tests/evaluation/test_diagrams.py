"""What a report shows of one run: decisions, scores, bins of equal mass, the end of the warm-up."""

from __future__ import annotations

import numpy as np
import pytest

from ntmp_cli.evaluation.calibration import DIAGRAM_BINS, equal_mass_bins, equal_mass_calibration_error
from ntmp_cli.evaluation.diagrams import HISTOGRAM_BINS, decisions_of, reliability_of, warmup_end
from ntmp_cli.evaluation.intervals import wilson_interval
from ntmp_cli.evaluation.metrics import Scored


def scored(labels: list[int], scores: list[float]) -> Scored:
    return Scored(np.array(labels, dtype=bool), np.array(scores, dtype=float), 0.5)


def test_decisions_count_every_instance_once():
    decisions = decisions_of(scored([1, 1, 1, 0, 0, 0], [2.0, 0.5, -1.0, 3.0, -0.5, -2.0]))
    assert [decisions[name] for name in ("tp", "fp", "fn", "tn")] == [2, 1, 1, 2]
    histogram = decisions["histogram"]
    assert len(histogram["edges"]) == HISTOGRAM_BINS + 1
    assert (sum(histogram["positives"]), sum(histogram["negatives"])) == (3, 3)


@pytest.mark.parametrize("scores", [[np.inf, -np.inf, 0.0], [0.0, 0.0, 0.0], [5.0, 6.0, 7.0], [np.inf, np.inf, np.inf]])
def test_a_histogram_holds_all_scores_and_its_range_includes_the_threshold(scores):
    histogram = decisions_of(scored([1, 0, 1], scores))["histogram"]
    edges = histogram["edges"]
    assert np.isfinite(edges).all()
    assert np.all(np.diff(edges) > 0)
    assert edges[0] <= 0 <= edges[-1]
    assert sum(histogram["positives"]) + sum(histogram["negatives"]) == 3


def test_bins_of_equal_mass_are_means_of_equal_numbers_of_instances():
    rng = np.random.default_rng(0)
    p, labels = rng.permutation(np.linspace(0.01, 0.99, 4 * DIAGRAM_BINS)), rng.random(4 * DIAGRAM_BINS) < 0.4
    bins, order = equal_mass_bins(labels, p), np.argsort(p)
    assert bins.confidence == pytest.approx(p[order].reshape(DIAGRAM_BINS, 4).mean(axis=1))
    assert bins.frequency == pytest.approx(labels[order].reshape(DIAGRAM_BINS, 4).mean(axis=1))
    assert bins.instances == pytest.approx(np.full(DIAGRAM_BINS, 4.0))


def test_bins_of_equal_mass_give_the_calibration_error_over_as_many_bins():
    rng = np.random.default_rng(1)
    p, weights = rng.random(237).round(1), rng.random(237)  # with ties
    labels = rng.random(237) < p
    bins = equal_mass_bins(labels, p, weights)
    error = np.abs(bins.frequency - bins.confidence).mean()
    assert error == pytest.approx(equal_mass_calibration_error(labels, p, weights, DIAGRAM_BINS))


def test_weights_lessen_the_effective_number_of_instances():
    p, labels = np.linspace(0, 1, 200), np.arange(200) % 2 == 0
    uneven = np.where(labels, 9.0, 1.0)
    even, reweighted = equal_mass_bins(labels, p), equal_mass_bins(labels, p, uneven)
    assert even.instances == pytest.approx(np.full(DIAGRAM_BINS, 20.0))
    assert reweighted.instances == pytest.approx(np.full(DIAGRAM_BINS, 20 * 25 / 41), rel=0.1)


def test_every_diagram_has_both_kinds_of_bins():
    diagrams = list(reliability_of(scored([1, 0, 1, 0], [1.0, -1.0, -0.2, 0.3])))
    assert [diagram["weighting"] for diagram in diagrams] == ["as it is", "at prior"]
    for diagram in diagrams:
        assert {len(values) for values in diagram["equal_mass"].values()} == {DIAGRAM_BINS}


def test_the_interval_of_a_share_is_wilsons():
    """The textbook's values: 0 of 10, and 50 of 100."""
    assert wilson_interval(0.0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)
    assert wilson_interval(0.5, 100) == pytest.approx((0.40383, 0.59617), abs=1e-5)
    assert wilson_interval(1.0, 10) == pytest.approx((0.72247, 1.0), abs=1e-5)


def test_the_interval_of_a_share_covers_it():
    rng = np.random.default_rng(2)
    limits = [wilson_interval(hits / 200, 200) for hits in rng.binomial(200, 0.93, 2000).tolist()]
    assert np.mean([low <= 0.93 <= high for low, high in limits]) == pytest.approx(0.95, abs=0.02)


def epochs(*terms: float, name: str = "risk_terms") -> list[dict]:
    values = [{"positive": term, "negative": 0.0} if name == "risk_terms" else term for term in terms]
    return [{"epoch": epoch, "nll": 1.0, name: value} for epoch, value in enumerate(values, start=1)]


def test_the_warm_up_ends_with_the_last_epoch_that_has_a_term_of_it():
    assert warmup_end(epochs(0.3, -0.1, 0.0, 0.0)) == 2
    assert warmup_end(epochs(0.3, 0.2, 0.0, name="closed_form")) == 2


def test_without_a_warm_up_that_ended_there_is_no_end():
    assert warmup_end(epochs(0.0, 0.0)) is None
    assert warmup_end(epochs(0.3, 0.2)) is None
    assert (
        warmup_end([{"epoch": 1, "risk_terms": {"positive": 0.3}}, {"epoch": 2, "risk_terms": {"positive": 0}}]) is None
    )
    assert warmup_end([]) is None
