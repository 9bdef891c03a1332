"""The four image sets of the paper, as torchvision lays them out or as NAME.npz.

torchvision only downloads; files are read by `ntmp_cli.data.formats`, so that offline machines can
use whichever copy they have.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import socket
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.folders import looking_at
from ntmp_cli.data.formats import (
    Images,
    Labels,
    read_cifar_batch,
    read_idx,
    read_npz,
    read_svhn_mat,
    svhn_digits,
)
from ntmp_cli.data.labelled import LabelledData, SourceRequest, datasets
from ntmp_cli.data.sources._shared import default_root, expand, refuse_argument, refuse_resize
from ntmp_cli.errors import DataError

Arrays = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]  # x_train, y_train, x_test, y_test

_STALLED_SECONDS = 60.0


@dataclass(frozen=True)
class Location:
    """A possible location of a data set: its files, each at one of several paths, and how to read them."""

    shown: Path
    files: tuple[tuple[Path, ...], ...]
    read: Callable[[Sequence[Path]], Arrays]

    def present(self) -> list[Path]:
        return [path for paths in self.files if (path := next(filter(Path.is_file, paths), None))]

    def missing(self) -> list[str]:
        return [paths[0].name for paths in self.files if not any(map(Path.is_file, paths))]


@dataclass(frozen=True)
class ImageSet:
    """Properties of a published data set, and its possible locations below a root."""

    name: str
    shape: tuple[int, int, int]
    sizes: tuple[int, int]
    classes: tuple[str, ...]
    positive: tuple[str, ...]
    locations: Callable[[Path], list[Location]]
    torchvision: str
    splits: tuple[Mapping[str, Any], ...] = ({"train": True},)


# --- locations -----------------------------------------------------------------------------------

_IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CIFAR_FILES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
_SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")
_NPZ_KEYS = ("x_train", "y_train", "x_test", "y_test")


def idx_locations(*folders: str) -> Callable[[Path], list[Location]]:
    """The four IDX files, raw or gzipped, in one of `folders` or in the root itself."""

    def locations(root: Path) -> list[Location]:
        return [
            Location(place, tuple((place / name, place / f"{name}.gz") for name in _IDX_FILES), _read_idx_files)
            for place in (*(root / folder for folder in folders), root)
        ]

    return locations


def cifar_locations(root: Path) -> list[Location]:
    """The six batches, in torchvision's folder or in the root itself."""
    return [
        Location(location, tuple((location / name,) for name in _CIFAR_FILES), _read_cifar_files)
        for location in (root / "cifar-10-batches-py", root)
    ]


def svhn_locations(root: Path) -> list[Location]:
    """The two files of cropped digits in the root."""
    return [Location(root, tuple((root / name,) for name in _SVHN_FILES), _read_svhn_files)]


def npz_location(root: Path, name: str) -> Location:
    """NAME.npz in the root."""
    path = root / f"{name}.npz"
    return Location(path, ((path,),), _read_npz_file)


def _read_idx_files(files: Sequence[Path]) -> Arrays:
    x_train, y_train, x_test, y_test = (read_idx(file, dims) for file, dims in zip(files, (3, 1, 3, 1), strict=True))
    return x_train, y_train, x_test, y_test


def _read_cifar_files(files: Sequence[Path]) -> Arrays:
    *train, test = (read_cifar_batch(file) for file in files)
    return np.concatenate([x for x, _ in train]), np.concatenate([y for _, y in train]), *test


def _read_svhn_files(files: Sequence[Path]) -> Arrays:
    train, test = (read_svhn_mat(file) for file in files)
    return *train, *test


def _read_npz_file(files: Sequence[Path]) -> Arrays:
    arrays = read_npz(files[0], (_NPZ_KEYS,))
    return arrays["x_train"], arrays["y_train"], arrays["x_test"], arrays["y_test"]


# --- the sets ---------------------------------------------------------------------------------

_DIGITS = tuple(str(digit) for digit in range(10))

