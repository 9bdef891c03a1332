"""Every source: exact instances from each layout it accepts, and one clear refusal per failure."""

from __future__ import annotations

import hashlib
import io
import socket
from pathlib import Path
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest
from PIL import Image

from ntmp_cli import vision
from ntmp_cli.data.labelled import LabelledData, binary_labels, load_labelled
from ntmp_cli.data.sources import torchvision_sets
from ntmp_cli.data.sources._shared import default_root
from ntmp_cli.errors import DataError, UsageError

SHAPES = {"mnist": (28, 28), "fashion-mnist": (28, 28), "cifar10": (3, 32, 32), "svhn": (3, 32, 32)}


def refused(dataset: str, **options) -> DataError:
    with pytest.raises(DataError) as caught:
        load_labelled(dataset, **options)
    assert caught.value.hint
    return caught.value


def made_up(name: str, rng) -> dict[str, np.ndarray]:
    """Random images in the shape of the set, channels first, with every label in both splits."""
    sizes = {"train": 20, "test": 10}
    x = {f"x_{k}": rng.integers(0, 256, (n, *SHAPES[name]), dtype=np.uint8) for k, n in sizes.items()}
    y = {f"y_{k}": rng.permutation(np.arange(n) % 10).astype(np.uint8) for k, n in sizes.items()}
    return {**x, **y}


def assert_holds(data: LabelledData, arrays: dict[str, np.ndarray]) -> None:
    for split in ("train", "test"):
        x, y = getattr(data, f"x_{split}"), getattr(data, f"y_{split}")
        expected = arrays[f"x_{split}"]
        np.testing.assert_array_equal(x, expected[:, np.newaxis] if expected.ndim == 3 else expected)
        np.testing.assert_array_equal(y, arrays[f"y_{split}"])
        assert (x.dtype, y.dtype) == (np.uint8, np.int64)
        assert x.flags.c_contiguous
        assert x.flags.writeable  # torch warns about arrays that are not
    assert data.scale == 255.0


# --- published sets: layouts --------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("mnist", "MNIST/raw"),
        ("mnist", "."),
        ("fashion-mnist", "FashionMNIST/raw"),
        ("fashion-mnist", "fashion-mnist"),  # Debian's folder, seen from above
        ("fashion-mnist", "."),  # and from inside
    ],
)
def test_idx_sets_are_read_from_every_layout(write, tmp_path, rng, name, folder, suffix):
    arrays = made_up(name, rng)
    write.idx_set(tmp_path / folder, arrays, suffix)
    data = load_labelled(name, root=tmp_path)
    assert_holds(data, arrays)
    assert data.name == name


@pytest.mark.parametrize("folder", ["cifar-10-batches-py", "."])
def test_cifar10_is_read_from_its_batches_in_order(write, tmp_path, rng, folder):
    arrays = made_up("cifar10", rng)
    write.cifar_set(tmp_path / folder, arrays)
    assert_holds(load_labelled("cifar10", root=tmp_path), arrays)


def test_svhn_is_read_from_matlab_files_with_label_10_as_0(write, tmp_path, rng):
    arrays = made_up("svhn", rng)
    for split in ("train", "test"):
        y = np.where(arrays[f"y_{split}"] == 0, 10, arrays[f"y_{split}"])[:, np.newaxis]
        write.mat(tmp_path / f"{split}_32x32.mat", X=arrays[f"x_{split}"].transpose(2, 3, 1, 0), y=y)
    assert_holds(load_labelled("svhn", root=tmp_path), arrays)


@pytest.mark.parametrize("name", SHAPES)
def test_published_sets_are_read_from_npz(write, tmp_path, rng, name):
    arrays = made_up(name, rng)
    write.npz(tmp_path / f"{name}.npz", **arrays)
    assert_holds(load_labelled(name, root=tmp_path), arrays)


@pytest.mark.parametrize("name", ["cifar10", "svhn"])
def test_npz_images_may_have_channels_last_and_labels_may_be_a_column(write, tmp_path, rng, name):
    arrays = made_up(name, rng)
    stored = {k: v.transpose(0, 2, 3, 1) if k.startswith("x") else v[:, np.newaxis] for k, v in arrays.items()}
    write.npz(tmp_path / f"{name}.npz", **stored)
    assert_holds(load_labelled(name, root=tmp_path), arrays)


