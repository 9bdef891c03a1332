"""Readers of the file formats of data sets: from bytes on disk to arrays.

A file that is missing, damaged, truncated or of another format raises DataError; no reader runs
code from a file.
"""

from __future__ import annotations

import gzip
import math
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.errors import DataError
from ntmp_cli.storage import Location, redacted
from ntmp_cli.unpacking import LEAST_IMAGE, require_regular, require_unpackable, unpack_limit

if TYPE_CHECKING:
    from PIL.Image import Image

GET_AGAIN = "The file may be damaged or only partly downloaded: fetch it again, or pass another one."

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


@contextmanager
def reading(path: Path, kind: str) -> Iterator[IO[bytes]]:
    """Open `path`; every error of its decoder becomes a DataError."""
    try:
        require_regular(path)
        with path.open("rb") as stream:
            yield stream
    except DataError:
        raise
    except FileNotFoundError:
        raise no_such_file(path) from None
    except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror})", hint=f"Pass the path of a readable {kind}."
        ) from None
    except MemoryError:
        raise DataError(f"{path}: needs more memory than is available", hint=GET_AGAIN) from None
    # Decoders raise many kinds of errors on damaged bytes: zlib.error, struct.error, KeyError, ...
    except Exception as error:
        raise DataError(f"{path}: not a readable {kind} ({first_line(error)})", hint=GET_AGAIN) from error


def no_such_file(path: Location) -> DataError:
    return DataError(f"{path}: no such file", hint="Check the path; a relative one starts at the current directory.")


def first_line(error: Exception) -> str:
    """What a library says about an error, in one line."""
    return redacted(str(error).strip().partition("\n")[0] or type(error).__name__)[:200]


# --- IDX: MNIST and its relatives -------------------------------------------------------------

