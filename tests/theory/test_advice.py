"""Advice is verified by following it."""

from __future__ import annotations

import numpy as np
from design_strategies import designs
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ntmp_cli.theory.advice import additions, priors_to_avoid, tuples_to_add
from ntmp_cli.theory.strata import Design, Stratum

MARGINS = st.floats(0.01, 0.5)


def gap_with(design: Design, n: int, m: int, tuples: float) -> float:
    return design.with_added(Stratum(n, m, tuples)).stratified().gap if tuples else design.stratified().gap


@settings(deadline=None, max_examples=200)
@given(designs(), st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), MARGINS)
def test_the_advised_number_of_tuples_reaches_the_margin_and_one_less_does_not(
    design: Design, kind: tuple[int, int], margin: float
) -> None:
    needed = tuples_to_add(design, *kind, margin)
    if needed is None:
        assert all(gap_with(design, *kind, 10**k) < margin * (1 + 1e-9) for k in range(10))
        return
    assert gap_with(design, *kind, needed) >= margin * (1 - 1e-12)
    if needed > 1:
        assert gap_with(design, *kind, needed - 1) < margin * (1 + 1e-9)


@settings(deadline=None)
@given(designs(), MARGINS)
def test_every_addition_that_is_offered_reaches_the_margin(design: Design, margin: float) -> None:
    offered = additions(design, margin)
    assert [s.instances for s in offered] == sorted(s.instances for s in offered)
    for s in offered:
        assert design.with_added(s).stratified().gap >= margin * (1 - 1e-12)
        assert s.n in {stratum.n for stratum in design.strata}


def test_mixed_tuples_are_offered_beside_those_of_one_class() -> None:
    offered = additions(Design((Stratum(5, 2, 1000),), 5000, 0.4), 0.05)
    assert {s.m for s in offered} & {0, 5}
    assert {s.m for s in offered} & {1, 2, 3, 4}
    assert 2 not in {s.m for s in offered}  # more of the same rate never helps


@settings(deadline=None)
@given(designs(), MARGINS)
def test_pools_inside_the_interval_break_the_margin_and_those_outside_keep_it(design: Design, margin: float) -> None:
    avoid = priors_to_avoid(design, margin)
    for prior in np.linspace(0.005, 0.995, 67):
        gap = design.at(float(prior)).stratified().gap
        assume(abs(gap - margin) > 1e-9)
        inside = avoid is not None and avoid[0] < prior < avoid[1]
        assert (gap < margin) == inside