def test_svhn_npz_may_write_digit_0_as_label_10(write, tmp_path, rng):
    arrays = made_up("svhn", rng)
    stored = {k: np.where(v == 0, 10, v) if k.startswith("y") else v for k, v in arrays.items()}
    write.npz(tmp_path / "svhn.npz", **stored)
    assert_holds(load_labelled("svhn", root=tmp_path), arrays)


def test_uncompressed_files_win_over_compressed_ones(write, tmp_path, rng):
    arrays = made_up("mnist", rng)
    write.idx_set(tmp_path / "MNIST/raw", made_up("mnist", rng), ".gz")
    write.idx_set(tmp_path / "MNIST/raw", arrays)
    assert_holds(load_labelled("mnist", root=tmp_path), arrays)


def test_a_complete_npz_is_used_beside_an_incomplete_folder(write, tmp_path, rng):
    arrays = made_up("mnist", rng)
    write.idx(tmp_path / "MNIST/raw/train-images-idx3-ubyte", arrays["x_train"])
    write.npz(tmp_path / "mnist.npz", **arrays)
    assert_holds(load_labelled("mnist", root=tmp_path), arrays)


@pytest.mark.parametrize(
    ("name", "positive"),
    [
        ("mnist", ["0", "2", "4", "6", "8"]),
        ("svhn", ["0", "2", "4", "6", "8"]),
        ("fashion-mnist", ["T-shirt/top", "Pullover", "Coat", "Shirt", "Bag"]),
        ("cifar10", ["airplane", "bird", "cat", "dog", "horse", "truck"]),
    ],
)
def test_positive_classes_are_those_of_the_paper(write, tmp_path, rng, name, positive):
    write.npz(tmp_path / f"{name}.npz", **made_up(name, rng))
    data = load_labelled(name, root=tmp_path)
    train, _ = binary_labels(data, ())
    assert {data.classes[y] for y in data.y_train[train]} == set(positive)
    assert {data.classes[y] for y in data.y_train[~train]} == set(data.classes) - set(positive)


def test_a_subset_of_a_published_set_is_noted(write, tmp_path, rng):
    write.npz(tmp_path / "svhn.npz", **made_up("svhn", rng))
    assert load_labelled("svhn", root=tmp_path).notes == (
        "20 train and 10 test instances, where the published svhn has 73257 and 26032",
    )


