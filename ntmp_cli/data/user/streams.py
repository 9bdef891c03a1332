"""What a table is read from: compressed files of bounded size, and standard input from its beginning."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

from ntmp_cli.unpacking import require_unpackable


class CountedInput(io.RawIOBase):
    """A compressed file, refused once it has given more than a file of its size may hold."""

    def __init__(self, stream: Any, path: Path, packed: int) -> None:
        self._stream, self._path, self._packed, self._given = stream, path, packed, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece: bytes = self._stream.read(size if size >= 0 else None)
        self._given += len(piece)
        require_unpackable(self._path, self._packed, self._given)
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
