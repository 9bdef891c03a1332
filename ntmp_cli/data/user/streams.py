"""Input streams of tables: block sizes, compressed files of bounded size, rereadable standard input."""

from __future__ import annotations

import io
from typing import IO, Any

import pyarrow as pa

from ntmp_cli.storage import Location, StorageUrl
from ntmp_cli.unpacking import require_regular, require_unpackable

BLOCK_BYTES = 2**20
# Every block costs some microseconds per column. Blocks of wide tables are therefore larger: at least so many rows, but
# at most so many bytes, because several blocks are in memory at a time.
LEAST_ROWS = 256
WIDE_BYTES = 64 * 2**20
# A row longer than a block cannot be read, so a block holds at least so many rows of average length.
FEWEST_ROWS = 4
HEAD_BYTES = 2**20
# The first rows determine the types of columns; those of wide tables need more bytes. The limit is for files that have
# no lines.
HEAD_ROWS = 16
MOST_HEAD_BYTES = 2**28


def bytes_of_block(block_bytes: int, row_bytes: float) -> int:
    """Bytes per block for rows of this size; wide blocks shrink in proportion if `block_bytes` is below the default."""
    wide = min(LEAST_ROWS * row_bytes, WIDE_BYTES) * min(1.0, block_bytes / BLOCK_BYTES)
    return max(block_bytes, round(wide), round(FEWEST_ROWS * row_bytes))


def first_bytes(stream: IO[bytes]) -> tuple[bytes, bool]:
    """The beginning of a file, at least some lines; and whether that is the whole file."""
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
    """The size of a regular file or of a URL."""
    return path.size() if isinstance(path, StorageUrl) else require_regular(path)


def opened_stream(path: Location) -> Any:
    """A file from its beginning, decompressed according to its ending."""
    if isinstance(path, StorageUrl):
        return path.open_stream()
    return pa.input_stream(str(path), compression="detect")


class CountedInput(io.RawIOBase):
    """A compressed file, refused once it has unpacked to more than its size allows."""

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