def test_root_may_start_with_a_tilde(write, tmp_path, rng, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data").mkdir()
    arrays = made_up("mnist", rng)
    write.npz(tmp_path / "data/mnist.npz", **arrays)
    assert_holds(load_labelled("mnist", root=Path("~/data")), arrays)


def test_without_a_root_the_user_cache_is_searched(write, tmp_path, rng, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "ntmp").mkdir()
    arrays = made_up("mnist", rng)
    write.npz(tmp_path / "ntmp/mnist.npz", **arrays)
    assert_holds(load_labelled("mnist"), arrays)


@pytest.mark.parametrize("cache", [None, "", "relative/cache"])
def test_default_root_is_in_the_home_folder_unless_the_cache_is_an_absolute_path(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if cache is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", cache)
    assert default_root() == tmp_path / ".cache" / "ntmp"


# --- published sets: failures -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sought"),
    [
        ("mnist", ["MNIST/raw/train-images-idx3-ubyte", "train-images-idx3-ubyte", "mnist.npz"]),
        ("fashion-mnist", ["FashionMNIST/raw/train-images-idx3-ubyte", "fashion-mnist.npz"]),
        ("cifar10", ["cifar-10-batches-py/data_batch_1", "cifar10.npz"]),
        ("svhn", ["train_32x32.mat", "svhn.npz"]),
    ],
)
def test_a_set_that_is_nowhere_names_every_place_searched(tmp_path, name, sought):
    error = refused(name, root=tmp_path)
    assert error.message.startswith(f"{name}: not found; searched")
    for path in sought:
        assert f"{tmp_path}/{path}" in error.message
    for advice in ("--data-root", "NTMP_DATA", "--download"):
        assert advice in error.hint


def test_an_incomplete_set_names_the_missing_files(write, tmp_path, rng):
    folder = write.idx_set(tmp_path / "MNIST/raw", made_up("mnist", rng))
    (folder / "t10k-labels-idx1-ubyte").unlink()
    assert refused("mnist", root=tmp_path).message == f"{folder}: mnist is incomplete, missing t10k-labels-idx1-ubyte"


def test_a_truncated_file_of_a_set_is_named(write, tmp_path, rng):
    folder = write.idx_set(tmp_path / "MNIST/raw", made_up("mnist", rng))
    path = folder / "t10k-images-idx3-ubyte"
    write.bytes(path, path.read_bytes()[:-5])
    assert refused("mnist", root=tmp_path).message.startswith(f"{path}: truncated")


def test_labels_of_another_set_are_refused(write, tmp_path, rng):
    arrays = made_up("mnist", rng)
    arrays["y_train"][3] = 26
    write.npz(tmp_path / "mnist.npz", **arrays)
    assert "mnist has no label 26 (row 3; 1 such labels)" in refused("mnist", root=tmp_path).message


def test_label_10_is_a_digit_only_in_svhn(write, tmp_path, rng):
    arrays = made_up("cifar10", rng)
    arrays["y_test"][0] = 10
    write.npz(tmp_path / "cifar10.npz", **arrays)
    assert "cifar10 has no label 10" in refused("cifar10", root=tmp_path).message


def test_fewer_labels_than_images_are_refused(write, tmp_path, rng):
    arrays = made_up("mnist", rng)
    write.idx_set(tmp_path / "MNIST/raw", {**arrays, "y_train": arrays["y_train"][:-1]})
    assert "20 images but 19 labels" in refused("mnist", root=tmp_path).message


@pytest.mark.parametrize(
    "change",
    [
        {"x_train": np.zeros((20, 28, 28), np.uint8)},
        {"x_train": np.zeros((20, 3, 32, 32), np.float32)},
        {"x_train": np.uint8(3)},
        {"y_train": np.zeros(20)},
        {"y_train": np.zeros((20, 10), np.uint8)},
        {"y_train": np.uint8(3)},
    ],
)
def test_npz_of_a_published_set_with_other_arrays_is_refused(write, tmp_path, rng, change):
    path = write.npz(tmp_path / "cifar10.npz", **{**made_up("cifar10", rng), **change})
    assert refused("cifar10", root=tmp_path).message.startswith(f"{path}: ")


def test_the_files_of_fashion_mnist_are_not_taken_for_mnist(write, tmp_path, rng, monkeypatch):
    arrays = made_up("fashion-mnist", rng)
    digest = hashlib.sha256(arrays["y_train"].tobytes()).hexdigest()
    monkeypatch.setitem(torchvision_sets._TRAIN_LABELS, digest, "fashion-mnist")
    write.idx_set(tmp_path, arrays, ".gz")
    assert_holds(load_labelled("fashion-mnist", root=tmp_path), arrays)
    assert "these are the files of fashion-mnist, not of mnist" in refused("mnist", root=tmp_path).message


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "svhn", "digits"])
def test_sources_without_an_argument_refuse_one(name):
    with pytest.raises(UsageError, match=f"{name}:foo: {name} takes no argument"):
        load_labelled(f"{name}:foo")


@pytest.mark.parametrize("name", ["mnist", "digits", "gaussians", "npz:a.npz"])
def test_sources_that_cannot_resize_say_so(name):
    with pytest.raises(UsageError, match="--resize 8"):
        load_labelled(name, resize=8)


# --- published sets: download -------------------------------------------------------------------


def fake_torchvision(monkeypatch, name: str, fetch) -> None:
    module = SimpleNamespace(datasets=SimpleNamespace(**{name: fetch}))
    monkeypatch.setattr(vision, "torchvision_module", lambda: module)


def test_download_fetches_into_the_root_and_is_read_by_the_readers(write, tmp_path, rng, monkeypatch, capsys):
    arrays, calls = made_up("svhn", rng), []

    def fetch(root, split, download):
        calls.append((root, split, download, socket.getdefaulttimeout()))
        print("Downloading")  # noqa: T201 (as old versions of torchvision do)
        Path(root).mkdir(exist_ok=True)
        x, y = arrays[f"x_{split}"].transpose(2, 3, 1, 0), arrays[f"y_{split}"]
        write.mat(Path(root) / f"{split}_32x32.mat", X=x, y=y)

    fake_torchvision(monkeypatch, "SVHN", fetch)
    root = tmp_path / "new"
    assert_holds(load_labelled("svhn", root=root, download=True), arrays)
    assert calls == [(str(root), "train", True, 60.0), (str(root), "test", True, 60.0)]
    assert socket.getdefaulttimeout() is None
    assert capsys.readouterr().out == ""


