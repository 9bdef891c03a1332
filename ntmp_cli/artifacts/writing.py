"""Writing files that may not fit on the disk: one message when the disk is full, and no half-written file.

Libraries written in C do not survive a write that fails halfway: h5py ends the interpreter, torch.save
hides the reason. They write through a `Sink`, which keeps the error until Python code checks for it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ntmp_cli.artifacts.locking import new_temporary, remove_stale
from ntmp_cli.errors import OutputError

# The disk is full, the quota is used up, the file is larger than allowed, the device is broken.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


@contextmanager
def disk_errors(out: Path) -> Iterator[None]:
    """Turn errors of a full or broken disk into one message about `out`, whichever temporary file they name.

    An error that names a file elsewhere, such as an input on a broken disk, is passed on as it is.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_ERRORS or not _concerns(error, out):
            raise
        reason = error.strerror or os.strerror(error.errno)
        raise OutputError(
            f"{out}: cannot be written: {reason}", hint="Nothing was changed. Free some space, or write elsewhere."
        ) from error


def _concerns(error: OSError, out: Path) -> bool:
    """Whether an error is about no named file, about `out`, or about a temporary file, beside it as `.OUT.…`."""
    named = [Path(os.fsdecode(name)) for name in (error.filename, error.filename2) if name is not None]
    temporary = f".{out.name}."
    return not named or any(
        path == out or (path.parent == out.parent and path.name.startswith(temporary))
        for file in named
        for path in (file, *file.parents)
    )


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty temporary file beside `path`; on success flushed and renamed to it, on failure removed.

    After a kill it stays until the next command that writes to `path`.
    """
    with disk_errors(path), made_parents(path):
        remove_stale(path)
        partial, lock = new_temporary(path, is_folder=False)
        try:
            yield partial
            flush(partial)
            partial.replace(path)
        finally:
            if lock is not None:
                os.close(lock)
            with suppress(FileNotFoundError):
                partial.unlink()


@contextmanager
def made_parents(path: Path) -> Iterator[None]:
    """Create the folders above `path`; those that were created are removed again on failure."""
    missing = [parent for parent in path.absolute().parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        with suppress(OSError):  # another process may use them by now
            for parent in missing:
                parent.rmdir()
        raise


def flush(path: Path) -> None:
    """Flush a file or folder to the disk (fsync)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Sink:
    """A new binary file whose write errors are kept for `check`, and never raised to the library that writes.

    After the first error nothing more is written to the disk. Later writes are held in memory, so that the library
    reads back what it wrote and can close without an error; frequent checks keep this small.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o666)
        self._position = self._size = 0
        self._error: OSError | None = None
        self._held: list[tuple[int, bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            os.close(self._descriptor)  # network drives report a full disk here
        except OSError as late:
            self._error = self._error or late
        if error is None or (isinstance(error, Exception) and error is not self._error):
            self.check()

    def check(self) -> None:
        """Raise the first error of the disk, if there was one."""
        if self._error is not None:
            raise self._error

    def write(self, content: Any) -> int:
        rest = memoryview(content).cast("B")
        start, size = self._position, len(rest)
        self._position += size
        self._size = max(self._size, self._position)
        if self._error is None:
            try:
                done = 0
                while done < size:
                    done += os.pwrite(self._descriptor, rest[done:], start + done)
            except OSError as error:
                self._error = error
        if self._error is not None:
            self._held.append((start, bytes(rest)))
        return size

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        start, size = self._position, min(len(target), max(0, self._size - self._position))
        target[:size] = bytes(size)
        self._position += size
        with suppress(OSError):  # what cannot be read is zero, as in a file with holes
            done = 0
            while done < size and (got := os.preadv(self._descriptor, [target[done:size]], start + done)):
                done += got
        for at, content in self._held:
            low, high = max(at, start), min(at + len(content), start + size)
            if low < high:
                target[low - start : high - start] = content[low - at : high - at]
        return size

    def read(self, size: int) -> bytes:
        buffer = bytearray(size)
        return bytes(buffer[: self.readinto(buffer)])

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def truncate(self, size: int) -> int:
        self._size = size
        if self._error is None:
            try:
                os.ftruncate(self._descriptor, size)
            except OSError as error:
                self._error = error
        return size

    def flush(self) -> None:
        """Nothing is buffered here; files are flushed to the disk when they are complete."""
