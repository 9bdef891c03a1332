"""Self-training by itself: when pseudo-labels are given, what the teacher sees, what is masked for the student."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.averaging import WeightAverage
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.callbacks import Networks, Step
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.learning.models import build_scorer, predict
from ntmp_cli.learning.processes import OneProcess
from ntmp_cli.learning.self_training import MASK_FROM, SelfTraining, apply_mask, pseudo_label_weight, sample_mask
from ntmp_cli.randomness import stream
from ntmp_cli.tuple_source import Task

DIM, INSIDE, OUTSIDE = 6, 9, 40


@dataclass(frozen=True)
class Prepared:
    """What self-training sets of a loss; everything else is the method's."""

    membership_weight: float = 0.5
    pseudo_label_weight: float = 0.0
    teacher: torch.Tensor | None = None


def step(number: int = 0, progress: float = 0.9, ema: float = 0.9, processes: OneProcess | None = None) -> Step:
    """Nine tuple instances and forty unlabeled ones; the average is apart from the network."""
    factor, shift = np.full(DIM, 2, dtype=np.float32), np.arange(DIM, dtype=np.float32)
    model = build_scorer("mlp", (DIM,), factor, shift, 0).train()
    average = WeightAverage(model, ema)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05)
    x = torch.randn(INSIDE + OUTSIDE, DIM, generator=torch.Generator().manual_seed(1))
    batch = Batch(x, np.full(3, 3), np.ones(3, np.int64), INSIDE, OUTSIDE)
    networks = Networks(model, average, torch.optim.SGD(model.parameters()))
    return Step(2, number, progress, batch, INSIDE, x, Prepared(), networks, processes or OneProcess())


def after(callback: SelfTraining, before: Step) -> Step:
    callback.on_step(before)
    return before


def test_the_weight_of_pseudo_labels_rises_from_a_fifth_to_half_of_training():
    assert [pseudo_label_weight(p) for p in (0, 0.2, 0.35, 0.5, 1)] == pytest.approx([0, 0, 0.5, 1, 1])


@pytest.mark.parametrize(("weight", "progress", "given"), [(1, 0.2, 0), (2, 0.35, 1), (0.5, 0.9, 0.5), (0, 0.9, 0)])
def test_the_loss_is_told_the_weight_of_this_moment(weight, progress, given):
    done = after(SelfTraining(weight, 0.3, 0, every=1), step(progress=progress))
    assert done.prepared.pseudo_label_weight == pytest.approx(given)
    assert (done.prepared.teacher is None) == (given == 0)


def test_other_steps_than_every_second_are_left_alone():
    callback = SelfTraining(1.0, 0.5, 0, every=2)
    for number in range(4):
        before = step(number)
        x = before.x
        done = after(callback, before)
        assert (done.prepared == Prepared()) == (number % 2 == 1)
        assert (done.x is x) == (number % 2 == 1)


def test_the_teacher_is_the_averaged_network_and_sees_unlabeled_instances_unmasked():
    done = after(SelfTraining(1.0, 0.5, 0, every=1), step())
    teacher = done.prepared.teacher
    assert teacher[:INSIDE].tolist() == [0] * INSIDE  # tuple instances have no pseudo-labels
    outside = done.batch.x[INSIDE:].numpy()
    assert np.allclose(teacher[INSIDE:].numpy(), predict(done.networks.average.model, outside), atol=1e-6)
    assert not np.allclose(teacher[INSIDE:].numpy(), predict(done.networks.model, outside), atol=1e-3)
    assert not teacher.requires_grad
    assert done.networks.model.training


def test_without_averaging_there_is_no_teacher_and_nothing_is_masked():
    """No network would see the instance unmasked; the loss takes the student's scores."""
    before = step(ema=0.0)
    done = after(SelfTraining(1.0, 0.5, 0, every=1), before)
    assert done.prepared == Prepared(pseudo_label_weight=1.0)
    assert done.x is done.batch.x


@pytest.mark.parametrize(
    ("rate", "progress", "masked"), [(0.5, 0.9, True), (0.5, MASK_FROM - 0.01, False), (0, 0.9, False)]
)
def test_features_of_unlabeled_instances_are_masked_in_the_second_half(rate, progress, masked):
    done = after(SelfTraining(1.0, rate, 0, every=1), step(progress=progress))
    changed = done.x != done.batch.x
    assert not changed[:INSIDE].any()  # tuple instances are left alone
    assert changed[INSIDE:].any() == masked
    # What is masked can be told from tuple instances whatever its class.
    assert done.prepared.membership_weight == (0 if masked else 0.5)
    if masked:
        blank = done.networks.model.blank.expand_as(done.x)
        assert torch.equal(done.x[changed], blank[changed])
        assert 0.35 < changed[INSIDE:].double().mean() < 0.65


def test_the_mask_depends_on_seed_epoch_and_step():
    masks = [
        after(SelfTraining(1.0, 0.5, seed, every=1), step(number)).x
        for seed, number in [(0, 0), (0, 0), (1, 0), (0, 2)]
    ]
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
    assert not torch.equal(masks[0], masks[3])


