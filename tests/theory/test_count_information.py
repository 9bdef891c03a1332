"""What recorded counts tell about a classifier: against closed forms, enumeration and the bounds that must hold."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.special import expit, logit

from ntmp_cli.counting.laws import noise_laws, parse_law
from ntmp_cli.data.recording import Recording
from ntmp_cli.theory.count_information import count_information, information
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
