"""Locks of files and folders. A lock ends with its process, so that files of killed processes are known to be stale."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not POSIX: the user has to remove the files of killed processes
    fcntl = None  # type: ignore[assignment]


def can_lock() -> bool:
    """Whether the system has locks at all."""
    return fcntl is not None


def new_temporary(out: Path, *, is_folder: bool) -> tuple[Path, int | None]:
    """A new hidden file or folder beside `out`, and the handle that holds its lock, or None without locks."""
    while True:
        path = out.parent / f".{out.name}.partial-{secrets.token_hex(6)}"
        # Another process that failed may have removed the parent folder that it had made.
        path.parent.mkdir(parents=True, exist_ok=True)
        # Between making and locking, another process may see no owner and remove it.
        with suppress(FileNotFoundError):
            if is_folder:
                path.mkdir()
            else:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            try:
                handle = lock_if_free(path)
            except FileNotFoundError:  # removed before it was opened
                continue
            except OSError:  # NFS locks files only: no other process removes the folder there
                return path, None
            if handle is not None or fcntl is None:
                return path, handle


def lock_if_free(path: Path) -> int | None:
    """The handle that locks an existing file or folder; None if another process has the lock, or without locks."""
    if fcntl is None:
        return None
    handle = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # It may have been removed and created again since it was opened.
        if path.exists() and os.path.samestat(os.fstat(handle), path.stat()):
            return handle
    except BlockingIOError:
        pass
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def remove_stale(out: Path) -> None:
    """Remove temporary files and folders of `out` whose process is gone."""
    if fcntl is None:
        return
    for left in out.parent.glob(f".{glob.escape(out.name)}.partial-*"):
        with suppress(OSError):
            handle = lock_if_free(left)
            if handle is not None:
                try:
                    remove(left)
                finally:
                    os.close(handle)


def remove(path: Path) -> None:
    """Remove a file or a folder, whichever it is, if it exists."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(FileNotFoundError):
            path.unlink()


@contextmanager
def folder_lock(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a folder for the duration of the context; False if another process holds the lock.

    Always True if the system cannot lock folders.
    """
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        locked = True
        if fcntl is not None:
            with suppress(OSError):
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError:
                    locked = False
        yield locked
    finally:
        os.close(handle)
        if made:  # a failure leaves nothing behind, not even an empty folder
            with suppress(OSError):
                folder.rmdir()
