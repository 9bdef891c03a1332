"""What depends on the composition of a batch only is computed once per composition, and never confused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ntmp_cli.learning.caching import SIZE, cached_by_composition
from ntmp_cli.learning.risk import cached_coefficients, coefficients


def test_compositions_are_cached_and_not_confused() -> None:
    calls = []

    @cached_by_composition
    def compute(sizes, counts, *further):
        calls.append((sizes.tolist(), counts.tolist(), *further))
        return [calls[-1]]

    sizes, counts = np.array([3, 4]), np.array([1, 2])
    first = compute(sizes, counts, 5)
    assert compute(sizes.copy(), counts.astype(np.int32), 5) is first
    for other in ((np.array([4, 3]), counts, 5), (sizes, np.array([2, 1]), 5), (sizes, counts, 6)):
        assert compute(*other) == [(other[0].tolist(), other[1].tolist(), other[2])]
    assert len(calls) == 4


def test_the_cache_keeps_the_last_results_only() -> None:
    calls = []
    compute = cached_by_composition(lambda sizes, counts: calls.append(int(sizes[0])))
    for n in range(1, 2 * SIZE + 1):
        compute(np.array([n]), np.array([0]))
    compute(np.array([2 * SIZE]), np.array([0]))  # still there
    compute(np.array([1]), np.array([0]))  # long gone
    assert calls == [*range(1, 2 * SIZE + 1), 1]


def test_cached_coefficients_are_the_coefficients_in_single_precision() -> None:
    sizes, counts = np.array([3, 3, 5]), np.array([1, 2, 2])
    expected = coefficients(sizes, counts, 7, 0.4, "pooled")
    assert expected is not None
    plus, minus, gap = cached_coefficients(0.4, "pooled")(sizes, counts, 7)
    assert plus.dtype == minus.dtype == torch.float32
    assert plus.numpy() == pytest.approx(expected.plus, rel=1e-6)
    assert minus.numpy() == pytest.approx(expected.minus, rel=1e-6)
    assert gap == expected.gap
    assert cached_coefficients(1 / 3)(np.array([3]), np.array([1]), 7) is None
