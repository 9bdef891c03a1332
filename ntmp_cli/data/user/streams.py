"""What tables are read from: sizes of blocks, compressed files of bounded size, standard input from its beginning."""

from __future__ import annotations

import io
from typing import IO, Any

import pyarrow as pa

from ntmp_cli.storage import Location, StorageUrl
from ntmp_cli.unpacking import require_regular, require_unpackable

BLOCK_BYTES = 2**20
# Every block costs some microseconds per column: blocks of wide tables have more bytes, and so many rows at least, but
# no more than so many bytes. Some blocks are in memory at a time.
LEAST_ROWS = 256
WIDE_BYTES = 32 * 2**20
# A row that is longer than a block cannot be read: a block holds so many rows of usual length in any case.
FEWEST_ROWS = 4
HEAD_BYTES = 2**20
# The first rows say what columns hold: those of wide tables need more bytes. A file without lines is no table.
HEAD_ROWS = 16
MOST_HEAD_BYTES = 2**28


def bytes_of_block(block_bytes: int, row_bytes: float) -> int:
    """How large blocks of rows of so many bytes are; smaller blocks than the usual ones are smaller in proportion."""
    wide = min(LEAST_ROWS * row_bytes, WIDE_BYTES) * min(1.0, block_bytes / BLOCK_BYTES)
    return max(block_bytes, round(wide), round(FEWEST_ROWS * row_bytes))


def first_bytes(stream: IO[bytes]) -> tuple[bytes, bool]:
    """The beginning of a file, some lines at least; and whether that is all of it."""
    pieces: list[bytes] = []
    size = lines = 0
    while size < HEAD_BYTES or (lines <= HEAD_ROWS and size < MOST_HEAD_BYTES):
        piece = stream.read(HEAD_BYTES - size if size < HEAD_BYTES else HEAD_BYTES)
        if not piece:
            return b"".join(pieces), True
        pieces.append(piece)
        size, lines = size + len(piece), lines + piece.count(b"\n")
    return b"".join(pieces), False


def file_size(path: Location) -> int:
    """The bytes of a file, which is no device."""
    return path.size() if isinstance(path, StorageUrl) else require_regular(path)


def opened_stream(path: Location) -> Any:
    """A file from its beginning, unpacked where its name says that it is packed."""
    if isinstance(path, StorageUrl):
        return path.open_stream()
    return pa.input_stream(str(path), compression="detect")


class CountedInput(io.RawIOBase):
    """A compressed file, refused once it has given more than a file of its size may hold."""

    def __init__(self, stream: Any, where: str, packed: int) -> None:
        self._stream, self._where, self._packed, self._given = stream, where, packed, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._stream.read(size if size >= 0 else None)
        self._given += len(piece)
        require_unpackable(self._where, self._packed, self._given)
        return piece

    def close(self) -> None:
        self._stream.close()
        super().close()


class ReplayedInput(io.RawIOBase):
    """Standard input from its beginning: the bytes that were read for the header, then the rest."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = head, rest

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head:
            piece, self._head = (self._head[:size], self._head[size:]) if size >= 0 else (self._head, b"")
            return piece
        return self._rest.read(size)
