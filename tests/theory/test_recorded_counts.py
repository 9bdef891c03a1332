"""Recorded and true counts, held against the program that records them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from some_designs import strata

from ntmp_cli.data.drawing import record_counts
from ntmp_cli.theory.counts import noise_matrix, recorded_strata, true_strata
from ntmp_cli.theory.strata import Stratum


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_noise_matrix_is_what_is_recorded(n: int) -> None:
    rng = np.random.default_rng(0)
    for m in range(n + 1):
        size = 40_000
        seen = record_counts(np.full(size, m), np.full(size, n), 0.3, rng)
        assert np.bincount(seen, minlength=n + 1) / size == pytest.approx(noise_matrix(n, 0.3)[:, m], abs=0.012)


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
def test_true_strata_are_found_again_behind_recorded_ones(true: tuple[Stratum, ...], noise: float) -> None:
    seen = [Stratum(s.n, s.m, s.tuples) for s in recorded_strata(true, noise)]
    expected: Counter[tuple[int, int]] = Counter()
    for s in true:
        expected[s.n, s.m] += s.tuples
    found = {(s.n, s.m): s.tuples for s in true_strata(seen, noise)}
    for key in found.keys() | expected.keys():
        assert found.get(key, 0) == pytest.approx(expected.get(key, 0), abs=1e-4 * sum(expected.values()))


def test_without_noise_what_is_recorded_is_true() -> None:
    given_strata = (Stratum(3, 1, 10), Stratum(2, 0, 4))
    assert true_strata(given_strata, 0) == given_strata
