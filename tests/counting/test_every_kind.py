"""Every kind of observation and every law of noise against the enumeration of all labels, in both kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from brute_force import enumerated_observation, law_by_definition
from scipy.special import expit

from ntmp_cli.counting.laws import Floats, law_text, noise_laws, parse_law
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient, count_log_prob, count_posterior
from ntmp_cli.counting.recorded import RECORD, are_records, join, known_counts, records, with_law
from ntmp_cli.counting.strata import strata_of
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.learning.count_kernel import CountKernel

# Size, low and high of what was recorded, law.
RANGES = [(7, 2, 4, "exact"), (12, 1, 12, "exact"), (5, 0, 2, "exact"), (1, 0, 1, "exact"), (9, 8, 9, "exact")]
POINTS = [
    (6, 2, 2, "exact"),
    (6, 0, 0, "off-by-one:0.3"),
    (8, 12.4, 12.4, "gaussian:3"),
    (8, -2.5, -2.5, "gaussian:0.7"),
    (9, 4.2, 4.2, "laplace:1.5"),
    (7, -3, -3, "geometric:0.4"),
    (12, 5, 5, "detect:0.9,0.95"),
    (5, 5, 5, "detect:0.6,1"),
    (11, 10, 10, "round:5"),
    (8, 2, 2, "round:2"),
    (10, 0, 0, "suppress:6"),
    (10, 7, 7, "suppress:6"),
    (6, 1, 1, "pooled-test:0.9,0.97"),
    (6, 0, 0, "pooled-test:0.9,0.97"),
]
NOISY_RANGES = [(6, 1, 3, "off-by-one:0.3"), (9, 2, 5, "detect:0.8,0.9"), (7, -1, 2, "geometric:0.4")]
ALL = [*RANGES, *POINTS, *NOISY_RANGES]
IDS = [f"{n}:{low}-{high} {law}" for n, low, high, law in ALL]


def defined(n: int, low: float, high: float, law: str) -> Floats:
    """L(k) by definition, a range as the sum of what it allows."""
    if law == "exact":
        return np.array([float(low <= k <= high) for k in range(n + 1)])
    values = [low] if low == high else range(int(low), int(high) + 1)
    return np.array([sum(law_by_definition(law, value, k, n) for value in values) for k in range(n + 1)])


def observed(*rows: tuple[int, float, float, str]) -> CountObservations:
    n, low, high, law = zip(*rows, strict=True)
    return CountObservations(n, records(low, high, law))


@pytest.mark.parametrize("row", ALL, ids=IDS)
@pytest.mark.parametrize("scale", [0.5, 4.0])
def test_an_observation_has_the_probability_and_the_posterior_of_the_enumeration(
    row: tuple[int, float, float, str], scale: float
) -> None:
    z = np.random.default_rng(row[0]).normal(0, scale, row[0])
    log_prob, posterior = enumerated_observation(z, defined(*row))
    data = observed(row)
    assert count_log_prob(z, data) == pytest.approx([log_prob], abs=1e-10)
    value, gradient = count_gradient(z, data)
    assert value == pytest.approx([log_prob], abs=1e-10)
    assert count_posterior(z, data) == pytest.approx(posterior, abs=1e-10)
    assert gradient == pytest.approx(posterior - expit(z), abs=1e-10)


def test_tuples_of_all_kinds_share_tables_and_the_gradient_is_that_of_differences() -> None:
    data, rng = observed(*ALL), np.random.default_rng(3)
    z = rng.normal(0, 1.5, data.instances)
    log_prob, gradient = count_gradient(z, data)
    expected = [
        enumerated_observation(z[start : start + row[0]], defined(*row))[0]
        for row, start in zip(ALL, data.starts.tolist(), strict=True)
    ]
    assert log_prob == pytest.approx(np.array(expected), abs=1e-10)
    step = 1e-5
    moved = z + step * np.vstack([np.eye(len(z)), -np.eye(len(z))])
    above, below = np.split(count_log_prob(moved, data).sum(axis=1), 2)
    assert gradient == pytest.approx((above - below) / (2 * step), abs=1e-8)


def test_the_kernel_of_networks_agrees_on_every_kind() -> None:
    data = observed(*ALL)
    z = torch.from_numpy(np.random.default_rng(4).normal(0, 2, data.instances)).requires_grad_()
    value = CountKernel(data).log_prob(z)
    value.sum().backward()
    log_prob, gradient = count_gradient(z.detach().numpy(), data)
    assert value.detach().numpy() == pytest.approx(log_prob, abs=1e-11)
    assert z.grad is not None
    assert z.grad.numpy() == pytest.approx(gradient, abs=1e-11)


@pytest.mark.parametrize("n", [1, 4, 40, 700])
def test_at_least_one_is_one_minus_the_product_of_negatives(n: int) -> None:
    z = np.random.default_rng(n).normal(-3, 1, n)
    value = count_log_prob(z, observed((n, 1, n, "exact")))[0]
    assert value == pytest.approx(np.log(-np.expm1(-np.logaddexp(0, z).sum())), abs=1e-9)
    posterior = count_posterior(z, observed((n, 1, n, "exact")))
    assert posterior == pytest.approx(expit(z) / np.exp(value), abs=1e-9)


def test_tuples_with_and_without_positives_have_the_same_closed_form_as_the_tables() -> None:
    """A further tuple of another kind makes all of them go through the tables."""
    bags = [(4, 1, 4, "exact"), (3, 0, 0, "exact"), (1, 1, 1, "exact"), (200, 1, 200, "exact"), (30, 0, 0, "exact")]
    alone, beside = observed(*bags), observed(*bags, (3, 1, 2, "exact"))
    assert alone.some is not None
    assert beside.some is None
    z = np.random.default_rng(6).normal(-2, 3, beside.instances)
    rows = np.stack([z, z - 5, z + 4])
    members = alone.instances
    assert count_log_prob(rows[:, :members], alone) == pytest.approx(count_log_prob(rows, beside)[:, :-1], abs=1e-11)
    for row in rows:
        (log_prob, gradient), (expected, slopes) = count_gradient(row[:members], alone), count_gradient(row, beside)
        assert log_prob == pytest.approx(expected[:-1], abs=1e-11)
        assert gradient == pytest.approx(slopes[:members], abs=1e-11)


def test_at_least_one_stays_finite_where_every_member_is_all_but_certainly_negative() -> None:
    z = np.array([-800.0, -801.0, -900.0])
    log_prob, gradient = count_gradient(z, observed((3, 1, 3, "exact")))
    assert log_prob == pytest.approx([np.logaddexp.reduce(z)])
    assert gradient == pytest.approx(np.exp(z - np.logaddexp.reduce(z)))


def test_a_range_of_everything_says_nothing() -> None:
    z = np.random.default_rng(0).normal(0, 3, 5 + 400)
    log_prob, gradient = count_gradient(z, observed((5, 0, 5, "exact"), (400, 0, 400, "exact")))
    assert log_prob == pytest.approx([0, 0], abs=1e-9)
    assert gradient == pytest.approx(np.zeros(405), abs=1e-9)


def test_the_intercept_of_long_tuples_is_integrated_for_every_kind() -> None:
    """Narrow integrands that are far from 0: the nodes must follow what the observation says, not its middle only."""
    rng, spread = np.random.default_rng(4), 1.0
    at, weights = np.polynomial.hermite_e.hermegauss(200)
    for n, low, high, law in [
        (60, 50, 60, "exact"),
        (60, 1, 5, "exact"),
        (60, 1, 60, "exact"),
        (60, 10, 50, "exact"),
        (80, 30, 31, "exact"),
        (200, 5, 100, "exact"),
        (60, 30, 30, "gaussian:15"),
        (60, 55, 55, "gaussian:2"),
        (60, 0, 0, "suppress:6"),
        (60, 4, 4, "detect:0.5,1"),
        (60, 25, 25, "round:5"),
    ]:
        z, row = rng.normal(-0.5, 1, n), observed((n, low, high, law))
        fine = [np.exp(count_log_prob(z + spread * b, row))[0] for b in at]
        expected = np.log(np.dot(weights, fine) / weights.sum())
        assert CountObjective(row, spread).log_prob(z)[0] == pytest.approx(expected, abs=5e-3), (n, low, high, law)


def test_exact_records_are_whole_numbers_again_and_give_the_same_bits() -> None:
    sizes, counts = np.array([3, 7, 2, 12]), np.array([1, 7, 0, 5])
    plain, recorded = CountObservations(sizes, counts), CountObservations(sizes, records(counts, counts))
    assert not are_records(recorded.counts)
    assert recorded.exact
    z = np.random.default_rng(1).normal(0, 2, 24)
    for one, other in zip(count_gradient(z, plain), count_gradient(z, recorded), strict=True):
        assert (one == other).all()
    # The same beside a range, which changes the tables of no other tuple.
    mixed = join([counts, records([1], [2])])
    beside = count_log_prob(np.append(z, [0.0, 1.0]), CountObservations([*sizes, 2], mixed))
    assert beside[:4] == pytest.approx(count_log_prob(z, plain), abs=1e-13)


@pytest.mark.parametrize("row", [*RANGES[:3], *POINTS[2:12:2]], ids=str)
def test_a_random_intercept_is_integrated_for_every_kind(row: tuple[int, float, float, str]) -> None:
    """Against a fine sum over the intercept."""
    z, spread = np.random.default_rng(8).normal(-0.5, 1, row[0]), 0.8
    objective = CountObjective(observed(row), spread)
    at, weights = np.polynomial.hermite_e.hermegauss(120)
    fine = [np.exp(count_log_prob(z + spread * b, observed(row)))[0] for b in at]
    assert objective.log_prob(z)[0] == pytest.approx(np.log(np.dot(weights, fine) / weights.sum()), abs=2e-3)
    value, gradient = objective.value_and_gradient(z)
    assert value == pytest.approx(objective.log_prob(z)[0], abs=1e-12)
    step = 1e-4
    for i in range(row[0]):
        move = np.zeros(row[0])
        move[i] = step
        slope = (objective.log_prob(z + move)[0] - objective.log_prob(z - move)[0]) / (2 * step)
        assert gradient[i] == pytest.approx(slope, abs=3e-3)


@pytest.mark.parametrize("text", ["exact", "off-by-one:0.1", "gaussian:17", "detect:0.9,0.99", "round:5", "suppress:6"])
def test_a_law_is_written_as_it_is_read(text: str) -> None:
    assert law_text(parse_law(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gausian:3", "unknown count-law 'gausian'; did you mean 'gaussian'"),
        ("gaussian", "gaussian takes sd, and 0 were given"),
        ("exact:2", "exact takes no parameter, and 1 were given"),
        ("detect:0.9", "detect takes sensitivity, specificity, and 1 were given"),
        ("gaussian:x", "its parameters must be numbers"),
        ("gaussian:-1", "the standard deviation is -1; it must be above 0"),
        ("laplace:inf", "the scale is inf"),
        ("geometric:0", "it must be above 0"),
        ("round:2.5", "it must be a whole number from 1 to 2147483648"),
        ("suppress:0", "it must be a whole number from 1 to 2147483648"),
        ("detect:0.4,0.5", "add up to 0.9"),
        ("pooled-test:1.2,0.5", "the sensitivity is 1.2; it must be from 0 to 1"),
        ("off-by-one:2", "it must be from 0 to 1"),
    ],
)
def test_a_law_that_cannot_be_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_law(text)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((3, 2, 4, "exact"), "2-4"),
        ((3, 2, 1, "exact"), "2-1"),
        ((3, 1.5, 1.5, "exact"), r"1.5"),
        ((9, 7, 7, "round:5"), r"7 \(round:5\)"),
        ((9, 3, 3, "suppress:6"), r"3 \(suppress:6\)"),
        ((9, 2, 2, "pooled-test:0.9,0.9"), r"2 \(pooled-test:0.9,0.9\)"),
        ((9, 1.5, 1.5, "geometric:1"), r"1.5 \(geometric:1\)"),
        ((9, 10, 10, "detect:0.9,0.9"), r"10 \(detect"),
    ],
)
def test_a_record_that_its_law_cannot_give_is_refused(row: tuple[int, float, float, str], message: str) -> None:
    with pytest.raises(DataError, match=f"tuple 1 cannot have {row[0]} members and a count of {message}"):
        observed(row)


def test_every_law_has_a_test_here() -> None:
    assert {law.partition(":")[0] for *_, law in ALL} == set(noise_laws.names())


def test_known_counts_are_unbiased_for_noise_and_unknown_for_ranges() -> None:
    rng = np.random.default_rng(5)
    sizes, true = np.full(40_000, 12), rng.binomial(12, 0.3, 40_000)
    for text in ("gaussian:3", "laplace:2", "geometric:0.7", "detect:0.8,0.9"):
        law = parse_law(text)
        recorded = with_law(records(*2 * [law.sample(true, sizes, rng)], text), law)
        error = known_counts(sizes, recorded) - true
        assert abs(error.mean()) < 4 * error.std() / 200
    assert np.isnan(known_counts(np.array([5]), records([1], [3]))).all()
    assert np.isnan(known_counts(np.array([5]), records([5], [5], "round:5"))).all()


def test_another_law_replaces_the_recorded_one() -> None:
    recorded = records([1, 2], [1, 2], ["gaussian:3", "exact"])
    assert recorded.dtype == RECORD
    z = np.random.default_rng(2).normal(size=7)
    replaced = CountObservations([3, 4], recorded, parse_law("off-by-one:0.2"))
    assert count_log_prob(z, replaced) == pytest.approx(
        count_log_prob(z, CountObservations([3, 4], [1, 2], parse_law("off-by-one:0.2")))
    )
    kept = CountObservations([3, 4], recorded, parse_law("exact"))
    assert count_log_prob(z, kept) == pytest.approx(count_log_prob(z, CountObservations([3, 4], recorded)))


def test_the_rate_is_the_likeliest_one_of_all_members() -> None:
    exact = CountObservations([3, 7, 5], [1, 2, 4])
    assert exact.constant.rate == pytest.approx(exact.rate, abs=1e-9)
    # At least one of n, in a share s of all tuples: the rate is 1 − (1 − s)^(1/n).
    n, low = np.full(50, 4), np.repeat([0, 1], [20, 30])
    some = CountObservations(n, records(low, np.where(low == 0, 0, 4)))
    assert some.rate == pytest.approx(1 - 0.4**0.25, abs=1e-8)
    assert some.likely[:20] == pytest.approx(np.zeros(20))
    assert not some.one_rate
    assert observed((4, 1, 3, "exact"), (6, 2, 4, "exact")).symmetric
    assert not observed((4, 1, 3, "exact"), (6, 2, 5, "exact")).symmetric


def test_noise_that_allows_everything_hides_no_difference_of_rates() -> None:
    rng, sizes = np.random.default_rng(6), np.full(300, 40)
    for true, one_rate in ((np.full(300, 12), True), (rng.integers(0, 41, 300), False)):
        recorded = true + rng.normal(0, 3, 300)
        assert CountObservations(sizes, records(recorded, recorded, "gaussian:3")).one_rate is one_rate


@pytest.mark.parametrize("recorded", [-2.4, 1.5, 5.0])
def test_strata_refuse_counts_that_their_law_cannot_give(recorded: float) -> None:
    """As where counts that were recorded with gaussian noise are said to be off by one."""
    counts = records([recorded, 1.0], [recorded, 1.0], "off-by-one:0.1")
    with pytest.raises(DataError, match=rf"tuple 1 cannot have 3 members and a count of {recorded:g}"):
        strata_of(np.array([3, 3]), counts)


def test_counts_of_millions_have_strata_of_their_own() -> None:
    low, high = [1234567, 1234570, 10], [1234567, 1234570, 20]
    strata = strata_of(np.full(3, 2_000_000), records(low, high))
    assert [row.counts for row in strata] == ["10-20", "1234567", "1234570"]
    assert [row.m for row in strata[1:]] == [1234567, 1234570]