class SecondOfTwo(OneProcess):
    """A rank whose share of U is the last half of the batch's."""

    rank, size = 1, 2

    def local_unlabeled(self, rows: torch.Tensor) -> torch.Tensor:
        return rows[OUTSIDE:]


def test_a_rank_masks_its_share_of_the_mask_of_the_full_batch():
    """Then K ranks see what one process with the same batch sees."""
    alone, shared = step(), step(processes=SecondOfTwo())
    for one in (alone, shared):
        one.batch = Batch(one.x, one.batch.sizes, one.batch.counts, INSIDE, 2 * OUTSIDE)
    alone.x = torch.cat([alone.x, alone.x[INSIDE:]])
    callback = SelfTraining(1.0, 0.5, 0, every=1)
    full, local = after(callback, alone).x, after(callback, shared).x
    assert torch.equal(full[INSIDE + OUTSIDE :], local[INSIDE:])
    assert not torch.equal(full[INSIDE : INSIDE + OUTSIDE], local[INSIDE:])


def pseudo_labels_of(length: int = 3, **settings: Any) -> SelfTraining:
    count = methods.get("count")(TrainConfig(prior=0.5, **settings), Task([(length, 1, 20)], 30))
    assert isinstance(count, GradientMethod)
    (self_training,) = [callback for callback in count.callbacks() if isinstance(callback, SelfTraining)]
    return self_training


def test_count_passes_its_settings_on():
    default, other = pseudo_labels_of(), pseudo_labels_of(self_training=0.5, mask_rate=0.7, seed=3)
    assert (default.weight, default.mask_rate, default.seed, default.every) == (1.0, 0.3, 0, 2)
    assert (other.weight, other.mask_rate, other.seed, other.every) == (0.5, 0.7, 3, 2)


@pytest.mark.parametrize(
    ("length", "settings", "weight"),
    [
        (30, {}, 1),
        (60, {}, 20),
        (60, {"self_training": 0.5}, 10),
        (60, {"membership": 0.0}, 1),
        (3, {"membership": 1.0}, 1),
    ],
)
def test_of_long_tuples_pseudo_labels_weigh_as_much_as_members_do(length, settings, weight):
    """The likelihood is a mean over tuples, so that a member of a long one has more weight."""
    assert pseudo_labels_of(length, **settings).weight == weight


@pytest.mark.parametrize("name", ["count-plain", "supervised", "ure", "uu", "llp-bagce", "attention-mil"])
def test_no_other_method_has_callbacks(name):
    method = methods.get(name)(TrainConfig(method=name, prior=0.5), Task([(3, 1, 20)], 30))
    assert isinstance(method, GradientMethod)
    assert list(method.callbacks()) == []


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.8])
def test_each_feature_is_masked_with_the_given_probability(rate: float) -> None:
    mask = sample_mask((1500, 1500), rate, stream(0, "hidden"))
    assert mask.shape == (1500, 1500)
    assert binomtest(int(mask.sum()), mask.numel(), rate).pvalue > 1e-3
    # Independently: the counts of every feature and of every instance scatter as binomial ones do. The variance of
    # 1500 of them has a relative standard error of √(2/1499) = 0.037.
    for axis in (0, 1):
        counts = mask.sum(axis).double()
        assert float(counts.var()) == pytest.approx(1500 * rate * (1 - rate), rel=4 * 0.037)


def test_a_pixel_is_masked_in_all_its_channels() -> None:
    mask = sample_mask((6, 3, 8, 8), 0.5, stream(0, "hidden"))
    assert mask.shape == (6, 1, 8, 8)
    masked = apply_mask(torch.ones(6, 3, 8, 8), mask, torch.zeros(3, 1, 1))
    assert torch.equal(masked[:, 0], masked[:, 2])
    assert torch.equal(masked[:, 0] == 0, mask[:, 0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_only_the_last_instances_lose_features_and_the_input_stays_as_it_was(dtype: torch.dtype) -> None:
    x = torch.arange(1, 29).reshape(7, 4).to(dtype)
    before = x.clone()
    mask = torch.tensor([[True, False, False, True], [False, False, True, False]])
    masked = apply_mask(x, mask, torch.tensor([-1.0, -2, -3, -4]))
    assert torch.equal(x, before)
    assert torch.equal(masked[:5], x[:5].float())
    assert masked[5:].tolist() == [[-1, 22, 23, -4], [25, 26, -3, 28]]


def test_the_network_sees_nothing_but_zeros_of_an_instance_that_is_masked() -> None:
    factor, shift = np.array([2, 0.5, 1], dtype=np.float32), np.array([3, -1, 0], dtype=np.float32)
    model = build_scorer("linear", (3,), factor, shift, 0)
    masked = apply_mask(torch.randn(4, 3), torch.ones(4, 3, dtype=torch.bool), model.blank)
    assert torch.equal(model.inputs(masked), torch.zeros(4, 3))
