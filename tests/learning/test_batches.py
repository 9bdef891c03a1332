from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ntmp_cli.learning import batches as batches_module
from ntmp_cli.learning.batches import Batch, MemoryWindow, TrainingData, TupleChunk, UnlabeledChunk, load_window

INSTANCE_BYTES = 8


@dataclass
class Store:
    """Data whose instances are their names, cut into chunks, and a record of what is loaded.

    Instance (i,) of tuple t is named in order; unlabeled instances are named after all of them.
    """

    sizes: NDArray[np.int64]
    unlabeled: int
    tuple_cuts: list[int] = field(default_factory=list)
    unlabeled_cuts: list[int] = field(default_factory=list)
    loads: list[tuple[str, int, int]] = field(default_factory=list)

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum(self.sizes) - self.sizes

    @property
    def counts(self) -> NDArray[np.int64]:
        return np.arange(len(self.sizes)) % (self.sizes + 1)

    def _tuple_chunk(self, a: int, b: int) -> TupleChunk:
        def load() -> tuple[NDArray[np.generic], NDArray[np.int64], NDArray[np.int64]]:
            self.loads.append(("tuples", a, b))
            first, last = self.starts[a], self.starts[b - 1] + self.sizes[b - 1]
            return np.arange(first, last, dtype=np.float64)[:, None], self.sizes[a:b], self.counts[a:b]

        return TupleChunk(b - a, load)

    def _unlabeled_chunk(self, a: int, b: int) -> UnlabeledChunk:
        def load() -> NDArray[np.generic]:
            self.loads.append(("unlabeled", a, b))
            return np.arange(a, b, dtype=np.float64)[:, None] + self.sizes.sum()

        return UnlabeledChunk(b - a, load)

    def data(self, *, batch_size: int = 16, budget: int = 2**30, seed: int = 0) -> TrainingData:
        def chunks(cuts: list[int], end: int) -> list[tuple[int, int]]:
            edges = sorted({0, end, *(c for c in cuts if 0 < c < end)})
            return list(pairwise(edges))

        return TrainingData(
            [self._tuple_chunk(a, b) for a, b in chunks(self.tuple_cuts, len(self.sizes))],
            [self._unlabeled_chunk(a, b) for a, b in chunks(self.unlabeled_cuts, self.unlabeled)],
            mean_size=float(self.sizes.mean()),
            instance_bytes=INSTANCE_BYTES,
            budget_bytes=budget,
            batch_size=batch_size,
            seed=seed,
        )


def epoch(data: TrainingData, number: int = 1, skip: int = 0) -> list[Batch]:
    steps, batches = data.epoch(number, skip)
    epoch_batches = list(batches)
    assert len(epoch_batches) == steps - skip
    return epoch_batches


def names(batch: Batch) -> list[int]:
    return batch.x[:, 0].long().tolist()


def same(first: list[Batch], second: list[Batch]) -> bool:
    return len(first) == len(second) and all(
        torch.equal(a.x, b.x)
        and np.array_equal(a.sizes, b.sizes)
        and np.array_equal(a.counts, b.counts)
        and a.tuple_instances == b.tuple_instances
        for a, b in zip(first, second, strict=True)
    )


@st.composite
def stores(draw: st.DrawFn) -> Store:
    sizes = np.array(draw(st.lists(st.integers(1, 6), min_size=1, max_size=40)))
    unlabeled = draw(st.integers(1, 60))
    cuts = st.lists(st.integers(1, 60), max_size=6)
    return Store(sizes, unlabeled, draw(cuts), draw(cuts))


def check_one_visit_each(store: Store, batches: list[Batch]) -> None:
    seen_tuples, seen_unlabeled = [], []
    for batch in batches:
        ids = names(batch)
        assert batch.unlabeled == len(ids) - batch.tuple_instances
        assert batch.tuple_instances == batch.sizes.sum()
        assert len(batch.sizes) >= 1
        assert batch.unlabeled >= 1
        at = 0
        for size, count in zip(batch.sizes, batch.counts, strict=True):
            t = int(np.searchsorted(store.starts, ids[at], side="right")) - 1
            assert ids[at : at + size] == list(range(store.starts[t], store.starts[t] + store.sizes[t]))
            assert (size, count) == (store.sizes[t], store.counts[t])
            seen_tuples.append(t)
            at += size
        seen_unlabeled += [i - int(store.sizes.sum()) for i in ids[at:]]
    assert sorted(seen_tuples) == list(range(len(store.sizes)))
    assert sorted(seen_unlabeled) == list(range(store.unlabeled))


BUDGETS = st.sampled_from([1, 100, 400, 2**30])


@settings(deadline=None, max_examples=80)
@given(stores(), st.integers(2, 40), BUDGETS, st.integers(0, 5))
def test_an_epoch_visits_every_whole_tuple_and_every_unlabeled_instance_once(
    store: Store, batch_size: int, budget: int, seed: int
) -> None:
    data = store.data(batch_size=batch_size, budget=budget, seed=seed)
    for number in (1, 2):
        check_one_visit_each(store, epoch(data, number))


