"""Hypothesis strategies of designs."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from ntmp_cli.theory.strata import Design, Groups, Stratum

PRIORS = st.integers(1, 99).map(lambda percent: percent / 100)


@st.composite
def strata(draw: st.DrawFn, most: int = 5) -> tuple[Stratum, ...]:
    tuples_by_count: dict[tuple[int, int], int] = {}
    for _ in range(draw(st.integers(1, most))):
        n = draw(st.integers(1, 8))
        tuples_by_count[n, draw(st.integers(0, n))] = draw(st.integers(1, 3000))
    return tuple(Stratum(n, m, k) for (n, m), k in tuples_by_count.items())


@st.composite
def designs(draw: st.DrawFn) -> Design:
    return Design(draw(strata()), draw(st.integers(1, 9000)), draw(PRIORS))


def fitted_class_means(groups: Groups, group_means: NDArray[np.float64]) -> NDArray[np.float64]:
    """(E₊, E₋) by weighted least squares, by numpy: an independent check of the weights."""
    root = np.sqrt(groups.sizes)[:, None]
    system = np.stack([groups.rates, 1 - groups.rates], axis=1)
    solved: NDArray[np.float64] = np.linalg.lstsq(system * root, group_means * root, rcond=None)[0]
    return solved
