"""Checkpoints of a running stage, beside its future output, until it is published.

The file begins with `MAGIC`, which names the format and its version, and the SHA-256 of all bytes after it: the plan's
hash and the state. Nothing of it is used before that hash was checked.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import shutil
import time
from pathlib import Path
from typing import IO, Any, Literal, cast

from ntmp_cli import __version__
from ntmp_cli.artifacts.locking import can_lock, lock_if_free
from ntmp_cli.artifacts.manifest import Plan
from ntmp_cli.artifacts.publish import linked_output
from ntmp_cli.artifacts.writing import Sink, made_parents, replacing
from ntmp_cli.errors import ArtifactError, UsageError

log = logging.getLogger(__name__)

# "if-same" resumes if the checkpoint belongs to the same plan, and starts from scratch otherwise.
Resume = Literal["no", "yes", "if-same"]

MAGIC = b"ntmp checkpoint 1\n"
HASH_BYTES = 32


class CheckpointStore:
    """`.OUT.checkpoint/state.pt`, replaced atomically and tied to one plan; one of several trainings writes to it."""

    _lock: int | None = None

    def __init__(self, out: Path, plan: Plan, *, resume: Resume, every_seconds: float, writes: bool = True) -> None:
        self.beside = out.parent
        """The folder that the output lies in."""
        out = linked_output(out)
        self.folder = out.parent / f".{out.name}.checkpoint"
        self.file = self.folder / "state.pt"
        # Another version may train another network from the same plan.
        self._plan = hashlib.sha256(__version__.encode() + b"\n" + plan.to_bytes()).digest()
        self._resume = resume
        self._every = every_seconds
        self._writes = writes  # of several processes of one training only one does; all resume from its file
        self._last = time.monotonic()

    def exists(self) -> bool:
        return self.file.is_file()

    def due(self) -> bool:
        return self._writes and time.monotonic() - self._last >= self._every

    def save(self, state: dict[str, Any]) -> None:
        """Replace the checkpoint; on failure the previous one stays."""
        if not self._writes:
            return
        import torch

        with made_parents(self.file):
            if not self._owns_folder():
                log.warning("%s: another training writes its checkpoints there; this one writes none", self.folder)
                self._writes = False
                return
            with replacing(self.file) as partial, Sink(partial) as sink:
                sink.write(MAGIC + bytes(HASH_BYTES) + self._plan)
                torch.save(state, cast(IO[bytes], sink))
                sink.check()
                sink.seek(len(MAGIC))
                sink.write(_body_hash(partial))
        self._last = time.monotonic()

    def _owns_folder(self) -> bool:
        """Whether this process may write to the folder: the first of several trainings with one output."""
        if self._lock is None or not self.folder.exists():
            self.close()
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock = lock_if_free(self.folder)
            except OSError:  # NFS locks files only
                return True
        return self._lock is not None or not can_lock()

    def close(self) -> None:
        """Let another training of the same output write checkpoints."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    __del__ = close

    def load(self) -> dict[str, Any] | None:
        """The saved state when resuming, or None to start from scratch."""
        if self._resume == "no" or not self.exists():
            return None
        import torch

        content = memoryview(self.file.read_bytes())
        head, body = content[: len(MAGIC) + HASH_BYTES], content[len(MAGIC) + HASH_BYTES :]
        if bytes(head) != MAGIC + hashlib.sha256(body).digest():
            raise self.unusable("damaged: not a readable checkpoint")
        if bytes(body[:HASH_BYTES]) != self._plan:
            if self._resume == "if-same":
                return None
            raise UsageError(
                f"{self.file}: the checkpoint belongs to other tuples or settings",
                hint="Repeat the interrupted command exactly, or start again without --resume.",
            )
        try:
            return dict(torch.load(io.BytesIO(body[HASH_BYTES:]), weights_only=True, map_location="cpu"))
        except Exception:  # any error of torch on forged bytes with a matching hash
            raise self.unusable("damaged: not a readable checkpoint") from None

    def unusable(self, why: str) -> ArtifactError:
        """The error for a checkpoint that cannot be resumed; the file is kept."""
        again = "Start again without --resume." if self._resume == "yes" else f"Remove {self.folder} and start again."
        return ArtifactError(f"{self.file}: {why}", hint=again)

    def remove(self) -> None:
        if self._writes and self.folder.exists() and self._owns_folder():
            shutil.rmtree(self.folder, ignore_errors=True)
        self.close()


def _body_hash(path: Path) -> bytes:
    """SHA-256 of the bytes on disk that follow the head of a checkpoint."""
    with path.open("rb") as file:
        file.seek(len(MAGIC) + HASH_BYTES)
        return hashlib.file_digest(file, "sha256").digest()
