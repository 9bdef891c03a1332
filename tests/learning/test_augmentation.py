"""Augmentation: which images are seen in place of which, by which seed, and where there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning import loop
from ntmp_cli.learning.augmentation import Augmentation, seen_at
from ntmp_cli.learning.augmentation_choice import with_augmentation
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.processes import ManyProcesses
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.tuple_source import ArraySource

SHAPE = (2, 16, 24)


def images(count: int = 60) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (count, *SHAPE), dtype=np.uint8))


def seen(kind: str, x: torch.Tensor, *step: int, seed: int = 0) -> torch.Tensor:
    return seen_at(x, *Augmentation(kind, seed).places(len(x), x.shape[1:], *step))


def test_a_flip_mirrors_about_half_of_the_images_and_leaves_the_others():
    x = images()
    new = seen("flip", x, 1, 2)
    mirrored = torch.tensor([torch.equal(a, b.flip(2)) for a, b in zip(new, x, strict=True)])
    same = torch.tensor([torch.equal(a, b) for a, b in zip(new, x, strict=True)])
    assert (mirrored ^ same).all()
    assert 15 <= mirrored.sum() <= 45
    assert new.dtype == x.dtype


def test_a_crop_shifts_by_at_most_an_eighth_and_repeats_the_edge():
    x = images()
    rows, columns = Augmentation("crop", 0).places(len(x), SHAPE, 1, 2)
    new = seen("crop", x, 1, 2)
    for image in range(len(x)):
        down, right = int(rows[image, 8]) - 8, int(columns[image, 12]) - 12
        assert abs(down) <= 2
        assert abs(right) <= 3
        at = np.clip(np.arange(16) + down, 0, 15)[:, None], np.clip(np.arange(24) + right, 0, 23)[None]
        assert np.array_equal(new[image].numpy(), x[image].numpy()[:, at[0], at[1]])
    assert len({tuple(row) for row in rows.tolist()}) == 5
    assert len({tuple(column) for column in columns.tolist()}) == 7


def test_both_together_flip_what_was_shifted():
    rows, columns = Augmentation("flip+crop", 0).places(200, SHAPE, 1, 2)
    falling = columns[:, 10] > columns[:, 11]
    assert 60 <= falling.sum() <= 140
    assert (rows[:, 8] != 8).any()


def test_what_is_sampled_depends_on_seed_epoch_and_step_alone():
    x = images()
    once = seen("flip+crop", x, 3, 4)
    assert torch.equal(once, seen("flip+crop", x, 3, 4))
    for other in (seen("flip+crop", x, 3, 5), seen("flip+crop", x, 4, 4), seen("flip+crop", x, 3, 4, seed=1)):
        assert not torch.equal(once, other)


def test_ranks_divide_what_one_process_samples():
    rows = torch.arange(10)  # six instances of tuples, four of U
    parts = []
    for rank in range(2):
        processes = object.__new__(ManyProcesses)
        processes.rank, processes._tuple_instances, processes._unlabeled = rank, [3, 3], [1, 3]
        parts.append(processes.local_instances(rows).tolist())
    assert parts == [[0, 1, 2, 6], [3, 4, 5, 7, 8, 9]]


@pytest.mark.parametrize(
    ("dataset", "expected"), [("cifar10", "flip+crop"), ("svhn", "crop"), ("mnist", "none"), ("folder:x", "none")]
)
def test_the_default_is_that_of_the_data_set(dataset: str, expected: str):
    assert with_augmentation(TrainConfig(prior=0.5), dataset, (3, 32, 32)).augment == expected
    named = TrainConfig(prior=0.5, augment="flip")
    assert with_augmentation(named, dataset, (3, 32, 32)).augment == "flip"


@pytest.mark.parametrize(
    ("settings", "shape", "reason"),
    [
        ({"encoder": "pca"}, (3, 32, 32), "features of the encoder pca"),
        ({}, (12,), r"shape \(12,\)"),
        ({"method": "discriminant"}, (3, 32, 32), "method discriminant trains no network"),
    ],
)
def test_other_data_than_images_have_none(settings: dict[str, Any], shape: tuple[int, ...], reason: str):
    config = TrainConfig(prior=0.5, **settings)
    assert with_augmentation(config, "cifar10", shape).augment == "none"
    with pytest.raises(UsageError, match=reason):
        with_augmentation(config.model_copy(update={"augment": "crop"}), "cifar10", shape)


def source() -> ArraySource:
    """Images whose positives are bright on the left, in tuples of three."""
    rng = np.random.default_rng(1)
    positive = np.concatenate([np.tile([1, 0, 0], 60), rng.random(180) < 0.7]).astype(bool)
    x = rng.normal(size=(len(positive), 1, 8, 8)).astype(np.float32)
    x[positive, :, :, :4] += 1.5
    return ArraySource(x[:180], np.full(60, 3), np.ones(60, np.int64), x[180:])


def trained(**settings: Any) -> Any:
    config = TrainConfig(prior=0.7, model="linear", epochs=2, batch_size=90, self_training=1.0, **settings)
    return train_scorer(Training(config, source()))


def test_the_network_sees_changed_images_and_the_teacher_those_that_were_given(monkeypatch: pytest.MonkeyPatch):
    calls: list[tuple[Batch, torch.Tensor, torch.Tensor]] = []
    real = loop.seen_at

    def recording(x: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        calls.append((x, rows, columns))
        return real(x, rows, columns)

    monkeypatch.setattr(loop, "seen_at", recording)
    plain, changed = trained(augment="none"), None
    assert not calls
    changed = trained(augment="flip+crop", mask_rate=0.0)
    assert len(calls) == sum(record.fields["batches"] for record in changed.outcome.records)
    # Every batch comes to the augmentation as it was stored: what the callbacks saw before is the clean image.
    stored = {row.tobytes() for row in np.concatenate([source().tuples, source().unlabeled])}
    assert all(row.numpy().tobytes() in stored for x, _, _ in calls for row in x)
    assert not np.array_equal(plain.outcome.weights["network.1.weight"], changed.outcome.weights["network.1.weight"])


def test_the_same_seed_gives_the_same_weights():
    one, two = (trained(augment="flip+crop").outcome.weights for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
