"""The only module that opens HDF5 files: typed, versioned, and without links to other files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.writing import Sink
from ntmp_cli.counting.recorded import RECORD
from ntmp_cli.errors import ArtifactError, NtmpError

VERSION = 1


@dataclass(frozen=True)
class Writer:
    """Adds data sets to a new file. Every call, and closing, raises the disk's error if there was one."""

    _file: h5py.File
    _sink: Sink

    def put(self, name: str, values: NDArray[Any]) -> None:
        """Write a complete data set."""
        self._file[name] = values
        self._sink.check()

    def reserve(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any], **attributes: float) -> None:
        """A data set of known shape, to be filled block by block."""
        self._file.create_dataset(name, shape, dtype).attrs.update(attributes)
        self._sink.check()

    def fill(self, name: str, start: int, values: NDArray[Any]) -> int:
        """Write rows from `start` on; returns the start of the next rows."""
        self._file[name][start : start + len(values)] = values
        self._sink.check()
        return start + len(values)

    def append(self, name: str, values: NDArray[Any]) -> None:
        """Add rows to a data set whose length is not known in advance."""
        if name not in self._file:
            shape, limits = (0, *values.shape[1:]), (None, *values.shape[1:])
            self._file.create_dataset(name, shape, values.dtype, maxshape=limits, chunks=(4096,))
        column = self._file[name]
        start = len(column)
        column.resize(start + len(values), axis=0)
        column[start:] = values
        self._sink.check()


@contextmanager
def create(path: Path, element: str) -> Iterator[Writer]:
    """A new file that carries its element type and version. Object times are off: same data, same bytes."""
    # A small chunk cache: files are written once, front to back.
    settings = {"libver": "latest", "track_order": False, "rdcc_nbytes": 2**16}
    with Sink(path) as sink, h5py.File(sink, "w", **settings) as file:
        file.attrs["element"] = element
        file.attrs["version"] = VERSION
        yield Writer(file, sink)


@contextmanager
def read(path: Path, element: str) -> Iterator[h5py.File]:
    """Open for reading, after checking type, version and links. Whatever h5py raises means a damaged file."""
    try:
        with h5py.File(path, "r") as file:
            _require_element(file, path, element)
            yield file
    except NtmpError:
        raise
    except Exception as error:  # h5py has no common error class
        raise ArtifactError(f"{path}: damaged: not a readable HDF5 file") from error


def _require_element(file: h5py.File, path: Path, element: str) -> None:
    stored, version = (str(file.attrs.get(name))[:80] for name in ("element", "version"))
    if stored != element:
        raise ArtifactError(f"{path}: expected an HDF5 file of '{element}', found '{stored}'")
    if version != str(VERSION):
        raise ArtifactError(
            f"{path}: '{element}' version {version}, but this ntmp reads version {VERSION}",
            hint="Use the ntmp version that wrote it, or make the artefact again.",
        )


def dataset(file: h5py.File, name: str) -> h5py.Dataset:
    """A data set that is stored in this very file: soft, external and virtual ones are refused."""
    link = file.get(name, getlink=True)
    if link is None:
        raise ArtifactError(f"{file.filename}: has no data set '{name}'")
    if not isinstance(link, h5py.HardLink):
        raise ArtifactError(f"{file.filename}: '{name}' is a link to another file, which is refused")
    stored = file[name]
    if not isinstance(stored, h5py.Dataset) or stored.external or stored.is_virtual:
        raise ArtifactError(f"{file.filename}: '{name}' is not data stored in this file")
    if stored.dtype.kind not in "biuf" and not ("counts" in name and stored.dtype == RECORD):
        raise ArtifactError(f"{file.filename}: '{name}' holds {stored.dtype}, expected numbers")
    # Data sets of ntmp have the same size on disk as in memory: no filter, no unwritten rows.
    sparse = stored.nbytes > stored.id.get_storage_size() or stored.nbytes > Path(file.filename).stat().st_size
    if stored.nbytes and (sparse or stored.id.get_create_plist().get_nfilters()):
        raise ArtifactError(f"{file.filename}: '{name}' should have {stored.nbytes:,} bytes, but the file has fewer")
    return stored


def array(file: h5py.File, name: str) -> NDArray[Any]:
    return np.asarray(dataset(file, name)[()])
