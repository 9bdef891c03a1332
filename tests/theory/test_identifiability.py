"""What tuples identify, checked against enumerated tuple densities and numpy's linear algebra."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from design_strategies import designs
from hypothesis import assume, given, settings
from numpy.typing import NDArray

from ntmp_cli.theory.identifiability import (
    class_names,
    condition_number,
    count_identifies,
    count_signal,
    is_mirror_symmetric,
    prior_verdict,
)
from ntmp_cli.theory.strata import Design, Groups, Stratum


def design_of(specs: list[tuple[int, int]], prior: float) -> Design:
    return Design(tuple(Stratum(n, m, 100) for n, m in specs), 300, prior)


def tuple_density(n: int, m: int, plus: NDArray[np.float64], minus: NDArray[np.float64]) -> NDArray[np.float64]:
    """The paper's lemma, by enumeration: the probability of every n-tuple of values."""
    choices = list(combinations(range(n), m))
    return np.array(
        [
            np.mean([np.prod([(plus if i in chosen else minus)[x] for i, x in enumerate(xs)]) for chosen in choices])
            for xs in product(range(len(plus)), repeat=n)
        ]
    )


PLUS, MINUS = np.array([0.5, 0.3, 0.2]), np.array([0.1, 0.3, 0.6])


@pytest.mark.parametrize(("n", "m"), [(n, m) for n in range(1, 6) for m in range(n + 1)])
def test_exchanging_the_classes_leaves_tuples_as_they_are_only_at_n_equal_2m(n: int, m: int) -> None:
    same = np.allclose(tuple_density(n, m, PLUS, MINUS), tuple_density(n, m, MINUS, PLUS), atol=1e-12)
    assert same == is_mirror_symmetric([Stratum(n, m, 1)])


@pytest.mark.parametrize(("n", "m"), [(n, m) for n in range(1, 6) for m in range(n + 1)])
def test_counts_of_one_rate_tell_the_classes_apart_only_within_mixed_tuples(n: int, m: int) -> None:
    """Other classes with the same mixture: the flattened instances cannot tell them apart, mixed tuples can."""
    alpha = m / n
    delta = 0.5 * (PLUS - MINUS)
    mixture = alpha * PLUS + (1 - alpha) * MINUS
    other_plus, other_minus = mixture + (1 - alpha) * delta, mixture - alpha * delta
    identified = not np.allclose(
        tuple_density(n, m, PLUS, MINUS), tuple_density(n, m, other_plus, other_minus), atol=1e-12
    )
    assert identified == (count_signal([Stratum(n, m, 1)]) == "within tuples")


@pytest.mark.parametrize(("n", "m"), [(n, m) for n in range(3, 7) for m in range(n + 1)])
def test_the_third_order_of_labels_is_the_formula(n: int, m: int) -> None:
    """At equal rates it alone names the classes, and it is 0 at a rate of one half."""
    a = m / n
    labels = np.array([[i in chosen for i in range(n)] for chosen in combinations(range(n), m)], dtype=float)
    away = labels - a
    third = float(np.mean(away[:, 0] * away[:, 1] * away[:, 2]))
    assert third == pytest.approx(2 * a * (1 - a) * (1 - 2 * a) / ((n - 1) * (n - 2)), abs=1e-12)


@pytest.mark.parametrize(
    ("specs", "prior", "signal", "names", "counts", "unknown_prior"),
    [
        ([(3, 1)], 0.5, "within tuples", "first order", True, "identified"),
        ([(5, 1)], 0.2, "within tuples", "third order", True, "identified"),  # α = π: the risk is not, counts are
        ([(2, 1)], 0.3, "within tuples", "first order", True, "up to exchange"),
        ([(2, 1), (4, 2)], 0.5, "within tuples", "none", False, "up to exchange"),
        ([(3, 3)], 0.5, "none", "first order", False, "not identified"),  # positives and U: only the risk learns
        ([(3, 3), (3, 0)], 0.5, "between strata", "first order", True, "identified"),
        ([(3, 1), (3, 2)], 0.5, "both", "first order", True, "identified"),
        ([(2, 1), (4, 2), (6, 3)], 0.5, "within tuples", "none", False, "up to exchange"),
        ([(3, 1), (6, 2)], 1 / 3, "within tuples", "third order", True, "identified"),
    ],
)
def test_what_counts_can_tell(
    specs: list[tuple[int, int]], prior: float, signal: str, names: str, counts: bool, unknown_prior: str
) -> None:
    design = design_of(specs, prior)
    assert count_signal(design.strata) == signal
    assert class_names(design) == names
    assert count_identifies(design) is counts
    assert prior_verdict(design.strata) == unknown_prior


@settings(deadline=None)
@given(designs())
def test_the_condition_number_is_numpys(design: Design) -> None:
    groups = design.stratified()
    assume(groups.spread > 1e-6)
    root = np.sqrt(groups.sizes)[:, None]
    expected = np.linalg.cond(np.stack([groups.rates, 1 - groups.rates], axis=1) * root)
    assert condition_number(groups) == pytest.approx(expected, rel=1e-6)


def test_with_two_even_groups_it_is_that_of_the_papers_system() -> None:
    paper = np.linalg.cond(np.array([[1 / 3, 2 / 3], [0.6, 0.4]]))
    assert condition_number(Groups(np.array([50.0, 50.0]), np.array([1 / 3, 0.6]))) == pytest.approx(paper)


def test_a_singular_system_has_no_condition_number() -> None:
    assert condition_number(design_of([(3, 1), (6, 2)], 1 / 3).stratified()) is None
