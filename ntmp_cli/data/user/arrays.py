"""Users' arrays: an .npz file, a folder of .npy files with the same names, or one .npy file.

`x` holds the rows: (N, D) features, called x0, x1, …, or images. Tuples are `offsets` (T+1) with `counts` (T), or with
`counts_low` and `counts_high`; or ids and counts row by row under the names of the columns of a table. Blocks are read
as they are needed, even from a zip.
"""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ntmp_cli.data.formats import npy_header, reading, require_bytes, require_sound_members
from ntmp_cli.data.instance_arrays import instances
from ntmp_cli.data.user.mapping import ImageFeatures
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.rows import Role, Rows, refuse_infinite
from ntmp_cli.errors import ONE_COUNT, DataError

X = "x"
UNLABELED = "unlabeled"
OFFSETS, COUNTS = "offsets", "counts"
# The ends of counts that are ranges; they replace `counts`.
LOW, HIGH = "counts_low", "counts_high"


class ArrayFile(ABC):
    """Named arrays, whose shapes are known before they are read."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.path, self.where, self._block = path, str(path), block_bytes
        self.shapes: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}

    @abstractmethod
    def blocks(self, name: str) -> Iterator[NDArray[Any]]:
        """The rows of an array, block by block."""

    def read(self, name: str) -> NDArray[Any]:
        return np.concatenate(list(self.blocks(name)))

    def require(self, name: str, what: str) -> None:
        if name not in self.shapes:
            raise DataError(
                f"{self.where}: has no array '{name}', {what}", hint=f"The arrays are {', '.join(self.shapes)}."
            )

    def _step(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        return max(1, self._block // max(1, int(np.prod(shape[1:])) * max(dtype.itemsize, 1)))

    def _add(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if dtype.hasobject:
            raise DataError(
                f"{self.where}: {name} is an array of Python objects, which is not read because it could run code",
                hint="Store numbers, or text with astype(str).",
            )
        if not shape:
            raise DataError(f"{self.where}: {name} is a single value, not an array", hint="Store one row per item.")
        self.shapes[name] = (shape, dtype)


class NpzFile(ArrayFile):
    """An archive of numpy.savez, compressed or not."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        super().__init__(path, block_bytes)
        with self._archive() as archive:
            require_sound_members(path, archive, archive.namelist())
            for member in archive.namelist():
                with archive.open(member) as stream:
                    shape, _, dtype = npy_header(stream)
                self._add(member.removesuffix(".npy"), shape, dtype)

    def blocks(self, name: str) -> Iterator[NDArray[Any]]:
        with self._archive() as archive, archive.open(f"{name}.npy") as stream:
            shape, fortran, dtype = npy_header(stream)
            step = self._step(shape, dtype)
            if fortran and len(shape) > 1:  # Fortran order cannot be read row by row
                array = np.frombuffer(stream.read(), dtype).reshape(shape, order="F")
                yield from (array[start : start + step] for start in range(0, len(array), step))
                return
            row = int(np.prod(shape[1:])) * dtype.itemsize
            for start in range(0, shape[0], step):
                rows = min(step, shape[0] - start)
                data = _read_exactly(stream, rows * row)
                yield np.frombuffer(data, dtype).reshape(rows, *shape[1:])

    @contextmanager
    def _archive(self) -> Iterator[zipfile.ZipFile]:
        with reading(self.path, "npz file") as raw, zipfile.ZipFile(raw) as archive:
            yield archive


