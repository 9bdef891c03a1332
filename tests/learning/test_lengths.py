"""How long a network is trained where the number of epochs is not given."""

from __future__ import annotations

import numpy as np
import pytest

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.lengths import EPOCHS, default_batch, with_length
from ntmp_cli.tuple_source import InstanceFormat, Task

VECTORS, IMAGES = InstanceFormat((10,), np.dtype(np.float32)), InstanceFormat((1, 8, 8), np.dtype(np.uint8))


def epochs(instances: int, instance: InstanceFormat = VECTORS, **settings: object) -> int | None:
    """Of tuples of eight and a pool of the same size, so many instances in all."""
    task = Task([(8, 2, instances // 16)], instances // 2)
    return with_length(TrainConfig(**settings), instance, task).epochs


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        (800, 19),  # 16 batches of 50: 300 steps are 19 epochs
        (256 * 20, 15),
        (256 * 44, 7),
        (256 * 1000, 5),
    ],
)
def test_on_tables_epochs_make_300_steps_but_no_fewer_than_five(instances: int, expected: int) -> None:
    assert epochs(instances) == expected


def test_larger_batches_make_fewer_steps_and_more_epochs_up_to_the_usual_number() -> None:
    assert epochs(256 * 44, batch_size=512) == 14
    assert epochs(256 * 44, batch_size=256 * 44) == EPOCHS


@pytest.mark.parametrize("settings", [{"method": "ure"}, {"method": "count-plain"}, {"encoder": "pca"}])
def test_other_methods_and_encoders_have_the_usual_number(settings: dict[str, object]) -> None:
    assert epochs(256 * 44, **settings) == EPOCHS


def test_small_data_in_few_batches_have_300_steps() -> None:
    """The risk takes all of small data as one batch: thirty steps would have learned nothing."""
    assert epochs(1000, IMAGES, method="ure") == 300
    assert epochs(1024 * 4, IMAGES, method="ure") == 75
    assert epochs(1024 * 44, IMAGES, method="ure") == EPOCHS
    assert epochs(1000, IMAGES) == EPOCHS  # sixteen batches


def test_batches_shrink_where_few_epochs_were_asked_for() -> None:
    """A method that prefers one batch of small data still makes 300 steps, or sixteen an epoch."""
    task = Task([(8, 2, 50)], 400)  # 800 instances
    batches = {epochs: default_batch(task, 1024, 1024, epochs) for epochs in (None, 300, 100, 30, 20, 1)}
    assert batches == {None: 1024, 300: 800, 100: 267, 30: 80, 20: 54, 1: 50}
    assert {default_batch(task, 256, 32, epochs) for epochs in (None, 300, 20, 1)} == {50}


def test_images_have_the_usual_number() -> None:
    assert epochs(256 * 44, IMAGES) == EPOCHS


@pytest.mark.parametrize("instance", [VECTORS, IMAGES])
def test_a_given_number_is_meant(instance: InstanceFormat) -> None:
    assert epochs(256 * 44, instance, epochs=100) == 100