def test_download_is_skipped_when_the_set_exists(write, tmp_path, rng, monkeypatch):
    def fetch(**_):
        raise AssertionError("must not be called")

    fake_torchvision(monkeypatch, "MNIST", fetch)
    arrays = made_up("mnist", rng)
    write.npz(tmp_path / "mnist.npz", **arrays)
    assert_holds(load_labelled("mnist", root=tmp_path, download=True), arrays)


@pytest.mark.parametrize(
    "failure",
    [
        URLError("Name or service not known"),
        RuntimeError("Error downloading a.gz:\nTried http://x, got:\nName or service not known\n"),
        TimeoutError("Name or service not known"),
        PermissionError(13, "Name or service not known"),
    ],
)
def test_download_that_fails_says_why_and_what_to_do(tmp_path, monkeypatch, failure):
    def fetch(**_):
        raise failure

    fake_torchvision(monkeypatch, "CIFAR10", fetch)
    error = refused("cifar10", root=tmp_path, download=True)
    assert error.message.startswith(f"cifar10: the download into {tmp_path} failed (")
    assert "Name or service not known" in error.message
    assert "\n" not in error.message
    assert "--data-root" in error.hint


def test_torchvision_can_be_imported_with_datasets_transforms_and_models():
    module = vision.torchvision_module()
    assert vision.torchvision_module() is module
    for name in ("MNIST", "FashionMNIST", "CIFAR10", "SVHN"):
        assert hasattr(module.datasets, name)
    assert module.models.resnet18 is not None
    assert module.transforms.Compose is not None


# --- digits -------------------------------------------------------------------------------------


def test_digits_are_split_the_same_way_every_time():
    first, second = load_labelled("digits"), load_labelled("digits")
    assert first.fingerprint() == second.fingerprint()
    assert first.x_train.shape == (1438, 1, 8, 8)
    assert first.x_test.shape == (359, 1, 8, 8)


def test_digits_are_all_there_with_their_labels():
    from sklearn.datasets import load_digits

    data, original = load_labelled("digits"), load_digits()
    together = [(x.tobytes(), int(y)) for x, y in zip(data.x_train, data.y_train, strict=True)]
    together += [(x.tobytes(), int(y)) for x, y in zip(data.x_test, data.y_test, strict=True)]
    expected = zip(original.images.astype(np.uint8), original.target, strict=True)
    assert sorted(together) == sorted((x.tobytes(), int(y)) for x, y in expected)
    assert (data.x_train.dtype, data.scale, int(data.x_train.max())) == (np.uint8, 16.0, 16)
    assert data.positive == ("0", "2", "4", "6", "8")


# --- gaussians ----------------------------------------------------------------------------------


def test_gaussians_have_the_documented_defaults():
    data = load_labelled("gaussians")
    assert data.name == "gaussians"
    assert (data.x_train.shape, data.x_test.shape) == ((20_000, 2), (10_000, 2))
    assert data.x_train.dtype == np.float32
    assert (data.classes, data.positive) == (("negative", "positive"), ("positive",))
    assert data.y_train.mean() == data.y_test.mean() == 0.5
    assert data.fingerprint() == load_labelled("gaussians:dim=2, separation=2").fingerprint()


def test_gaussians_have_the_requested_means_and_unit_covariance():
    data = load_labelled("gaussians:dim=3,separation=1.5,size=100000,test=2")
    for label, sign in ((0, -1), (1, 1)):
        x = data.x_train[data.y_train == label]
        np.testing.assert_allclose(x.mean(axis=0), [sign * 0.75, 0, 0], atol=0.02)
        np.testing.assert_allclose(np.cov(x.T), np.eye(3), atol=0.03)


def test_gaussians_test_split_does_not_depend_on_the_training_size():
    small, large = load_labelled("gaussians:size=10"), load_labelled("gaussians:size=30")
    np.testing.assert_array_equal(small.x_test, large.x_test)
    assert (small.name, len(small.x_train)) == ("gaussians:size=10", 10)


def test_gaussians_of_an_odd_size_are_balanced_but_for_one():
    assert load_labelled("gaussians:size=11").y_train.sum() == 5