class NpyFiles(ArrayFile):
    """Files of numpy.save: those of a folder by their names, or a single one as `x`."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        super().__init__(path, block_bytes)
        files = sorted(path.glob("*.npy")) if path.is_dir() else [path]
        self._files = {file.stem if path.is_dir() else X: file for file in files}
        for name, file in self._files.items():
            with reading(file, "npy file") as stream:
                shape, _, dtype = npy_header(stream)
                if not dtype.hasobject:
                    require_bytes(shape, dtype, file.stat().st_size - stream.tell())
            self._add(name, shape, dtype)

    def blocks(self, name: str) -> Iterator[NDArray[Any]]:
        file = self._files[name]
        with reading(file, "npy file"):
            array = np.load(file, mmap_mode="r", allow_pickle=False)
        step = self._step(array.shape, array.dtype)
        yield from (np.array(array[start : start + step]) for start in range(0, len(array), step))


def _read_exactly(stream: IO[bytes], size: int) -> bytearray:
    data = bytearray()
    while len(data) < size:
        piece = stream.read(size - len(data))
        if not piece:
            raise ValueError("it is truncated")
        data += piece
    return data  # not bytes: torch expects writable arrays


def is_array_file(path: Path) -> bool:
    return path.name.lower().endswith((".npz", ".npy")) or (path.is_dir() and any(path.glob("*.npy")))


def open_arrays(path: Path, block_bytes: int) -> ArrayFile:
    return NpzFile(path, block_bytes) if path.name.lower().endswith(".npz") else NpyFiles(path, block_bytes)


class ArrayRows:
    """The rows of an array, with their tuples, counts, labels and ids from other arrays."""

    def __init__(self, file: ArrayFile, name: str, roles: dict[Role, str], *, offsets: bool = False) -> None:
        self.where = file.where if name == X else f"{file.where} {name}"
        self._file, self._name, self._roles, self._offsets = file, name, roles, offsets
        shape, dtype = file.shapes[name]
        if dtype.kind not in "biuf":
            raise DataError(f"{self.where}: rows of type {dtype} are not numbers", hint="Store integers or floats.")
        if 0 in shape:
            raise DataError(f"{self.where}: has no rows: its shape is {shape}", hint="Store one row per item.")
        self._images: ImageFeatures | None = None
        if len(shape) != 2:
            # One image of zeros tells the format of all.
            x, scale = instances(file.path, np.zeros((1, *shape[1:]), dtype), [])
            kind = "uint8" if x.dtype == np.uint8 else "float32"
            self._images = ImageFeatures(shape=x.shape[1:], dtype=kind, scale=scale)
        per, number = ("tuple", max(file.shapes[OFFSETS][0][0] - 1, 0)) if offsets else ("row", shape[0])
        for role, key in roles.items():
            if file.shapes[key][0] != (number,):
                raise DataError(
                    f"{file.where}: '{key}' has shape {file.shapes[key][0]}, but {name} has {number} {per}s",
                    hint=f"Store one {'tuple id' if role == 'tuple' else role} per {per}.",
                )
        self._preview: list[dict[str, Any]] = []
        self.expected_rows = shape[0]
        self._columns = None if self._images else tuple(f"x{j}" for j in range(shape[1]))

    @property
    def role_names(self) -> dict[Role, str]:
        return {"tuple": "tuple_id", "count": "count", **self._roles} if self._offsets else self._roles

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self._columns

    def image_features(self) -> ImageFeatures | None:
        return self._images

    def rows(self, problems: Problems) -> Iterator[Rows]:
        by_role = self._from_offsets(problems) if self._offsets else self._row_by_row()
        start = 0
        for block in self._file.blocks(self._name):
            roles = {role: column.slice(start, len(block)) for role, column in by_role.items()}
            if self._images:
                cells, _ = instances(self._file.path, block, [])
            else:
                cells = block.astype(np.float64)
            if cells.dtype.kind == "f":
                refuse_infinite(cells.reshape(len(cells), -1), start, self.place, self.columns, problems)
            if not self._preview:
                self._preview = self._preview_of(block, roles)
            yield Rows(cells, roles)
            start += len(block)

    def _row_by_row(self) -> dict[Role, Any]:
        by_role: dict[Role, Any] = {}
        for role, key in self._roles.items():
            values = self._numbers_or_texts(key, "iufU" if role == "count" else "biufU")
            column = pa.array(values)
            if role == "tuple" and values.dtype.kind == "i":  # −1 stands for a missing id
                column = pc.if_else(pc.less(column, 0), None, column)
            by_role[role] = column
        return by_role

    def _numbers_or_texts(self, name: str, kinds: str) -> NDArray[Any]:
        """An array of ids, counts or labels; other types are refused."""
        values = self._file.read(name)
        if values.dtype.kind == "S" and "U" in kinds:
            try:
                values = np.char.decode(values, "utf-8")
            except UnicodeDecodeError:
                raise DataError(f"{self._file.where}: '{name}' is not UTF-8 text", hint="Store texts as str.") from None
        if values.dtype.kind not in kinds:
            what = "numbers or texts" if "U" in kinds else "numbers"
            raise DataError(
                f"{self._file.where}: '{name}' holds {values.dtype}, expected {what}", hint=f"Store {what}."
            )
        return values

    def _from_offsets(self, problems: Problems) -> dict[Role, Any]:
        """Tuple t is x[offsets[t]:offsets[t+1]]."""
        offsets, counts = self._file.read(OFFSETS), self._counts()
        rows = self._file.shapes[self._name][0][0]
        if offsets.dtype.kind not in "iu" or offsets.ndim != 1 or len(offsets) != len(counts) + 1:
            raise DataError(
                f"{self.where}: offsets {offsets.shape} and counts ({len(counts)},) do not fit together",
                hint="T tuples need T+1 integer offsets and T counts.",
            )
        ends = offsets.astype(np.int64)
        sizes = ends[1:] - ends[:-1]
        if offsets[0] != 0 or offsets[-1] != rows or (sizes < 0).any():
            raise DataError(
                f"{self.where}: offsets must rise from 0 to the {rows} rows of {self._name}",
                hint="Tuple t is x[offsets[t]:offsets[t+1]].",
            )
        for t in np.flatnonzero(sizes == 0).tolist():
            problems.add(f"{self.where} tuple {t}", "is empty: its offsets are equal")
        tuples = np.repeat(np.arange(len(sizes)), sizes)
        # Values stored by tuple are repeated for each of its rows.
        by_role = {role: column.take(pa.array(tuples)) for role, column in self._row_by_row().items()}
        return {"tuple": pa.array(tuples), "count": counts.take(pa.array(tuples)), **by_role}

    def _counts(self) -> Any:
        """The count of every tuple: numbers, text, or the ends of ranges."""
        names = (COUNTS,) if COUNTS in self._file.shapes else (LOW, HIGH)
        values = [self._numbers_or_texts(name, "iufU" if name == COUNTS else "iuf") for name in names]
        for name, array in zip(names, values, strict=True):
            if array.ndim == 2:
                raise DataError(f"{self.where}: {name} has {array.shape[1]} columns", hint=ONE_COUNT)
            if array.ndim != 1:
                raise DataError(
                    f"{self.where}: {name} has shape {array.shape} and type {array.dtype}",
                    hint="Counts are one number, or one text such as 1-3, per tuple.",
                )
        if len(values) == 2:
            if len(values[0]) != len(values[1]):
                raise DataError(f"{self.where}: {LOW} and {HIGH} have different lengths", hint="Store one per tuple.")
            from ntmp_cli.data.user.count_cells import range_texts

            return range_texts(*values)
        return pa.array(values[0])

    def _preview_of(self, block: NDArray[Any], roles: dict[Role, Any]) -> list[dict[str, Any]]:
        rows = [
            {self.role_names[role]: column[row].as_py() for role, column in roles.items()}
            for row in range(min(5, len(block)))
        ]
        if self._images:
            shape = "×".join(map(str, block.shape[1:]))
            return [{**row, self._name: f"{shape} {block.dtype}"} for row in rows]
        return [{**row, **dict(zip(self.columns or (), values.tolist()))} for row, values in zip(rows, block)]  # noqa: B905

    def first_rows(self) -> list[dict[str, Any]]:
        return self._preview

    def place(self, row: int) -> str:
        return f"{self.where} row {row + 1}"
