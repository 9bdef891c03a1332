"""Loading by name, the checks that every source shares, binary labels and fingerprints."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from ntmp_cli.data import labelled
from ntmp_cli.data.labelled import LabelledData, SourceRequest, binary_labels, datasets, load_labelled
from ntmp_cli.errors import DataError, UsageError


@pytest.fixture
def data() -> LabelledData:
    return LabelledData(
        name="toy",
        x_train=np.arange(12, dtype=np.float32).reshape(6, 2),
        y_train=np.array([0, 1, 2, 0, 1, 2]),
        x_test=np.zeros((3, 2), np.float32),
        y_test=np.array([2, 1, 0]),
        classes=("cat", "dog", "eel"),
        positive=("dog",),
    )


def loading(monkeypatch, data: LabelledData) -> LabelledData:
    """Load `data` as if a source had returned it."""
    monkeypatch.setattr(datasets, "get", lambda name: lambda request: data)
    return load_labelled("toy")


def test_every_source_describes_itself_in_one_line():
    summaries = datasets.summaries()
    assert {"mnist", "fashion-mnist", "cifar10", "svhn", "digits", "gaussians", "npz", "folder"} <= summaries.keys()
    assert all(len(summary) > 20 and summary.endswith(".") for summary in summaries.values())


def test_unknown_dataset_suggests_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean 'mnist'"):
        load_labelled("mnits")


def test_argument_is_all_that_follows_the_first_colon(monkeypatch, data, tmp_path):
    requests: list[SourceRequest] = []
    monkeypatch.setattr(datasets, "get", lambda name: lambda request: requests.append(request) or data)
    load_labelled("npz:C:/a:b.npz", root=tmp_path, download=True, resize=3)
    assert requests == [SourceRequest("C:/a:b.npz", tmp_path, True, 3)]


def test_usable_data_are_returned_as_they_are(monkeypatch, data):
    assert loading(monkeypatch, data) is data


@pytest.mark.parametrize("split", ["train", "test"])
def test_empty_split_is_refused(monkeypatch, data, split):
    empty = {f"x_{split}": np.zeros((0, 2), np.float32), f"y_{split}": np.zeros(0, np.int64)}
    with pytest.raises(DataError, match=f"toy: the {split} split is empty"):
        loading(monkeypatch, dataclasses.replace(data, **empty))


def test_labels_that_are_fewer_than_instances_are_refused(monkeypatch, data):
    with pytest.raises(DataError, match="train split has 6 instances but 5 labels"):
        loading(monkeypatch, dataclasses.replace(data, y_train=data.y_train[:5]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_instances_that_are_not_finite_are_counted_and_the_first_is_named(monkeypatch, data, value):
    x = data.x_train.copy()
    x[2, 1] = x[4] = value
    with pytest.raises(DataError, match="2 train instances hold NaN or infinite values, the first at row 2"):
        loading(monkeypatch, dataclasses.replace(data, x_train=x))


def test_binary_labels_use_the_positive_classes_of_the_source(data):
    train, test = binary_labels(data, ())
    assert train.tolist() == [False, True, False, False, True, False]
    assert test.tolist() == [False, True, False]


def test_binary_labels_prefer_the_given_classes(data):
    train, _ = binary_labels(data, ("cat", "eel"))
    assert train.tolist() == [True, False, True, True, False, True]


def test_binary_labels_without_a_positive_class_list_the_classes(data):
    with pytest.raises(UsageError, match=r"which classes are positive.*cat, dog, eel"):
        binary_labels(dataclasses.replace(data, positive=()), ())


def test_binary_labels_refuse_an_unknown_class(data):
    with pytest.raises(UsageError, match="no such class in toy; did you mean 'dog'"):
        binary_labels(data, ("dogs",))


def test_binary_labels_refuse_only_positive_classes(data):
    with pytest.raises(UsageError, match="every class of toy is positive"):
        binary_labels(data, ("cat", "dog", "eel"))


def test_fingerprint_is_the_same_for_equal_data_in_any_memory_order(data):
    copy = dataclasses.replace(data, x_train=np.asfortranarray(data.x_train))
    assert copy.fingerprint() == data.fingerprint()


def test_fingerprint_does_not_depend_on_the_name_of_a_file(data):
    assert dataclasses.replace(data, name="other", notes=("x",)).fingerprint() == data.fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"x_train": np.ones((6, 2), np.float32)},
        {"y_train": np.array([0, 1, 2, 0, 1, 1])},
        {"x_test": np.ones((3, 2), np.float32)},
        {"y_test": np.array([2, 1, 1])},
        {"x_test": np.zeros((3, 1, 2), np.float32)},
        {"classes": ("cat", "dog", "fox")},
        {"scale": 2.0},
    ],
)
def test_fingerprint_changes_with_everything_that_sampling_depends_on(data, change):
    assert dataclasses.replace(data, **change).fingerprint() != data.fingerprint()


def test_listing_sources_does_not_import_heavy_libraries():
    code = (
        "import sys; from ntmp_cli.data.labelled import datasets; datasets.names(); "
        "heavy = {'torch', 'torchvision', 'sklearn', 'scipy', 'PIL'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    root = labelled.__file__.rsplit("ntmp_cli", 1)[0]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)