@pytest.mark.parametrize(
    ("argument", "problem"),
    [
        ("seperation=2", "did you mean 'separation'"),
        ("5", "unknown parameter '5'"),
        ("dim=2.5", "dim must be a whole number"),
        ("dim=0", "dim must be at least 1"),
        ("dim=", "dim must be a whole number"),
        ("separation=wide", "separation must be a number"),
        ("separation=nan", "separation must be finite"),
        ("separation=-1", "separation must be finite and not negative"),
        ("size=1", "size and test must be at least 2"),
        ("dim=2,dim=3", "dim is given twice"),
        ("size=100000000000", "at most 1,000,000,000 values"),
    ],
)
def test_gaussians_refuse_what_cannot_be_meant(argument, problem):
    with pytest.raises(UsageError, match=problem) as caught:
        load_labelled(f"gaussians:{argument}")
    assert "gaussians[:dim=2" in caught.value.hint


# --- npz ----------------------------------------------------------------------------------------


def four(x: np.ndarray, y: object, test: int = 4) -> dict[str, np.ndarray]:
    """The arrays of a split file; the last `test` rows are for testing."""
    labels = np.asarray(y)
    return {"x_train": x[:-test], "y_train": labels[:-test], "x_test": x[-test:], "y_test": labels[-test:]}


Y = np.arange(12) % 2


def test_npz_features_become_float32(write, tmp_path, rng):
    x = rng.normal(size=(12, 5))
    data = load_labelled(f"npz:{write.npz(tmp_path / 'mine.npz', **four(x, Y))}")
    np.testing.assert_array_equal(data.x_train, x[:8].astype(np.float32))
    np.testing.assert_array_equal(data.x_test, x[8:].astype(np.float32))
    assert (data.x_train.dtype, data.scale, data.notes) == (np.float32, 1.0, ())
    np.testing.assert_array_equal(data.y_train, Y[:8])


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.int64, np.float16, ">f8"])
def test_npz_features_of_any_number_type_are_kept_by_value(write, tmp_path, rng, dtype):
    x = rng.integers(0, 2, (12, 5)).astype(dtype)
    data = load_labelled(f"npz:{write.npz(tmp_path / 'mine.npz', **four(x, Y))}")
    np.testing.assert_array_equal(data.x_train, x[:8].astype(float))
    assert (data.x_train.dtype, data.scale) == (np.dtype("=f4"), 1.0)


def test_npz_name_never_tells_the_folder(write, tmp_path, rng):
    path = write.npz(tmp_path / "mine.npz", **four(rng.normal(size=(12, 5)), Y))
    data = load_labelled(f"npz:{path}")
    assert data.name == "npz:mine.npz"
    assert str(tmp_path) not in repr((data.name, data.notes, data.classes))


def test_npz_path_may_start_with_a_tilde(write, tmp_path, rng, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write.npz(tmp_path / "mine.npz", **four(rng.normal(size=(12, 5)), Y))
    assert load_labelled("npz:~/mine.npz").name == "npz:mine.npz"


def test_npz_without_a_split_gets_a_fixed_one_and_says_so(write, tmp_path):
    x, y = np.arange(100.0)[:, np.newaxis], np.arange(100) % 2
    path = write.npz(tmp_path / "mine.npz", x=x, y=y)
    data = load_labelled(f"npz:{path}")
    assert (len(data.x_train), len(data.x_test)) == (80, 20)
    assert sorted([*data.x_train.ravel(), *data.x_test.ravel()]) == list(range(100))
    np.testing.assert_array_equal(data.x_train.ravel() % 2, data.y_train)
    assert "80/20" in data.notes[0]
    assert data.fingerprint() == load_labelled(f"npz:{path}").fingerprint()


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((12, 6, 5), None),
        ((12, 6, 5, 1), (0, 3, 1, 2)),
        ((12, 6, 5, 3), (0, 3, 1, 2)),
        ((12, 6, 5, 4), (0, 3, 1, 2)),
        ((12, 3, 6, 5), (0, 1, 2, 3)),
        ((12, 1, 6, 5), (0, 1, 2, 3)),
    ],
)
@pytest.mark.parametrize(("dtype", "scale"), [(np.uint8, 255.0), (np.float32, 1.0)])
def test_npz_images_of_any_layout_are_read_exactly(write, tmp_path, rng, shape, axes, dtype, scale):
    x = rng.integers(0, 256, shape).astype(dtype)
    data = load_labelled(f"npz:{write.npz(tmp_path / 'mine.npz', **four(x, Y))}")
    np.testing.assert_array_equal(data.x_train, (x.transpose(axes) if axes else x[:, np.newaxis])[:8])
    assert (data.x_train.dtype, data.scale) == (dtype, scale)
    assert data.x_train.flags.c_contiguous


