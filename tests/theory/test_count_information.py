"""What recorded counts tell about a classifier: against closed forms, enumeration and the bounds that must hold."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit

from ntmp_cli.counting.laws import noise_laws, parse_law
from ntmp_cli.counting.strata import strata_of
from ntmp_cli.data.recording import Recording
from ntmp_cli.theory.count_information import (
    count_information,
    information,
    missing_information,
    stored_information,
)
from ntmp_cli.theory.strata import Stratum

RATE = 0.3
LAWS = (
    "off-by-one:0.2",
    "gaussian:1.5",
    "laplace:1",
    "geometric:0.7",
    "detect:0.9,0.8",
    "round:3",
    "suppress:3",
    "pooled-test:0.9,0.95",
)


def ratios(tuples: int, n: int) -> np.ndarray:
    return np.random.default_rng(n).normal(-0.5, 1.5, (tuples, n))


def test_one_member_with_errors_is_a_randomised_response() -> None:
    """P(1) = SE·p + (1 − SP)(1 − p), so that its slope is that of p times SE + SP − 1."""
    s, (se, sp) = ratios(50, 1), (0.9, 0.8)
    found = information(s, RATE, Recording.of("exact", f"detect:{se},{sp}").probabilities(1))
    p = expit(s + logit(RATE))
    seen = se * p + (1 - sp) * (1 - p)
    weight = ((se + sp - 1) * p * (1 - p)) ** 2 / (seen * (1 - seen))
    design = np.concatenate([s, np.ones_like(s)], axis=1)
    assert found == pytest.approx(np.einsum("ti,tj,t->ij", design, design, weight[:, 0]) / len(s), rel=1e-6)


@pytest.mark.parametrize("kind", ["exact", "at-least-one", "range:1", "percent"])
def test_information_is_that_of_all_labels_by_enumeration(kind: str) -> None:
    s, n = ratios(3, 4), 4
    records = Recording.of(kind, "exact").probabilities(n)
    p = expit(s + logit(RATE))
    expected = np.zeros((2, 2))
    for t in range(len(s)):
        probability, slopes = np.zeros(len(records)), np.zeros((len(records), 2))
        for labels in product((0, 1), repeat=n):
            y = np.array(labels)
            joint = np.prod(np.where(y == 1, p[t], 1 - p[t]))
            gradient = joint * np.array([(y - p[t]) @ s[t], (y - p[t]).sum()])
            probability += records[:, y.sum()] * joint
            slopes += records[:, y.sum(), None] * gradient
        seen = probability > 0
        expected += np.einsum("ri,rj,r->ij", slopes[seen], slopes[seen], 1 / probability[seen]) / len(s)
    assert information(s, RATE, records) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("n", [1, 5, 12])
@pytest.mark.parametrize("law", LAWS)
def test_everything_that_may_be_recorded_has_probability_one(law: str, n: int) -> None:
    assert parse_law(law).record_probabilities(n).sum(axis=0) == pytest.approx(np.ones(n + 1), abs=1e-8)


def test_every_law_is_among_them() -> None:
    assert {law.partition(":")[0] for law in LAWS} | {"exact"} == set(noise_laws.names())


@pytest.mark.parametrize("n", [1, 6, 12])
@pytest.mark.parametrize("kind", ["at-least-one", "range:1", "range:3", "percent"])
def test_records_of_a_simulation_have_the_same_probabilities(kind: str, n: int) -> None:
    records = Recording.of(kind, "exact").probabilities(n)
    assert records.sum(axis=0) == pytest.approx(np.ones(n + 1))
    # Equal records have equal likelihoods of all counts: as many rows as there are different ranges.
    counts = np.repeat(np.arange(n + 1), 200)
    sampled = Recording.of(kind, "exact").record(counts, np.full(len(counts), n), np.random.default_rng(0))
    assert len(np.unique(records > 0, axis=0)) == len(np.unique(sampled))


@pytest.mark.parametrize("law", LAWS)
def test_no_record_tells_more_than_the_count(law: str) -> None:
    s = ratios(40, 10)
    left = information(s, RATE, np.eye(11)) - information(s, RATE, parse_law(law).record_probabilities(10))
    assert np.linalg.eigvalsh(left).min() > -1e-8


def test_noise_on_counts_of_many_members_costs_as_on_a_normal_count() -> None:
    """The mean of a normal count is known v / (v + σ²) as well; its variance tells little of so many members."""
    s = ratios(30, 300)
    variance = (expit(s + logit(RATE)) * expit(-s - logit(RATE))).sum(axis=1).mean()
    exact, noisy = (
        information(s, RATE, records) for records in (np.eye(301), parse_law("gaussian:8").record_probabilities(300))
    )
    assert noisy[1, 1] / exact[1, 1] == pytest.approx(variance / (variance + 64), rel=0.02)


def test_shares_of_a_design_are_ordered() -> None:
    strata = [Stratum(8, 1, 500), Stratum(8, 3, 300), Stratum(20, 5, 200)]

    def share(kind: str, law: str = "exact") -> float:
        known = count_information(strata, Recording.of(kind, law).probabilities, np.random.default_rng(0))
        assert 0 < known.exact < known.labels
        return known.recorded / known.exact

    assert share("exact") == pytest.approx(1)
    assert share("exact", "gaussian:0.05") == pytest.approx(1, abs=1e-3)
    narrow, wide, one = share("range:1"), share("range:4"), share("at-least-one")
    assert 1 > narrow > wide > 0
    assert 0 < one < 0.6
    assert 1 > share("exact", "gaussian:1") > share("exact", "gaussian:4") > 0


# Stored records -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "law"),
    [
        ("at-least-one", "exact"),
        ("range:1", "exact"),
        ("range:4", "exact"),
        ("percent", "exact"),
        ("exact", "round:5"),
        ("exact", "suppress:3"),
        ("exact", "off-by-one:0.2"),
    ],
)
@pytest.mark.parametrize("n", [6, 40])
def test_stored_records_cost_what_their_simulation_says(kind: str, law: str, n: int) -> None:
    """Of a stored range only the range is known; the share is that of all that could have been recorded."""
    recording, rng = Recording.of(kind, law), np.random.default_rng(0)
    sizes, true = np.full(600, n), rng.binomial(n, 3 / n if kind == "at-least-one" else RATE, 600)
    strata, stored = (strata_of(sizes, counts) for counts in (true, recording.record(true, sizes, rng)))
    expected = count_information([Stratum(*row[:3]) for row in strata], recording.probabilities, rng)
    found = stored_information([Stratum(*row[:3]) for row in stored], [row.counts for row in stored], rng)
    assert found.recorded / found.exact == pytest.approx(expected.recorded / expected.exact, abs=0.04)


@pytest.mark.parametrize(("low", "high"), [(0, 5), (1, 5), (2, 3), (4, 4)])
def test_a_range_leaves_out_the_variance_of_the_gradient_within_it(low: int, high: int) -> None:
    """By enumeration of all labels: the gradient of log P(k) is the mean of Σ (y − p)(s, 1) over labels of that sum."""
    s, n = ratios(2, 5), 5
    inside = (low <= np.arange(n + 1)) & (np.arange(n + 1) <= high)
    p, expected = expit(s + logit(RATE)), np.zeros((2, 2))
    for t in range(len(s)):
        law, gradients = np.zeros(n + 1), np.zeros((n + 1, 2))
        for labels in product((0, 1), repeat=n):
            y = np.array(labels)
            joint = np.prod(np.where(y == 1, p[t], 1 - p[t]))
            law[y.sum()] += joint
            gradients[y.sum()] += joint * np.array([(y - p[t]) @ s[t], (y - p[t]).sum()])
        gradients /= law[:, None]
        expected += np.cov(gradients.T, aweights=law * inside, ddof=0) / len(s)
    assert missing_information(s, RATE, inside.astype(float)) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_a_range_of_everything_has_no_information_and_one_of_a_long_tuple_some() -> None:
    def share(n: int, *texts: str) -> float:
        strata = [Stratum(n, 0.3 * n, 10) for _ in texts]
        known = stored_information(strata, texts, np.random.default_rng(0))
        return known.recorded / known.exact

    assert share(20, "0-20") == pytest.approx(0, abs=1e-9)
    assert share(20, "0-20", "6") == pytest.approx(0.5, abs=0.1)
    assert share(1000, "280-320") == pytest.approx(share(16_000, "4720-4880"), abs=0.05)  # as many deviations


def test_many_strata_are_sampled() -> None:
    """In well under the time that all of them take."""
    strata = [Stratum(n, 0.3 * n, 2) for n in range(100, 900)]
    few = strata[::40]
    found, expected = (
        stored_information(rows, [f"{0.25 * s.n:.0f}-{0.35 * s.n:.0f}" for s in rows], np.random.default_rng(0))
        for rows in (strata, few)
    )
    assert found.recorded / found.exact == pytest.approx(expected.recorded / expected.exact, abs=0.07)