@pytest.mark.parametrize("steps", [2, 8, 100])
def test_an_epoch_of_several_gathers_visits_everything_once(steps: int) -> None:
    """One and a half times what is gathered at once, so that an epoch takes two gathers."""
    instances = batches_module.GATHER_BYTES * 3 // (2 * INSTANCE_BYTES)
    store = Store(np.full(100, instances // 200), instances - 100 * (instances // 200))
    whole = epoch(store.data(batch_size=instances // steps))
    assert len(whole) >= steps
    check_one_visit_each(store, whole)
    for skip in (1, steps - 1):
        assert same(epoch(store.data(batch_size=instances // steps), skip=skip), whole[skip:])


@settings(deadline=None, max_examples=50)
@given(stores(), st.integers(2, 40), BUDGETS, st.data())
def test_an_epoch_resumed_at_a_step_has_the_same_tail(
    store: Store, batch_size: int, budget: int, choice: st.DataObject
) -> None:
    whole = epoch(store.data(batch_size=batch_size, budget=budget), 3)
    skip = choice.draw(st.integers(0, len(whole)))
    assert same(epoch(store.data(batch_size=batch_size, budget=budget), 3, skip), whole[skip:])


@settings(deadline=None, max_examples=60)
@given(stores(), stores(), st.integers(2, 40))
def test_data_that_fit_give_the_same_batches_however_they_are_cut(one: Store, other: Store, batch_size: int) -> None:
    recut = Store(one.sizes, one.unlabeled, other.tuple_cuts, other.unlabeled_cuts)
    assert same(epoch(one.data(batch_size=batch_size)), epoch(recut.data(batch_size=batch_size)))


LARGE = Store(np.tile([2, 3, 5, 2], 50), 400, list(range(10, 200, 10)), list(range(16, 400, 16)))


@pytest.mark.parametrize("budget", [2**30, 1500])
def test_the_order_depends_on_epoch_and_seed_alone(budget: int) -> None:
    first = epoch(LARGE.data(budget=budget), 1)
    assert same(first, epoch(LARGE.data(budget=budget), 1))
    assert not same(first, epoch(LARGE.data(budget=budget), 2))
    assert not same(first, epoch(LARGE.data(budget=budget, seed=1), 1))
    data = LARGE.data(budget=budget)
    epoch(data, 1)
    assert same(epoch(data, 2), epoch(LARGE.data(budget=budget), 2))


def test_batches_are_of_even_composition_and_about_the_asked_size() -> None:
    batches = epoch(LARGE.data(batch_size=100))
    assert len(batches) == 10
    assert {len(b.sizes) for b in batches} == {20}
    assert {b.unlabeled for b in batches} == {40}
    assert np.mean([len(b.x) for b in batches]) == 100


def test_few_tuples_or_few_unlabeled_instances_bound_the_number_of_steps() -> None:
    assert len(epoch(Store(np.array([3, 3]), 500).data(batch_size=16))) == 2
    assert len(epoch(Store(np.full(200, 3), 4).data(batch_size=16))) == 4


def test_data_that_fit_are_loaded_once_for_all_epochs() -> None:
    store = Store(np.full(30, 2), 60, [10, 20], [15, 40])
    data = store.data()
    assert data.windows == 1
    assert store.loads == []
    for number in (1, 2, 3):
        epoch(data, number)
    assert sorted(store.loads) == [
        *[("tuples", 0, 10), ("tuples", 10, 20), ("tuples", 20, 30)],
        *[("unlabeled", 0, 15), ("unlabeled", 15, 40), ("unlabeled", 40, 60)],
    ]


def test_larger_data_are_loaded_one_window_at_a_time() -> None:
    store = Store(np.full(120, 2), 240, list(range(10, 120, 10)), list(range(20, 240, 20)))
    # 480 instances of 8 bytes in windows of 800 bytes.
    data = store.data(budget=800, batch_size=20)
    assert data.windows == 5
    _, batches = data.epoch(1)
    assert store.loads == []
    loaded_instances, seen = [], 0
    for batch in batches:
        seen += len(batch.x)
        loaded = sum((b - a) * (2 if kind == "tuples" else 1) for kind, a, b in store.loads)
        loaded_instances.append(loaded - (seen - len(batch.x)))
    assert seen == 480
    # What is loaded and not yet visited never exceeds one window of at most 3 chunks of either kind.
    assert max(loaded_instances) <= 3 * 20 + 3 * 20
    assert len(store.loads) == 24
    assert len(set(store.loads)) == 24


def test_windows_that_were_visited_before_a_resume_are_not_loaded_again() -> None:
    store = Store(np.full(120, 2), 240, list(range(10, 120, 10)), list(range(20, 240, 20)))
    steps, _ = store.data(budget=800, batch_size=20).epoch(1)
    _, tail = store.data(budget=800, batch_size=20).epoch(1, skip=steps - 1)
    assert len(list(tail)) == 1
    assert 2 <= len(store.loads) <= 6


def test_windows_group_other_chunks_in_every_epoch() -> None:
    groups = []
    for number in (1, 2):
        store = Store(np.full(120, 2), 240, list(range(10, 120, 10)), list(range(20, 240, 20)))
        epoch(store.data(budget=800), number)
        groups.append(store.loads)
    assert sorted(groups[0]) == sorted(groups[1])
    assert groups[0] != groups[1]


def test_there_are_never_more_windows_than_chunks() -> None:
    assert Store(np.full(120, 2), 240, [50], list(range(20, 240, 20))).data(budget=1).windows == 2
    assert Store(np.full(120, 2), 240, list(range(1, 120)), [7, 9]).data(budget=1).windows == 3
    assert Store(np.full(120, 2), 240).data(budget=1).windows == 1


def test_a_window_is_let_go_before_the_next_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors: list[weakref.ref[MemoryWindow]] = []
    alive_at_load = []

    def tracked(*chunks: Any) -> MemoryWindow:
        alive_at_load.append(sum(ref() is not None for ref in tensors))
        window = load_window(*chunks)
        tensors.append(weakref.ref(window))
        return window

    monkeypatch.setattr(batches_module, "load_window", tracked)
    data = LARGE.data(budget=1500)
    for _ in data.epoch(1)[1]:
        pass
    assert alive_at_load == [0] * data.windows
    assert data.windows == 6
