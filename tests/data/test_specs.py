from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from ntmp_cli.data.specs import TupleSpec, expected_strata, mean_length, mean_rate, parse_spec, sample_sizes
from ntmp_cli.errors import UsageError

GRAMMAR = "A spec is N:M, N:M1-M2 or N:~P, where N may be a range N1-N2; a mixture adds weights, as in 3:1@0.7."

FORMS = {
    "3:1": TupleSpec(3, 3, 1, 1),
    "1:0": TupleSpec(1, 1, 0, 0),
    "2:2": TupleSpec(2, 2, 2, 2),
    "5:1-3": TupleSpec(5, 5, 1, 3),
    "4:0-4": TupleSpec(4, 4, 0, 4),
    "5:2-2": TupleSpec(5, 5, 2, 2),
    "5:~0.4": TupleSpec(5, 5, rate=0.4),
    "5:~.25": TupleSpec(5, 5, rate=0.25),
    "5:~0": TupleSpec(5, 5, rate=0.0),
    "5:~1": TupleSpec(5, 5, rate=1.0),
    "3-7:1": TupleSpec(3, 7, 1, 1),
    "3-7:1-3": TupleSpec(3, 7, 1, 3),
    "3-7:~0.5": TupleSpec(3, 7, rate=0.5),
    "3:1@0.7": TupleSpec(3, 3, 1, 1, weight=0.7),
    "3:1@2": TupleSpec(3, 3, 1, 1, weight=2.0),
    "3-7:1-3@.5": TupleSpec(3, 7, 1, 3, weight=0.5),
    "10-12:~0.125@3.5": TupleSpec(10, 12, rate=0.125, weight=3.5),
}


@pytest.mark.parametrize("text", FORMS)
def test_each_form_of_the_grammar_is_read(text: str) -> None:
    assert parse_spec(text) == FORMS[text]


@pytest.mark.parametrize("text", ["  3:1", "3:1\n", "\t3:1  "])
def test_white_space_around_a_spec_is_ignored(text: str) -> None:
    assert parse_spec(text) == TupleSpec(3, 3, 1, 1)


