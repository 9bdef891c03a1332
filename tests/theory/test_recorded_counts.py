"""Strata of recorded counts, and the true strata."""

from __future__ import annotations

from collections import Counter

import pytest
from design_strategies import strata
from hypothesis import given, settings
from hypothesis import strategies as st

from ntmp_cli.theory.recorded_counts import recorded_strata, true_strata
from ntmp_cli.theory.strata import Stratum


@settings(deadline=None)
@given(strata(), st.floats(0, 0.4))
def test_recording_keeps_the_number_of_tuples_and_of_positives_behind_them(
    true: tuple[Stratum, ...], noise: float
) -> None:
    seen = recorded_strata(true, noise)
    assert sum(s.tuples for s in seen) == pytest.approx(sum(s.tuples for s in true))
    positives = sum(s.instances * s.true_rate for s in seen)
    assert positives == pytest.approx(sum(s.instances * s.rate for s in true), abs=1e-6)


@settings(deadline=None)
@given(strata(), st.floats(0.01, 0.4))
def test_true_strata_are_recovered_from_recorded_ones(true: tuple[Stratum, ...], noise: float) -> None:
    seen = [Stratum(s.n, s.m, s.tuples) for s in recorded_strata(true, noise)]
    expected: Counter[tuple[int, int]] = Counter()
    for s in true:
        expected[s.n, s.m] += s.tuples
    recovered = {(s.n, s.m): s.tuples for s in true_strata(seen, noise)}
    for key in recovered.keys() | expected.keys():
        assert recovered.get(key, 0) == pytest.approx(expected.get(key, 0), abs=1e-4 * sum(expected.values()))


def test_without_noise_what_is_recorded_is_true() -> None:
    given_strata = (Stratum(3, 1, 10), Stratum(2, 0, 4))
    assert true_strata(given_strata, 0) == given_strata
