"""The risk terms at a perfect classifier decide whether a clamp by source moves the optimum."""

from __future__ import annotations

import pytest

from ntmp_cli.theory.assessment import source_terms
from ntmp_cli.theory.strata import Design, Stratum


@pytest.mark.parametrize(
    ("alpha", "prior", "negative"),
    [((3, 1), 0.5, "tuples"), ((3, 1), 0.2, "unlabeled"), ((3, 2), 0.5, "tuples"), ((3, 2), 0.8, "unlabeled")],
)
def test_source_terms_at_a_perfect_classifier_are_those_of_the_papers_formulas(
    alpha: tuple[int, int], prior: float, negative: str
) -> None:
    n, m = alpha
    a = m / n
    # ℓ(g,+1) is 1 on negatives, ℓ(g,−1) is 1 on positives.
    tuples = prior * (1 - prior) * (-(1 - a) + a) / (prior - a)
    unlabeled = (prior * (1 - a) * (1 - prior) - (1 - prior) * a * prior) / (prior - a)
    terms = source_terms(Design((Stratum(n, m, 100),), 170, prior).stratified())
    assert terms == pytest.approx((tuples, unlabeled))
    assert ("tuples" if terms[0] < 0 else "unlabeled") == negative


def test_source_terms_are_nonnegative_at_a_rate_of_one_half() -> None:
    assert source_terms(Design((Stratum(4, 2, 50),), 70, 0.3).stratified()) == pytest.approx((0, 0), abs=1e-12)
