"""Checkpoints of a running stage, beside its future output, until it is published.

The file begins with `MAGIC`, which names the format and its version, and the SHA-256 of all bytes after it: the plan's
hash and the state. Nothing of it is used before that hash was checked.
"""

from __future__ import annotations

import hashlib
import io
import shutil
import time
from pathlib import Path
from typing import IO, Any, Literal, cast

from ntmp_cli import __version__
from ntmp_cli.artifacts.manifest import Plan
from ntmp_cli.artifacts.publish import linked_output
from ntmp_cli.artifacts.writing import Sink, replacing
from ntmp_cli.errors import ArtifactError, UsageError

# "if-same" goes on when the checkpoint belongs to the same plan, and starts afresh otherwise.
Resume = Literal["no", "yes", "if-same"]

MAGIC = b"ntmp checkpoint 1\n"
HASH_BYTES = 32


class CheckpointStore:
    """`.OUT.checkpoint/state.pt`, replaced atomically and tied to one plan."""

    def __init__(self, out: Path, plan: Plan, *, resume: Resume, every_seconds: float, writes: bool = True) -> None:
        self.beside = out.parent
        """The folder that the output lies in."""
        out = linked_output(out)
        self.folder = out.parent / f".{out.name}.checkpoint"
        self.file = self.folder / "state.pt"
        # Another version may train another network by the same plan.
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
        """Replace the checkpoint; where that fails the one before stays as it is."""
        if not self._writes:
            return
        import torch

        for left in self.folder.glob(f".{self.file.name}.partial-*"):  # by a process that was killed
            left.unlink(missing_ok=True)
        with replacing(self.file) as partial, Sink(partial) as sink:
            sink.write(MAGIC + bytes(HASH_BYTES) + self._plan)
            torch.save(state, cast(IO[bytes], sink))
            sink.check()
            sink.seek(len(MAGIC))
            sink.write(_body_hash(partial))
        self._last = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The saved state when resuming, or None to start afresh."""
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
        except Exception:  # whatever torch raises on bytes that were made to fit their hash
            raise self.unusable("damaged: not a readable checkpoint") from None

    def unusable(self, why: str) -> ArtifactError:
        """The error for a checkpoint that no training can go on from. The file stays."""
        again = "Start again without --resume." if self._resume == "yes" else f"Remove {self.folder} and start again."
        return ArtifactError(f"{self.file}: {why}", hint=again)

    def remove(self) -> None:
        if not self._writes:
            return
        shutil.rmtree(self.folder, ignore_errors=True)


def _body_hash(path: Path) -> bytes:
    """SHA-256 of what follows the head of a checkpoint, as it is on the disk."""
    with path.open("rb") as file:
        file.seek(len(MAGIC) + HASH_BYTES)
        return hashlib.file_digest(file, "sha256").digest()
