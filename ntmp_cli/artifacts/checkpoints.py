"""Checkpoints of a running stage, beside its future output, until it is published."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from ntmp_cli.artifacts.manifest import Plan, canonical_json
from ntmp_cli.artifacts.publish import linked_output
from ntmp_cli.errors import ArtifactError, UsageError

# "if-same" goes on when the checkpoint belongs to the same plan, and starts afresh otherwise.
Resume = Literal["no", "yes", "if-same"]


class CheckpointStore:
    """`.OUT.checkpoint/state.pt`, replaced atomically and tied to one plan."""

    def __init__(self, out: Path, plan: Plan, *, resume: Resume, every_seconds: float, writes: bool = True) -> None:
        out = linked_output(out)
        self.folder = out.parent / f".{out.name}.checkpoint"
        self._file = self.folder / "state.pt"
        self._plan = hashlib.sha256(canonical_json(asdict(plan))).hexdigest()
        self._resume = resume
        self._every = every_seconds
        self._writes = writes  # of several processes that train together only one does; all go on from what it wrote
        self._last = time.monotonic()

    def exists(self) -> bool:
        return self._file.is_file()

    def due(self) -> bool:
        return self._writes and time.monotonic() - self._last >= self._every

    def save(self, state: dict[str, Any]) -> None:
        if not self._writes:
            return
        import torch

        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".tmp")
        with partial.open("wb") as file:
            torch.save({"plan": self._plan, "state": state}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self._file)
        self._last = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The saved state when resuming, or None to start afresh."""
        if self._resume == "no" or not self.exists():
            return None
        import torch

        try:
            saved = torch.load(self._file, weights_only=True, map_location="cpu")
            plan, state = saved["plan"], saved["state"]
        except Exception:
            raise ArtifactError(
                f"{self._file}: damaged: not a readable checkpoint", hint="Start again without --resume."
            ) from None
        if plan != self._plan:
            if self._resume == "if-same":
                return None
            raise UsageError(
                f"{self._file}: the checkpoint belongs to other tuples or settings",
                hint="Repeat the interrupted command exactly, or start again without --resume.",
            )
        return dict(state)

    def remove(self) -> None:
        if not self._writes:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