_IDX_TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path, dims: int) -> NDArray[np.generic]:
    """The `dims`-dimensional array of an IDX file, gzipped or not (recognised by content, not by name)."""
    with reading(path, "IDX file") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw
        magic = stream.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in _IDX_TYPES:
            raise DataError(f"{path}: not an IDX file (it starts with {magic.hex() or 'nothing'})", hint=GET_AGAIN)
        if magic[3] != dims:
            raise DataError(
                f"{path}: expected {dims} dimensions, found {magic[3]}",
                hint="Images have 3 dimensions and labels 1; were two files swapped?",
            )
        sizes = stream.read(4 * dims)
        if len(sizes) < 4 * dims:
            raise DataError(f"{path}: truncated inside its header", hint=GET_AGAIN)
        shape = struct.unpack(f">{dims}I", sizes)
        dtype = np.dtype(_IDX_TYPES[magic[2]])
        size = dtype.itemsize * math.prod(shape)
        bytes_there = path.stat().st_size
        data = _read_at_most(stream, (min(size, unpack_limit(bytes_there)) if packed else size) + 1)
        if packed and len(data) <= size:
            require_unpackable(path, bytes_there, len(data))
    if len(data) != size:
        problem = "truncated" if len(data) < size else "longer than its header says"
        raise DataError(f"{path}: {problem} (the header announces {size} bytes of data)", hint=GET_AGAIN)
    array: NDArray[np.generic] = np.frombuffer(data, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_at_most(stream: IO[bytes], size: int) -> bytearray:
    """Up to `size` bytes, in blocks: a damaged header must not reserve memory for missing data."""
    data = bytearray()
    while len(data) < size and (piece := stream.read(min(size - len(data), 1 << 20))):
        data += piece
    return data


# --- CIFAR-10: pickled batches ----------------------------------------------------------------


class _PickledDtype:
    """Stands in for numpy.dtype: keeps the type code of a plain integer type."""

    def __init__(self, code: str, *_: object) -> None:
        if code not in {"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8"}:
            raise pickle.UnpicklingError(f"arrays of type {str(code)[:20]!r} are not expected here")
        self.dtype = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """The byte order is not needed: arrays of other than single bytes are refused."""


class _PickledArray:
    """Stands in for numpy's array reconstruction, so that no state from the file reaches numpy's C code."""

    def __init__(self, *_: object) -> None:
        self.array: NDArray[np.generic] = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, data = state
        # Python 2 wrote the bytes as a string, which unpickles as Latin-1 text.
        raw = data.encode("latin1") if isinstance(data, str) else data
        array: NDArray[np.generic] = np.frombuffer(raw, dtype.dtype)
        self.array = array.reshape(shape, order="F" if fortran else "C")


def _latin1_bytes(text: str, encoding: str) -> bytes:
    """Stands in for `_codecs.encode`, by which Python 3 writes bytes for Python 2."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"text encoding {str(encoding)[:20]!r} is not expected here")
    return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _PickledDtype,
    ("numpy", "ndarray"): None,
    ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
    ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
    ("_codecs", "encode"): _latin1_bytes,
}


class _ArrayUnpickler(pickle.Unpickler):
    """Unpickles numbers, text, containers and integer arrays; every other name in the file is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise pickle.UnpicklingError(f"it would run {module}.{name}, which is refused")
        return _STAND_INS[module, name]


def read_cifar_batch(path: Path) -> tuple[Images, Labels]:
    """Images (N, 3, 32, 32) and labels of one file of `cifar-10-batches-py`."""
    with reading(path, "CIFAR-10 batch") as stream:
        batch = _ArrayUnpickler(stream, encoding="latin1").load()
    if not isinstance(batch, dict) or not {"data", "labels"} <= batch.keys():
        raise DataError(f"{path}: not a CIFAR-10 batch (it has no 'data' and 'labels')", hint=GET_AGAIN)
    images = batch["data"].array if isinstance(batch["data"], _PickledArray) else np.empty(0)
    if images.dtype != np.uint8 or images.ndim != 2 or images.shape[1] != 3072:
        raise DataError(f"{path}: 'data' is not an array of 3072 bytes per image", hint=GET_AGAIN)
    labels = batch["labels"]
    if not isinstance(labels, list) or len(labels) != len(images) or not all(map(_is_cifar_label, labels)):
        raise DataError(f"{path}: 'labels' is not a list of {len(images)} whole numbers from 0 to 9", hint=GET_AGAIN)
    return images.astype(np.uint8).reshape(-1, 3, 32, 32), np.array(labels, dtype=np.int64)


def _is_cifar_label(label: object) -> bool:
    return type(label) is int and 0 <= label <= 9


# --- SVHN: MATLAB files -----------------------------------------------------------------------

# Numeric arrays of MATLAB 5 files are read here, because scipy.io.loadmat trusts the type codes in
# the file and crashes the interpreter on a damaged one.
_MAT_MATRIX, _MAT_COMPRESSED = 14, 15
_MAT_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_MAT_CLASSES = dict(enumerate(("f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"), start=6))


def read_svhn_mat(path: Path) -> tuple[Images, Labels]:
    """Images (N, 3, H, W) and digits of `train_32x32.mat` or `test_32x32.mat`."""
    with reading(path, "MATLAB 5 file") as stream:
        content = dict(_mat_arrays(path, stream))
    if not {"X", "y"} <= content.keys():
        raise DataError(f"{path}: no arrays X and y, so not a file of SVHN's cropped digits", hint=GET_AGAIN)
    x, y = content["X"], content["y"]
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[2] != 3:
        raise DataError(
            f"{path}: X has shape {x.shape} and type {x.dtype}, expected H x W x 3 x N bytes", hint=GET_AGAIN
        )
    if y.size != x.shape[3] or not np.isin(y, np.arange(11)).all():
        raise DataError(f"{path}: y does not hold a label from 1 to 10 for each of {x.shape[3]} images", hint=GET_AGAIN)
    images = np.ascontiguousarray(x.transpose(3, 2, 0, 1), dtype=np.uint8)
    return images, svhn_digits(y.ravel().astype(np.int64))


def svhn_digits(labels: Labels) -> Labels:
    """SVHN's files write the digit 0 as label 10."""
    return np.where(labels == 10, 0, labels)


def _mat_arrays(path: Path, stream: IO[bytes]) -> Iterator[tuple[str, NDArray[np.generic]]]:
    """Name and value of each real numeric array in a MATLAB 5 file."""
    header = stream.read(128)
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None or struct.unpack(f"{order}H", header[124:126]) != (0x0100,):
        raise ValueError("it has no MATLAB 5 header")
    packed, unpacked = path.stat().st_size, 0
    while tag := stream.read(8):
        kind, size = struct.unpack(f"{order}II", tag)
        body = bytes(_read_at_most(stream, size))
        if len(body) < size:
            raise ValueError("it is truncated")
        if kind == _MAT_COMPRESSED:
            body = zlib.decompressobj().decompress(body, unpack_limit(packed) - unpacked + 1)
            unpacked += len(body)
            require_unpackable(path, packed, unpacked)
            kind, size = struct.unpack_from(f"{order}II", body)
            body = body[8 : 8 + size]
        if kind != _MAT_MATRIX or len(body) < size:
            raise ValueError(f"unknown element of type {kind} and {size} bytes")
        flags, *elements = _mat_elements(memoryview(body), order)
        (word,) = struct.unpack_from(f"{order}I", flags[1])
        if (dtype := _MAT_CLASSES.get(word & 0xFF)) and not word & 0x0800:  # neither text, nor complex, ...
            (_, dims), (_, name), (stored, data) = elements
            values: NDArray[np.generic] = np.frombuffer(data, order + _MAT_STORED[stored])
            shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
            # Whole numbers may be stored in a smaller type than they have in MATLAB.
            yield bytes(name).decode("ascii", "replace"), values.reshape(shape, order="F").astype(dtype, copy=False)


def _mat_elements(body: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and content of the elements of a matrix; each starts at a multiple of eight bytes."""
    position = 0
    while position < len(body):
        kind, size = struct.unpack_from(f"{order}II", body, position)
        start = position + 8
        if kind >> 16:  # a small element: type and size share a word, and the content follows at once
            kind, size, start = kind & 0xFFFF, kind >> 16, position + 4
        end = start + size
        if end > len(body) or (start % 8 and size > 4):
            raise ValueError(f"an element of {size} bytes does not fit")
        yield kind, body[start:end]
        position = math.ceil(end / 8) * 8


# --- npz --------------------------------------------------------------------------------------


def read_npz(path: Path, choices: Sequence[Sequence[str]]) -> dict[str, NDArray[Any]]:
    """The arrays of the first of `choices`, sets of names, that the archive holds completely."""
    with reading(path, "npz file") as stream:
        # Checked here, because numpy takes a shorter file for a pickle and explains how to load it unsafely.
        if stream.read(4) not in (b"PK\3\4", b"PK\5\6"):
            raise DataError(f"{path}: not an npz file", hint="Write one with numpy.savez.")
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            names = next((choice for choice in choices if set(choice) <= set(archive.files)), None)
            if names is None:
                raise DataError(
                    f"{path}: holds {', '.join(sorted(archive.files)[:20]) or 'no arrays'}",
                    hint=f"Expected {', or '.join(', '.join(choice) for choice in choices)}.",
                )
            require_sound_members(path, archive.zip, names)
            return {name: _npz_array(path, archive, name) for name in names}


def npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether the order is Fortran's, and type of the array that follows."""
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(stream)
    raise ValueError(f"version {version} of the npy format")


def require_bytes(shape: tuple[int, ...], dtype: np.dtype[Any], present: int) -> None:
    """Refuse a header that announces more than the bytes that follow it, before anything is allocated."""
    if min(shape, default=0) < 0 or dtype.itemsize * math.prod(shape) > present:
        raise ValueError(f"the header announces shape {shape} {dtype}, but {present:,} bytes follow")


def require_sound_members(path: Path, archive: zipfile.ZipFile, names: Sequence[str]) -> None:
    """Refuse arrays whose header announces more than their bytes, and archives that unpack to too many bytes."""
    members = {name: archive.getinfo(name if name in archive.NameToInfo else f"{name}.npy") for name in names}
    require_unpackable(path, path.stat().st_size, sum(member.file_size for member in members.values()))
    for member in members.values():
        with archive.open(member) as stream:
            shape, _, dtype = npy_header(stream)
            if not dtype.hasobject:
                require_bytes(shape, dtype, member.file_size - stream.tell())


def _npz_array(path: Path, archive: Any, name: str) -> NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise DataError(
            f"{path}: {name} is an array of Python objects, which is not read because it could run code",
            hint="Store numbers, or text with astype(str).",
        ) from None


# --- images -----------------------------------------------------------------------------------


def read_image(path: Path, size: int | None = None) -> Images:
    """Pixels (H, W) of a gray image, or (H, W, 3) of any other; `size` resizes to size x size."""
    from PIL import Image, UnidentifiedImageError

    with reading(path, "image") as stream:
        try:
            image = Image.open(stream)
        except UnidentifiedImageError:
            raise DataError(f"{path}: not an image of a known format", hint=GET_AGAIN) from None
        # Four bytes per pixel: transparency is a channel until it is dropped.
        require_unpackable(path, path.stat().st_size, 4 * image.width * image.height, LEAST_IMAGE)
        plain = _eight_bit(path, image)
        if size is not None:
            plain = plain.resize((size, size), Image.Resampling.BILINEAR)
        return np.array(plain, dtype=np.uint8)


def _eight_bit(path: Path, image: Image) -> Image:
    """The image as 8-bit gray or RGB; transparency is dropped."""
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        # Pillow's own conversion clips 16-bit values instead of scaling them.
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in {"I", "F"}:
        raise DataError(f"{path}: 32-bit pixels have no known range", hint="Convert the image to 8 or 16 bits.")
    if image.mode in {"1", "L", "LA", "La"}:
        return image.convert("L")
    # Pillow warns about a transparent palette unless the transparency is made a channel first.
    rgb = (image.convert("RGBA") if "transparency" in image.info else image).convert("RGB")
    if image.mode in {"P", "PA"}:  # gray if all colours of the palette are
        red, green, blue = (np.asarray(band) for band in rgb.split())
        if (red == green).all() and (green == blue).all():
            return rgb.getchannel(0)
    return rgb
