"""Users' images, one folder per class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.data.folders import SUFFIXES, looking_at, subfolders
from ntmp_cli.data.formats import Images, read_image
from ntmp_cli.data.labelled import LabelledData, SourceRequest, datasets
from ntmp_cli.data.sources._shared import (
    default_positive,
    fixed_split,
    path_argument,
    require_two_classes,
)
from ntmp_cli.errors import DataError
from ntmp_cli.unpacking import require_unpackable

_MOST_SHOWN = 20
_LAYOUT = "Expected PATH/train/CLASS/*.png and PATH/test/CLASS/*.png, or PATH/CLASS/*.png."


@dataclass(frozen=True)
class Listing:
    """The image files of one split, in sorted order, with the class of each."""

    files: tuple[Path, ...]
    labels: tuple[str, ...]


@datasets.register("folder")
def folder(request: SourceRequest) -> LabelledData:
    """folder:PATH, image files in train/CLASS/ and test/CLASS/, or in CLASS/ alone."""
    path = path_argument("folder", request)
    with looking_at(path):
        splits, notes = find_splits(path)
    classes = tuple(sorted({label for listing in splits for label in listing.labels}))
    require_two_classes(classes, str(path))
    files = [file for listing in splits for file in listing.files]
    images = read_all(path, files, request.resize)
    x, gray = stack(path, files, images), [image.ndim == 2 for image in images]
    y = np.array([classes.index(label) for listing in splits for label in listing.labels], dtype=np.int64)
    if len(splits) == 2:
        train, test = np.split(np.arange(len(x)), [len(splits[0].files)])
    else:
        train, test = fixed_split(len(x), str(path))
    return LabelledData(
        name=f"folder:{path.resolve().name}",
        x_train=x[train],
        y_train=y[train],
        x_test=x[test],
        y_test=y[test],
        classes=classes,
        positive=default_positive(classes),
        scale=255.0,
        notes=(*notes, *_both_kinds(path, files, x.shape[1], gray)),
    )


def _both_kinds(path: Path, files: Sequence[Path], channels: int, gray: Sequence[bool]) -> Iterator[str]:
    """A note on gray images among colour images."""
    if channels == 3 and any(gray):
        first = {kind: files[gray.index(kind)].relative_to(path) for kind in (True, False)}
        yield f"images in gray ({first[True]}) and in colour ({first[False]}): gray ones get three equal channels"


def find_splits(path: Path) -> tuple[list[Listing], tuple[str, ...]]:
    """Listings of train and test, or a single one if the folder has no splits; and notes."""
    if not path.is_dir():
        what = "not a folder" if path.exists() else "no such folder"
        raise DataError(f"{path}: {what}", hint=_LAYOUT)
    # A folder named train that holds images itself is a class, for example of vehicles.
    splits = [name for name in ("train", "test") if subfolders(path / name)]
    if not splits:
        return [list_classes(path)], ("the folder has no train/ and test/: a fixed random 80/20 split was made",)
    for name in ("train", "test"):
        if name not in splits:
            raise DataError(f"{path}: has {splits[0]}/ with classes but no {name}/", hint=_LAYOUT)
    others = [other.name for other in subfolders(path) if other.name not in splits]
    notes = (f"folders beside train/ and test/ were not read: {', '.join(others[:_MOST_SHOWN])}",) if others else ()
    return [list_classes(path / name) for name in splits], notes


def list_classes(path: Path) -> Listing:
    """Every image in the folders of `path`; their names are the classes."""
    labelled: list[tuple[Path, str]] = []
    for folder_of_class in subfolders(path):
        images = sorted(
            file
            for file in folder_of_class.iterdir()
            if file.suffix.lower() in SUFFIXES and not file.name.startswith(".")
        )
        if not images:
            raise DataError(f"{folder_of_class}: holds no images ({', '.join(SUFFIXES)})", hint=_LAYOUT)
        labelled += [(file, folder_of_class.name) for file in images]
    if not labelled:
        raise DataError(f"{path}: holds no folders of images", hint=_LAYOUT)
    return Listing(tuple(file for file, _ in labelled), tuple(label for _, label in labelled))


def read_all(path: Path, files: Sequence[Path], resize: int | None) -> list[Images]:
    """Pixels of all files; those that cannot be read are reported in one message."""
    images: list[Images] = []
    problems: list[str] = []
    packed = unpacked = 0
    for file in files:
        try:
            images.append(read_image(file, resize))
        except DataError as error:
            problems.append(error.message)
            continue
        packed, unpacked = packed + file.stat().st_size, unpacked + images[-1].nbytes
        if resize is None:  # otherwise they are resized as requested
            require_unpackable(path, packed, unpacked)
    if problems:
        more = len(problems) - _MOST_SHOWN
        shown = problems[:_MOST_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        raise DataError(
            f"{path}: {len(problems)} of {len(files)} images cannot be read\n  " + "\n  ".join(shown),
            hint="Repair or remove these files.",
        )
    return images


def stack(path: Path, files: Sequence[Path], images: Sequence[Images]) -> NDArray[np.uint8]:
    """One array (N, C, H, W): one channel if all images are gray, otherwise three."""
    for file, image in zip(files, images, strict=True):
        if image.shape[:2] != images[0].shape[:2]:
            sizes = (
                f"{f.relative_to(path)} is {i.shape[1]}x{i.shape[0]}" for f, i in ((files[0], images[0]), (file, image))
            )
            raise DataError(
                f"{path}: images differ in size: {' but '.join(sizes)}",
                hint="Bring all images to one size with --resize, for example --resize 32.",
            )
    height, width = images[0].shape[:2]
    channels = max(1 if image.ndim == 2 else 3 for image in images)
    x = np.empty((len(images), channels, height, width), dtype=np.uint8)
    for row, image in zip(x, images, strict=True):
        row[:] = image if image.ndim == 2 else image.transpose(2, 0, 1)
    return x