@pytest.mark.parametrize(
    ("shape", "read"),
    [((1, 4, 4), (1, 4, 4)), ((4, 4, 1), (1, 4, 4)), ((3, 4, 4), (3, 4, 4)), ((3, 8, 3), (3, 3, 8))],
)
def test_npz_images_with_two_possible_channel_axes_are_noted(write, tmp_path, shape, read):
    x = np.zeros((12, *shape), np.uint8)
    data = load_labelled(f"npz:{write.npz(tmp_path / 'mine.npz', **four(x, Y))}")
    assert data.x_train.shape[1:] == read
    assert "ambiguous" in data.notes[0]


@pytest.mark.parametrize(
    ("y", "classes", "positive"),
    [
        ([0, 1] * 6, ("0", "1"), ("1",)),
        ([-1, 1] * 6, ("-1", "1"), ("1",)),
        ([1.0, -1.0] * 6, ("-1", "1"), ("1",)),
        (np.array([0.0, 1.0] * 6, np.float16), ("0", "1"), ("1",)),
        ([True, False] * 6, ("False", "True"), ("True",)),
        ([1, 2] * 6, ("1", "2"), ()),
        ([10, 9, 2] * 4, ("2", "9", "10"), ()),
        (["dog", "cat"] * 6, ("cat", "dog"), ()),
        ([b"dog", b"cat"] * 6, ("cat", "dog"), ()),
        (["0", "1"] * 6, ("0", "1"), ("1",)),
        (np.array([0, 1] * 6)[:, np.newaxis], ("0", "1"), ("1",)),
    ],
)
def test_npz_labels_become_classes(write, tmp_path, y, classes, positive):
    path = write.npz(tmp_path / "mine.npz", **four(np.zeros((12, 2)), y))
    data = load_labelled(f"npz:{path}")
    assert (data.classes, data.positive) == (classes, positive)
    plain = [v.decode() if isinstance(v, bytes) else v for v in np.asarray(y).ravel().tolist()]
    names = [str(int(v)) if isinstance(v, float) else str(v) for v in plain]
    assert [classes[i] for i in (*data.y_train, *data.y_test)] == names


def test_npz_classes_are_taken_from_both_splits(write, tmp_path):
    path = write.npz(tmp_path / "mine.npz", **four(np.zeros((12, 2)), [5] * 8 + [3] * 4))
    data = load_labelled(f"npz:{path}")
    assert data.classes == ("3", "5")
    assert (set(data.y_train), set(data.y_test)) == ({1}, {0})


X = np.zeros((12, 2))
IMAGES = np.zeros((12, 6, 5, 3), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        (four(X, [0.0, np.nan] * 6), "4 train labels are NaN, the first at row 1"),
        (four(X, [0.5, 1.0] * 6), "not classes but real numbers"),
        (four(X, [np.inf, 1.0] * 6), "not classes but real numbers"),
        (four(X, ["a", ""] * 6), "train label at row 1 is empty"),
        (four(X, [b"a", b"\xff"] * 6), "not UTF-8"),
        (four(X, [1j, 2] * 6), "labels of type complex128 are not classes"),
        (four(X, np.array([0, None] * 6, dtype=object)), "y_train is an array of Python objects"),
        (four(X.astype(object), Y), "x_train is an array of Python objects"),
        (four(X, np.eye(12)), "expected one label per instance"),
        (four(X, [7] * 12), "every instance is of class '7'"),
        ({**four(X, Y), "y_train": Y}, "x_train has 8 instances but y_train has 12 labels"),
        ({**four(X, Y), "y_test": np.array(["a"] * 4)}, "train labels are int64 but the test labels <U1"),
        ({**four(X, Y), "x_test": np.zeros((4, 3))}, "differ in shape"),
        ({**four(X, Y), "x_test": np.zeros((0, 2)), "y_test": Y[:0]}, "x_test is empty"),
        ({**four(IMAGES, Y), "x_test": IMAGES[:4].astype(float)}, "images differ in type"),
        (four(np.zeros(12), Y), r"instances have shape \(\)"),
        (four(np.zeros((12, 0)), Y), r"instances have shape \(0,\)"),
        (four(np.zeros((12, 2, 2, 2, 2)), Y), "instances have shape"),
        (four(np.zeros((12, 6, 5, 2), np.uint8), Y), "no axis of 1, 3 or 4 channels"),
        (four(IMAGES.astype(np.int32), Y), "images of type int32 have no known range"),
        (four(np.full((12, 2), "a"), Y), "not numbers"),
        (four(np.full((12, 2), 1e300), Y), "NaN or infinite values, the first at row 0"),
        (four(np.full((12, 2), np.nan), Y), "NaN or infinite values, the first at row 0"),
        ({"x": X, "y": np.array(3)}, "y is a single value"),
        ({"x": X[:1], "y": Y[:1]}, "1 instances cannot be split"),
        ({"x_train": X, "y_train": Y}, "holds x_train, y_train"),
    ],
)
def test_npz_that_cannot_be_used_is_refused(write, tmp_path, arrays, problem):
    path = write.npz(tmp_path / "mine.npz", **arrays)
    with pytest.raises(DataError, match=problem) as caught:
        load_labelled(f"npz:{path}")
    assert caught.value.hint