MNIST = ImageSet(
    name="mnist",
    shape=(1, 28, 28),
    sizes=(60_000, 10_000),
    classes=_DIGITS,
    positive=_DIGITS[::2],
    locations=idx_locations("MNIST/raw", "mnist"),
    torchvision="MNIST",
)
FASHION_MNIST = ImageSet(
    name="fashion-mnist",
    shape=(1, 28, 28),
    sizes=(60_000, 10_000),
    classes=(
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
    positive=("T-shirt/top", "Pullover", "Coat", "Shirt", "Bag"),
    # Debian's dataset-fashion-mnist installs /usr/share/datasets/fashion-mnist.
    locations=idx_locations("FashionMNIST/raw", "fashion-mnist"),
    torchvision="FashionMNIST",
)
CIFAR10 = ImageSet(
    name="cifar10",
    shape=(3, 32, 32),
    sizes=(50_000, 10_000),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    positive=("airplane", "bird", "cat", "dog", "horse", "truck"),
    locations=cifar_locations,
    torchvision="CIFAR10",
)
SVHN = ImageSet(
    name="svhn",
    shape=(3, 32, 32),
    sizes=(73_257, 26_032),
    classes=_DIGITS,
    positive=_DIGITS[::2],
    locations=svhn_locations,
    torchvision="SVHN",
    splits=({"split": "train"}, {"split": "test"}),
)

# MNIST and FashionMNIST have the same file names and shapes; only the content, here the SHA-256 of
# the training labels as bytes, can tell that a folder holds the other one.
_TRAIN_LABELS = {
    "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13": MNIST.name,
    "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7": FASHION_MNIST.name,
}


@datasets.register(MNIST.name)
def mnist(request: SourceRequest) -> LabelledData:
    """70,000 handwritten digits of 28x28 pixels; even digits are positive."""
    return load(MNIST, request)


@datasets.register(FASHION_MNIST.name)
def fashion_mnist(request: SourceRequest) -> LabelledData:
    """70,000 garments of 28x28 pixels; T-shirt/top, Pullover, Coat, Shirt and Bag are positive."""
    return load(FASHION_MNIST, request)


@datasets.register(CIFAR10.name)
def cifar10(request: SourceRequest) -> LabelledData:
    """60,000 colour images of 32x32 pixels; airplane, bird, cat, dog, horse and truck are positive."""
    return load(CIFAR10, request)


@datasets.register(SVHN.name)
def svhn(request: SourceRequest) -> LabelledData:
    """99,289 house-number digits in colour, 32x32 pixels; even digits are positive."""
    return load(SVHN, request)


# --- loading ----------------------------------------------------------------------------------


def load(known: ImageSet, request: SourceRequest) -> LabelledData:
    """Find the set below the root, downloading it first if requested and needed, and check what was read."""
    refuse_argument(known.name, request)
    refuse_resize(known.name, request)
    root = expand(request.root or default_root())
    locations = [*known.locations(root), npz_location(root, known.name)]
    with looking_at(root):
        if request.download and all(location.missing() for location in locations):
            download(known, root)
        location = choose(known.name, locations)
    files = location.present()
    x_train, y_train, x_test, y_test = location.read(files)
    train, test = labels(known, location.shown, x_train, y_train), labels(known, location.shown, x_test, y_test)
    owner = _TRAIN_LABELS.get(hashlib.sha256(train.astype(np.uint8).tobytes()).hexdigest(), known.name)
    if owner != known.name:
        raise DataError(
            f"{location.shown}: these are the files of {owner}, not of {known.name}",
            hint=f"Choose {owner}, or pass --data-root with the folder that holds {known.name}.",
        )
    return LabelledData(
        name=known.name,
        x_train=images(known, location.shown, x_train),
        y_train=train,
        x_test=images(known, location.shown, x_test),
        y_test=test,
        classes=known.classes,
        positive=known.positive,
        scale=255.0,
        notes=size_notes(known, (len(train), len(test))),
        files=tuple(files),
    )


def choose(name: str, locations: Sequence[Location]) -> Location:
    """The first location that holds all its files, or a DataError that names every location."""
    for location in locations:
        if not location.missing():
            return location
    for location in locations:
        if location.present():
            raise DataError(
                f"{location.shown}: {name} is incomplete, missing {', '.join(location.missing())}",
                hint="Add the missing files, or pass --download to fetch them.",
            )
    raise DataError(
        f"{name}: not found; searched\n  " + "\n  ".join(map(_sought, locations)),
        hint="Pass --data-root or set NTMP_DATA to the folder that holds it, or pass --download.",
    )


def _sought(location: Location) -> str:
    """The first file that was searched for: the folder alone does not tell what is missing."""
    path, *others = location.files[0]
    return f"{path}{' or .gz' if others else ''}"


def images(known: ImageSet, where: Path, x: NDArray[Any]) -> Images:
    """Images as (N, C, H, W) bytes, from channels first, channels last, or no channel axis."""
    channels, height, width = known.shape
    if x.dtype == np.uint8 and x.shape[1:] == (height, width, channels):
        x = x.transpose(0, 3, 1, 2)
    elif x.dtype == np.uint8 and channels == 1 and x.shape[1:] == (height, width):
        x = x[:, np.newaxis]
    elif x.dtype != np.uint8 or x.shape[1:] != known.shape:
        raise DataError(
            f"{where}: {x.dtype} images of shape {x.shape[1:]}, "
            f"but those of {known.name} are uint8 of shape {known.shape}",
            hint="Pass the original files, or your own data as npz:PATH.",
        )
    return np.ascontiguousarray(x)


def labels(known: ImageSet, where: Path, x: NDArray[Any], y: NDArray[Any]) -> Labels:
    """Labels as class indices; their number and range are checked, the range against the class names."""
    if y.dtype.kind not in "iu" or y.shape not in ((y.size,), (y.size, 1)):
        raise DataError(
            f"{where}: {y.dtype} labels of shape {y.shape}, expected one whole number per image",
            hint="Pass the original files, or your own data as npz:PATH.",
        )
    if x.ndim == 0 or len(x) != len(y):
        raise DataError(
            f"{where}: {len(x) if x.ndim else 'no'} images but {len(y)} labels",
            hint="Images and labels must come from the same copy; fetch both again.",
        )
    y = y.ravel().astype(np.int64)
    y = svhn_digits(y) if known is SVHN else y
    wrong = np.flatnonzero((y < 0) | (y >= len(known.classes)))
    if len(wrong):
        raise DataError(
            f"{where}: {known.name} has no label {y[wrong[0]]} (row {wrong[0]}; {len(wrong)} such labels)",
            hint="The labels are damaged or of another data set; fetch them again.",
        )
    return y


def size_notes(known: ImageSet, sizes: tuple[int, int]) -> tuple[str, ...]:
    """A note if the data are a subset: their results are not those of the full set."""
    if sizes == known.sizes:
        return ()
    return (
        f"{sizes[0]} train and {sizes[1]} test instances, "
        f"where the published {known.name} has {known.sizes[0]} and {known.sizes[1]}",
    )


# --- download ---------------------------------------------------------------------------------


def download(known: ImageSet, root: Path) -> None:
    """Let torchvision fetch the set into `root`."""
    from ntmp_cli.vision import torchvision_module

    fetch = getattr(torchvision_module().datasets, known.torchvision)
    try:
        # Standard output is for results; and a stalled connection must end in a message.
        with contextlib.redirect_stdout(sys.stderr), _socket_timeout(_STALLED_SECONDS):
            for split in known.splits:
                fetch(root=str(root), download=True, **split)
    except (
        OSError,
        RuntimeError,
        EOFError,
        http.client.HTTPException,
        tarfile.TarError,
        zlib.error,
    ) as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"{known.name}: the download into {root} failed ({reason})",
            hint="Check the network and the folder, or pass --data-root with a copy of the data.",
        ) from error


@contextlib.contextmanager
def _socket_timeout(seconds: float) -> Iterator[None]:
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(seconds)
    try:
        yield
    finally:
        socket.setdefaulttimeout(before)