@pytest.mark.parametrize(
    "text",
    [
        *["", " ", "3", "3:", ":1", "3:1:1", "3;1", "a:b", "three:one"],
        *["3 : 1", "3: 1", "3:1 @0.7", "3:1@ 0.7"],
        *["-3:1", "3:-1", "3.5:1", "3:1.5", "+3:1"],
        *["3-:1", "-7:1", "3-5-7:1", "3:1-", "3:-2", "3:1-2-3"],
        *["3:~", "3:~-0.1", "3:~1.", "3:~1e-1", "3:~a", "3:~0.2-0.4", "3:1~0.5"],
        *["3:1@", "3:1@-1", "3:1@a", "3:1@1@2", "@1", "3:1@1e3", "3:1@inf", "3:1@nan"],
    ],
)
def test_a_spec_outside_the_grammar_is_quoted_and_refused(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_spec(text)
    assert error.value.message == f"tuple spec '{text}': not understood"
    assert error.value.hint == GRAMMAR


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("0:0", "lengths must be at least 1, in ascending order", GRAMMAR),
        ("0-3:0", "lengths must be at least 1, in ascending order", GRAMMAR),
        ("5-3:1", "lengths must be at least 1, in ascending order", GRAMMAR),
        ("3-0:1", "lengths must be at least 1, in ascending order", GRAMMAR),
        ("3:1@0", "the weight must be above 0 and finite", GRAMMAR),
        ("3:1@0.0", "the weight must be above 0 and finite", GRAMMAR),
        ("3:~1.5", "the rate 1.5 is not in [0, 1]", GRAMMAR),
        ("3:~2", "the rate 2.0 is not in [0, 1]", GRAMMAR),
        ("5:3-1", "counts must be in ascending order", GRAMMAR),
        ("3:4", "m = 4 positives do not fit into a tuple of n = 3", "Choose m between 0 and n."),
        ("5:3-6", "m = 6 positives do not fit into a tuple of n = 5", "Choose m between 0 and n."),
        ("3-7:5", "m = 5 positives do not fit into a tuple of n = 3", "Choose m between 0 and n."),
    ],
)
def test_an_impossible_spec_is_refused_with_its_numbers(text: str, problem: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_spec(text)
    assert error.value.message == f"tuple spec '{text}': {problem}"
    assert error.value.hint == hint


def test_a_weight_too_large_for_a_number_is_refused() -> None:
    with pytest.raises(UsageError, match="the weight must be above 0 and finite"):
        parse_spec("3:1@" + "9" * 400)


@pytest.mark.parametrize(
    ("text", "fixed", "most_positives", "most_negatives"),
    [
        ("3:1", (3, 1), 1, 2),
        ("5:2-2", (5, 2), 2, 3),
        ("5:1-3", None, 3, 4),
        ("3-7:2", None, 2, 5),
        ("3-7:~0.5", None, 7, 7),
        ("3-7:~0", None, 0, 7),
        ("3-7:~1", None, 7, 0),
    ],
)
def test_a_spec_knows_the_most_that_one_tuple_can_need(
    text: str, fixed: tuple[int, int] | None, most_positives: int, most_negatives: int
) -> None:
    spec = parse_spec(text)
    assert (spec.fixed, spec.most_positives, spec.most_negatives) == (fixed, most_positives, most_negatives)


@st.composite
def spec_texts(draw: st.DrawFn) -> str:
    n_low = draw(st.integers(1, 6))
    n_high = draw(st.integers(n_low, 9))
    length = f"{n_low}" if n_high == n_low else f"{n_low}-{n_high}"
    m_high = draw(st.integers(0, n_low))
    m_low = draw(st.integers(0, m_high))
    rate = draw(st.sampled_from(["0", "0.1", ".5", "0.99", "1"]))
    count = draw(st.sampled_from([f"{m_high}", f"{m_low}-{m_high}", f"~{rate}"]))
    weight = draw(st.sampled_from(["", "@0.01", "@1", "@30"]))
    return f"{length}:{count}{weight}"


def support(text: str) -> set[tuple[int, int]]:
    """All (n, m) that a spec allows, read from its text without the parser."""
    length, _, count = text.partition("@")[0].partition(":")
    n_low, _, n_high = length.partition("-")
    pairs = set()
    for n in range(int(n_low), int(n_high or n_low) + 1):
        if count.startswith("~"):
            rate = float(count[1:])
            low, high = (n if rate == 1 else 0), (0 if rate == 0 else n)
        else:
            m_low, _, m_high = count.partition("-")
            low, high = int(m_low), int(m_high or m_low)
        pairs |= {(n, m) for m in range(low, high + 1)}
    return pairs


@settings(deadline=None, max_examples=80)
@given(st.lists(spec_texts(), min_size=1, max_size=4), st.integers(1, 200), st.integers(0, 2**32))
def test_sampled_lengths_and_counts_lie_in_the_range_of_a_spec(texts: list[str], size: int, seed: int) -> None:
    n, m = sample_sizes([parse_spec(t) for t in texts], size, np.random.default_rng(seed))
    assert len(n) == len(m) == size
    assert set(zip(n.tolist(), m.tolist(), strict=True)) <= set().union(*map(support, texts))


def probability(text: str, n: int, m: int) -> float:
    """P(n, m) of one spec of the tests below."""
    if (n, m) not in support(text):
        return 0.0
    lengths = len({pair[0] for pair in support(text)})
    _, _, count = text.partition("@")[0].partition(":")
    if count.startswith("~"):
        return float(stats.binom.pmf(m, n, float(count[1:]))) / lengths
    m_low, _, m_high = count.partition("-")
    return 1 / lengths / (int(m_high or m_low) - int(m_low) + 1)


@pytest.mark.parametrize(
    "texts",
    [
        ["3:1@0.7", "5:2@0.2", "4:4@0.1"],
        ["3:1@7", "5:2@3"],
        ["3:1", "3:2"],
        ["5:0-3"],
        ["2-6:1"],
        ["3-5:0-2"],
        ["6:~0.3"],
        ["2-4:~0.6"],
        ["2-3:0-1@0.25", "3-5:~0.4@0.75"],
    ],
    ids="+".join,
)
def test_frequencies_follow_weights_ranges_and_the_binomial(texts: list[str]) -> None:
    size = 20_000
    n, m = sample_sizes([parse_spec(t) for t in texts], size, np.random.default_rng(11))
    weights = [float(t.partition("@")[2] or 1) for t in texts]
    cells = sorted(set().union(*map(support, texts)))
    expected = np.array(
        [sum(w * probability(t, *cell) for t, w in zip(texts, weights, strict=True)) / sum(weights) for cell in cells]
    )
    observed = np.array([np.count_nonzero((n == a) & (m == b)) for a, b in cells])
    assert observed.sum() == size
    assert expected.sum() == pytest.approx(1)
    keep = expected * size >= 5
    assert keep.sum() >= 2
    rest = ~keep
    if rest.any():
        observed = np.append(observed[keep], observed[rest].sum())
        expected = np.append(expected[keep], expected[rest].sum())
    assert stats.chisquare(observed, expected * size).pvalue > 1e-3


def test_length_and_count_are_independent() -> None:
    n, m = sample_sizes([parse_spec("3-5:0-2")], 6000, np.random.default_rng(3))
    table = np.array([[np.count_nonzero((n == a) & (m == b)) for b in range(3)] for a in (3, 4, 5)])
    assert stats.chi2_contingency(table).pvalue > 1e-3


def test_mean_length_is_the_weighted_mean_over_all_lengths() -> None:
    texts = ["3:1@0.5", "4-9:2@1.5", "10-11:~0.3@2"]
    lengths = [[3], list(range(4, 10)), [10, 11]]
    weights = [0.5, 1.5, 2.0]
    expected = sum(w * np.mean(ns) for w, ns in zip(weights, lengths, strict=True)) / sum(weights)
    assert mean_length([parse_spec(t) for t in texts]) == pytest.approx(expected, rel=1e-14)


def test_the_same_generator_state_gives_the_same_sizes() -> None:
    specs = [parse_spec("2-6:~0.4"), parse_spec("5:1-3@2")]
    first, second = (sample_sizes(specs, 500, np.random.default_rng(5)) for _ in range(2))
    other = sample_sizes(specs, 500, np.random.default_rng(6))
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_specs_of_the_frequency_test_are_enumerated_completely() -> None:
    assert support("3-4:0-1@2") == set(product((3, 4), (0, 1)))
    assert support("2:~0.5") == {(2, 0), (2, 1), (2, 2)}


@pytest.mark.parametrize(
    "texts", [["3:1"], ["3:1@0.7", "3:2@0.3"], ["5:1-3"], ["2-4:~0.4", "3:1@2"], ["1-3:0-1@0.5", "6:~1@0.25"]]
)
def test_expected_strata_are_the_mean_of_sampled_ones(texts: list[str]) -> None:
    specs, size = [parse_spec(text) for text in texts], 200_000
    expected = expected_strata(specs, size)
    assert sum(expected.values()) == pytest.approx(size)
    n, m = sample_sizes(specs, size, np.random.default_rng(0))
    sampled = dict(zip(*np.unique(n * 100 + m, return_counts=True), strict=True))
    assert sampled.keys() == {a * 100 + b for a, b in expected}
    for (a, b), mean in expected.items():
        assert sampled[a * 100 + b] == pytest.approx(mean, abs=5 * mean**0.5)


@pytest.mark.parametrize("texts", [["3:1"], ["3-7:1-3@2", "4:~0.4"], ["1-2:0-1", "5:5@.5", "3-5:~.1"]])
def test_the_mean_rate_is_that_of_the_expected_strata(texts: list[str]) -> None:
    specs = [parse_spec(text) for text in texts]
    strata = expected_strata(specs, 1.0)
    assert mean_rate(specs) == pytest.approx(sum(share * m / n for (n, m), share in strata.items()))