def test_npz_that_is_missing_is_named(tmp_path):
    assert refused(f"npz:{tmp_path}/absent.npz").message == f"{tmp_path}/absent.npz: no such file"


@pytest.mark.parametrize("name", ["npz", "npz:", "folder", "folder:"])
def test_sources_that_need_a_path_ask_for_it(name):
    with pytest.raises(UsageError, match="a path is needed"):
        load_labelled(name)


def test_home_of_an_unknown_user_is_refused():
    with pytest.raises(UsageError, match="no such user"):
        load_labelled("npz:~no-such-user-here/a.npz")


# --- folder -------------------------------------------------------------------------------------


def write_image(path: Path, pixels: np.ndarray) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def colours(tmp_path, rng) -> tuple[Path, dict[str, np.ndarray]]:
    """A folder with a train and a test split of two classes, written in an order that is not sorted."""
    root = tmp_path / "pets"
    names = [
        "train/dog/b.png",
        "train/cat/2.png",
        "train/dog/a.BMP",
        "train/cat/10.png",
        "test/dog/x.tif",
        "test/cat/y.png",
    ]
    return root, {name: write_image(root / name, rng.integers(0, 256, (4, 6, 3), dtype=np.uint8)) for name in names}


def test_folder_is_read_exactly_in_sorted_order(colours):
    root, pixels = colours
    data = load_labelled(f"folder:{root}")
    order = ["train/cat/10.png", "train/cat/2.png", "train/dog/a.BMP", "train/dog/b.png"]
    np.testing.assert_array_equal(data.x_train, np.stack([pixels[n].transpose(2, 0, 1) for n in order]))
    np.testing.assert_array_equal(data.x_test[1], pixels["test/dog/x.tif"].transpose(2, 0, 1))
    assert (data.y_train.tolist(), data.y_test.tolist()) == ([0, 0, 1, 1], [0, 1])
    assert (data.name, data.classes, data.scale, data.notes) == ("folder:pets", ("cat", "dog"), 255.0, ())
    assert data.x_train.flags.c_contiguous


def test_folder_name_never_tells_the_path(colours, monkeypatch):
    root, _ = colours
    monkeypatch.chdir(root)
    assert load_labelled("folder:.").name == "folder:pets"


def test_folder_of_gray_images_has_one_channel(tmp_path, rng):
    gray = [write_image(tmp_path / f"{i % 2}/{i}.png", rng.integers(0, 256, (4, 6), dtype=np.uint8)) for i in range(10)]
    data = load_labelled(f"folder:{tmp_path}")
    assert data.x_train.shape == (8, 1, 4, 6)
    together = np.concatenate([data.x_train, data.x_test])[:, 0]
    assert sorted(x.tobytes() for x in together) == sorted(x.tobytes() for x in gray)
    assert data.positive == ("1",)


