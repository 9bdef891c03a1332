"""Users' image files: a folder per tuple, or paths in a column of a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.data.folders import SUFFIXES, subfolders
from ntmp_cli.data.formats import Images, read_image
from ntmp_cli.data.user.mapping import ImageFeatures
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Role, Rows, RowSource
from ntmp_cli.data.user.table_files import Kind, TableFile
from ntmp_cli.errors import DataError

UNLABELED = "unlabeled"
COUNTS_FILE = "counts.csv"
# Maximum number of images, and of their bytes, that are decoded in parallel.
AT_ONCE = 64
BYTES_AT_ONCE = 2**26


@dataclass
class ImageFormat:
    """Size and channels that all images must have: those of the first image, or of the training images."""

    resize: int | None = None
    size: tuple[int, int] | None = None
    first: str = ""
    gray: bool = True
    only_gray: bool = False
    allow_outside: bool = False
    """Whether a table may name images outside of its folder."""
    seen: dict[str, str] = field(default_factory=dict)
    """The first image in gray, and the first in colour."""

    def features(self) -> ImageFeatures | None:
        if self.size is None:
            return None
        return ImageFeatures(shape=(1 if self.gray else 3, *self.size), resize=self.resize)

    def mismatch(self, image: Images, place: str) -> str | None:
        """Why an image differs from the others; None if it does not."""
        if self.size is None:
            self.size, self.first = (int(image.shape[0]), int(image.shape[1])), place
        if image.shape[:2] != self.size:
            height, width = self.size
            what = f"is {image.shape[1]}×{image.shape[0]}, but {self.first} is {width}×{height}"
            return what if self.resize or self.only_gray else f"{what}: bring all to one size with --resize"
        self.seen.setdefault("gray" if image.ndim == 2 else "colour", place)
        if image.ndim == 3:
            if self.only_gray:
                return "is in colour, but the run was trained on gray images"
            self.gray = False
        return None


class ImageRows:
    """Image files as rows of three channels each, which are equal for gray images."""

    def __init__(
        self,
        where: str,
        files: Sequence[Path | None],
        places: Sequence[str],
        image_format: ImageFormat,
        roles: dict[Role, Any],
        role_names: dict[Role, str],
    ) -> None:
        self.where, self.files, self._places, self._image_format = where, files, places, image_format
        self._roles, self._role_names = roles, role_names
        self.expected_rows = len(files)

    @property
    def role_names(self) -> dict[Role, str]:
        return self._role_names

    @property
    def columns(self) -> tuple[str, ...] | None:
        return None

    def image_features(self) -> ImageFeatures | None:
        return self._image_format.features()

    @property
    def seen(self) -> dict[str, str]:
        """The first image in gray, and the first in colour, of all that were read."""
        return self._image_format.seen

    def rows(self, problems: Problems) -> Iterator[Rows]:
        with ThreadPoolExecutor() as pool:
            start = 0
            while start < len(self.files):
                files = self.files[start : start + self._at_once()]
                images = list(pool.map(self._read, files))
                cells = self._stack(images, start, problems)
                yield Rows(cells, {role: column.slice(start, len(files)) for role, column in self._roles.items()})
                start += len(files)

    def _at_once(self) -> int:
        """How many images to decode together; one until the first has shown their size."""
        resize = self._image_format.resize
        size = (resize, resize) if resize else self._image_format.size
        return 1 if size is None else min(AT_ONCE, max(1, BYTES_AT_ONCE // (3 * size[0] * size[1])))

    def _read(self, file: Path | None) -> Images | str:
        if file is None:
            return "has no image path"
        try:
            return read_image(file, self._image_format.resize)
        except DataError as error:
            return error.message.removeprefix(f"{file}: ")

    def _stack(self, images: Sequence[Images | str], start: int, problems: Problems) -> NDArray[np.uint8]:
        fitting: list[Images | None] = []
        for at, image in enumerate(images):
            place = self.place(start + at)
            wrong = image if isinstance(image, str) else self._image_format.mismatch(image, place)
            if wrong is not None:
                problems.add(place, wrong)
            fitting.append(None if isinstance(image, str) or wrong is not None else image)
        height, width = self._image_format.size or (1, 1)
        cells = np.zeros((len(images), 3, height, width), np.uint8)
        for row, good in zip(cells, fitting, strict=True):
            if good is not None:
                row[:] = good if good.ndim == 2 else good.transpose(2, 0, 1)
        return cells

    def first_rows(self) -> list[dict[str, Any]]:
        return [
            {
                "image": self._places[row],
                **{self._role_names[r]: column[row].as_py() for r, column in self._roles.items()},
            }
            for row in range(min(5, len(self.files)))
        ]

    def place(self, row: int) -> str:
        return self._places[row]


def images_of_both_kinds(source: RowSource) -> Iterator[str]:
    """A note on gray images among colour images."""
    seen = source.seen if isinstance(source, ImageRows) else {}
    if len(seen) == 2:
        yield f"images in gray ({seen['gray']}) and in colour ({seen['colour']}): gray ones get three equal channels"


def tuple_folders(path: Path, image_format: ImageFormat) -> tuple[ImageRows, ImageRows | None, list[str]]:
    """PATH/TUPLE/*.png as tuples, PATH/unlabeled/*.png as U; and the names of tuples without images."""
    files: list[Path] = []
    owners: list[str] = []
    empty = []
    for folder in subfolders(path):
        if folder.name == UNLABELED:
            continue
        images = images_in(folder)
        files += images
        owners += [folder.name] * len(images)
        if not images:
            empty.append(folder.name)
    if not files and not empty:
        raise DataError(
            f"{path}: holds no folders of images",
            hint=f"Expected PATH/TUPLE/*.png and PATH/{COUNTS_FILE}, or arrays x.npy, offsets.npy and counts.npy.",
        )
    tuples = ImageRows(
        str(path),
        files,
        [str(f) for f in files],
        image_format,
        {"tuple": pa.array(owners, pa.string())},
        {"tuple": "tuple_id"},
    )
    unlabeled = all_images(path / UNLABELED, image_format) if (path / UNLABELED).is_dir() else None
    return tuples, unlabeled, empty


def all_images(path: Path, image_format: ImageFormat, *, named: bool = False) -> ImageRows:
    """Every image below a folder; `named` gives each its path as id."""
    files = images_in(path)
    if not files:
        raise DataError(f"{path}: holds no images ({', '.join(SUFFIXES)})", hint="Pass a folder of images.")
    names = {"id": pa.array([file.relative_to(path).as_posix() for file in files], pa.string())} if named else {}
    return ImageRows(str(path), files, [str(f) for f in files], image_format, names, {"id": "path"} if named else {})  # type: ignore[arg-type]


def class_folders(path: Path, image_format: ImageFormat) -> ImageRows:
    """PATH/LABEL/*.png as labelled rows."""
    labelled = [(file, folder.name) for folder in subfolders(path) for file in images_in(folder)]
    files = [file for file, _ in labelled]
    if not files:
        raise DataError(f"{path}: holds no folders of images", hint="Expected PATH/LABEL/*.png, as in 0/ and 1/.")
    labels = [label for _, label in labelled]
    return ImageRows(
        str(path),
        files,
        [str(f) for f in files],
        image_format,
        {"label": pa.array(labels, pa.string())},
        {"label": "label"},
    )


def table_of_images(
    table: TableFile, folder: Path, image_column: str, image_format: ImageFormat, roles: dict[Role, str]
) -> ImageRows:
    """Rows of a table that refers to image files; paths are relative to the table's folder."""
    wanted: dict[str, Kind] = dict.fromkeys(roles.values(), "as is")
    problems = Problems()
    blocks = list(table.batches({**wanted, image_column: "text"}, problems))
    paths = [path for block in blocks for path in block.column(image_column).to_pylist()]
    if not image_format.allow_outside:
        names_of_folder = {Path(os.path.normpath(folder.absolute())), folder.resolve()}
        for row, path in enumerate(paths):
            if path is not None and not _lies_inside(path, names_of_folder):
                problems.add(table.place(row), f"{path} lies outside of the table's folder")
                problems.advice = "If this is intended, pass --allow-outside."
    problems.raise_if_any()
    columns: dict[Role, Any] = {
        role: pa.concat_arrays([block.column(name) for block in blocks]) for role, name in roles.items() if blocks
    }
    files = [None if path is None else folder / path for path in paths]
    places = [f"{table.where} row {row + 1}" + (f" ({path})" if path else "") for row, path in enumerate(paths)]
    return ImageRows(table.where, files, places, image_format, columns, roles)


def _lies_inside(path: str, names_of_folder: set[Path]) -> bool:
    """Whether a path, relative to a folder or absolute, stays in that folder; links in it may lead outside."""
    return any(Path(os.path.normpath(name / path)).is_relative_to(name) for name in names_of_folder)


def images_in(folder: Path) -> list[Path]:
    """Image files at any depth, in the order of their names."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in SUFFIXES and not file.name.startswith(".") and file.is_file()
    )
