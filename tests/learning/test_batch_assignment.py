"""The assignment visits everything once, keeps every batch near what it should be, and favours no instance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ntmp_cli.learning.batch_assignment import (
    BatchAssignment,
    assign_tuples,
    assign_unlabeled,
    evenly_spaced_order,
    share_below,
)
from ntmp_cli.learning.batches import Batch, TrainingData, TupleChunk, UnlabeledChunk
from ntmp_cli.learning.rank_shares import RankShares

PAIRS = st.lists(st.sampled_from([(3, 1), (3, 2), (4, 2), (2, 0), (5, 4)]), min_size=1, max_size=80)


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=200), st.integers(1, 12), st.integers(0, 2**31))
def test_every_stretch_of_an_even_order_has_its_share_of_every_kind(kinds: list[int], steps: int, seed: int) -> None:
    _, kind_of = np.unique(kinds, return_inverse=True)
    order = evenly_spaced_order(kind_of, np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(kind_of)))
    different = len(set(kinds))
    for batch in np.array_split(order, steps):
        for kind in range(different):
            expected = len(batch) * np.mean(kind_of == kind)
            assert abs(np.sum(kind_of[batch] == kind) - expected) <= 2 + different


def test_an_even_order_favours_no_member() -> None:
    kinds = np.array([0] * 7 + [1] * 13)
    firsts = np.zeros(20)
    for seed in range(4000):
        firsts[evenly_spaced_order(kinds, np.random.default_rng(seed))[:5]] += 1
    for kind in (0, 1):
        share = firsts[kinds == kind] / 4000
        assert share == pytest.approx(np.full(len(share), share.mean()), abs=0.03)
    assert firsts / 4000 == pytest.approx(np.full(20, 0.25), abs=0.035)


@settings(deadline=None)
@given(PAIRS, st.integers(1, 9), st.sampled_from([0.3, 0.5, 1 / 3]), st.integers(0, 2**31))
def test_sided_batches_have_tuples_of_one_side_and_all_are_assigned(
    pairs: list[tuple[int, int]], steps: int, prior: float, seed: int
) -> None:
    sizes, counts = np.array(pairs).T
    rng = np.random.default_rng(seed)
    strata = [(n, m, pairs.count((n, m))) for n, m in set(pairs)]
    sides = BatchAssignment(prior, share_below(strata, prior)).sides(steps, rng)
    order, cuts = assign_tuples(sizes, counts, steps, prior, sides, rng)
    assert sorted(order.tolist()) == list(range(len(pairs)))
    assert (len(cuts), cuts[0], cuts[-1]) == (steps + 1, 0, len(pairs))
    for step in range(steps):
        away = (counts / sizes)[order[cuts[step] : cuts[step + 1]]] - prior
        if sides is not None:
            assert (away <= 0).all() if sides[step] else (away >= 0).all()


def test_rates_on_one_side_need_no_sides() -> None:
    assert share_below([(3, 1, 10), (4, 1, 5)], 0.5) is None
    assert share_below([(3, 1, 10), (2, 1, 5)], 0.5) is None  # on the prior itself is on no side
    assert share_below([(3, 1, 10), (3, 2, 30)], 0.5) == 0.25
    assert BatchAssignment(0.5, 0.25).sides(1, np.random.default_rng(0)) is None
    assert BatchAssignment(0.5, 0.001).sides(8, np.random.default_rng(0)).sum() == 1


def test_assigned_batches_of_u_hold_their_share_of_positives() -> None:
    """Both as the probabilities say and, where those are right, in truth."""
    rng = np.random.default_rng(0)
    q = rng.beta(0.3, 0.5, 4000)
    y = rng.random(4000) < q
    assigned, chance = [], []
    for _ in range(40):
        order = assign_unlabeled(q, 50, rng)
        assert len(set(order.tolist())) == 4000
        assigned += [(q[batch].mean(), y[batch].mean()) for batch in np.array_split(order, 50)]
        chance += [(q[batch].mean(), y[batch].mean()) for batch in np.array_split(rng.permutation(4000), 50)]
    predicted, true = np.std(assigned, axis=0)
    predicted_by_chance, true_by_chance = np.std(chance, axis=0)
    assert predicted < predicted_by_chance / 10
    # Var(mean of y) falls from Var(y)/b to E[q(1−q)]/b.
    assert true / true_by_chance == pytest.approx(np.sqrt(np.mean(q * (1 - q)) / y.var()), rel=0.1)


def training_data(pairs: list[tuple[int, int]], assignment: BatchAssignment, share: int = 0) -> TrainingData:
    sizes, counts = np.array(pairs).T
    x = np.arange(sizes.sum(), dtype=np.float32)[:, None]
    u = np.arange(64, dtype=np.float32)[:, None] - 1000
    q = np.linspace(0, 1, 64, dtype=np.float32)
    return TrainingData(
        [TupleChunk(len(pairs), lambda: (x, sizes, counts), lambda: np.zeros(len(x), dtype=np.float32))],
        [UnlabeledChunk(64, lambda: u, lambda: q)],
        **{"mean_size": 3.0, "instance_bytes": 4, "budget_bytes": 2**30, "batch_size": 30, "seed": 0, "share": share},
        assignment=assignment,
    )


def gap(batch: Batch) -> float:
    return abs(float(np.mean(batch.counts / batch.sizes)) - 0.5)


def test_an_epoch_of_sided_batches_visits_everything_once_and_keeps_the_gap() -> None:
    steps, batches = training_data([(3, 1), (3, 2)] * 20, BatchAssignment(0.5, 0.5)).epoch(1)
    epoch = list(batches)
    assert len(epoch) == steps > 2
    assert sorted(np.concatenate([b.x[:, 0] for b in epoch]).tolist()) == [*range(-1000, -936), *range(120)]
    assert [gap(b) for b in epoch] == pytest.approx([1 / 6] * steps)
    probable = [float(b.targets[b.tuple_instances :].mean()) for b in epoch]
    assert probable == pytest.approx([0.5] * steps, abs=0.05)


def test_shares_of_several_ranks_take_the_same_side() -> None:
    shares = [training_data([(3, 1), (3, 2)] * 20, BatchAssignment(0.5, 0.5), share) for share in (0, 1)]
    steps, batches = RankShares(shares).epoch(1)
    epoch = list(batches)
    assert len(epoch) == steps > 2
    assert [gap(b) for b in epoch] == pytest.approx([1 / 6] * steps)


def test_sides_change_from_epoch_to_epoch_and_a_resumed_epoch_goes_on_as_it_began() -> None:
    data = training_data([(3, 1), (3, 2)] * 20, BatchAssignment(0.5, 0.5))
    first, second = ([b.counts.tolist() for b in data.epoch(number)[1]] for number in (1, 2))
    assert first != second
    assert [b.counts.tolist() for b in data.epoch(1, skip=3)[1]] == first[3:]