def test_folder_of_mixed_images_is_read_in_colour(colours, rng):
    root, _ = colours
    gray = write_image(root / "train/cat/0.png", rng.integers(0, 256, (4, 6), dtype=np.uint8))
    data = load_labelled(f"folder:{root}")
    x = data.x_train
    assert x.shape == (5, 3, 4, 6)
    for channel in x[0]:
        np.testing.assert_array_equal(channel, gray)
    assert any(note.startswith("images in gray (train/cat/0.png) and in colour (train/") for note in data.notes)


def test_folder_without_a_split_gets_a_fixed_one_and_says_so(tmp_path):
    for i in range(20):
        write_image(tmp_path / f"{'ab'[i % 2]}/{i}.png", np.full((2, 2), i, np.uint8))
    data = load_labelled(f"folder:{tmp_path}")
    assert (len(data.x_train), len(data.x_test)) == (16, 4)
    np.testing.assert_array_equal(data.x_train[:, 0, 0, 0] % 2, data.y_train)
    assert "80/20" in data.notes[0]
    assert data.fingerprint() == load_labelled(f"folder:{tmp_path}").fingerprint()


def test_folder_named_train_that_holds_images_is_a_class(tmp_path):
    for i in range(5):
        write_image(tmp_path / f"train/{i}.png", np.zeros((2, 2), np.uint8))
        write_image(tmp_path / f"bus/{i}.png", np.zeros((2, 2), np.uint8))
    assert load_labelled(f"folder:{tmp_path}").classes == ("bus", "train")


def test_folder_notes_what_it_did_not_read(colours):
    root, _ = colours
    write_image(root / "val/cat/1.png", np.zeros((9, 9, 3), np.uint8))
    assert load_labelled(f"folder:{root}").notes == ("folders beside train/ and test/ were not read: val",)


def test_folder_skips_hidden_and_other_files(colours):
    root, _ = colours
    for name in ("train/cat/.hidden.png", "train/cat/notes.txt", "README.md", "train/.cache/x.png"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("not an image")
    assert len(load_labelled(f"folder:{root}").x_train) == 4


def test_folder_of_mixed_sizes_names_two_files(colours):
    root, _ = colours
    write_image(root / "train/dog/c.png", np.zeros((5, 8, 3), np.uint8))
    error = refused(f"folder:{root}")
    assert "train/cat/10.png is 6x4 but train/dog/c.png is 8x5" in error.message
    assert "--resize" in error.hint


def test_folder_of_mixed_sizes_is_resized_on_request(colours):
    root, _ = colours
    write_image(root / "train/dog/c.png", np.full((5, 8, 3), 9, np.uint8))
    data = load_labelled(f"folder:{root}", resize=7)
    assert data.x_train.shape == (5, 3, 7, 7)
    assert (data.x_train[4] == 9).all()


def test_folder_lists_corrupt_images_in_one_message(colours):
    root, _ = colours
    good = io.BytesIO()
    Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(good, "PNG")
    for i in range(25):
        (root / f"train/cat/bad{i:02}.png").write_bytes(good.getvalue()[: i * 2])
    message = refused(f"folder:{root}").message
    assert "25 of 31 images cannot be read" in message
    assert message.count("bad") == 20
    assert "bad00.png" in message
    assert "and 5 more" in message


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        (["train/cat/1.png", "train/dog/1.png"], "has train/ with classes but no test/"),
        (["test/cat/1.png", "test/dog/1.png"], "has test/ with classes but no train/"),
        (["cat/1.png"], "every instance is of class 'cat'"),
        (["cat/1.png", "dog/readme.txt"], "dog: holds no images"),
        (["1.png"], "holds no folders of images"),
    ],
)
def test_folder_of_another_layout_is_refused(tmp_path, files, problem):
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".png"):
            write_image(tmp_path / name, np.zeros((2, 2), np.uint8))
        else:
            (tmp_path / name).touch()
    assert problem in refused(f"folder:{tmp_path}").message


def test_folder_that_is_missing_or_a_file_is_named(tmp_path):
    (tmp_path / "file").touch()
    assert refused(f"folder:{tmp_path}/absent").message == f"{tmp_path}/absent: no such folder"
    assert refused(f"folder:{tmp_path}/file").message == f"{tmp_path}/file: not a folder"


def test_path_that_the_system_cannot_look_at_is_refused(tmp_path):
    assert "cannot be read" in refused(f"folder:{tmp_path}/{'x' * 5000}").message
    assert "cannot be read" in refused("mnist", root=tmp_path / ("x" * 5000)).message
