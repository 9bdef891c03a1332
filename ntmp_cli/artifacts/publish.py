"""Atomic publishing: all of an artefact appears at once, or nothing does.

A stage writes into a hidden sibling directory, the manifest last; everything is flushed to disk and
one rename makes it visible. A killed stage leaves only the hidden sibling, which the next run to the
same place removes: its process held a lock on it, and a lock ends with its process.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ntmp_cli.artifacts.layout import STRATA
from ntmp_cli.artifacts.locking import new_temporary, remove_stale
from ntmp_cli.artifacts.long_fields import long_fields
from ntmp_cli.artifacts.manifest import (
    KINDS,
    MANIFEST,
    Artifact,
    FileEntry,
    Manifest,
    Plan,
    canonical_json,
    carries_manifest,
    open_artifact,
    rows_by_file,
    sha256_file,
)
from ntmp_cli.artifacts.overlap import refuse_overlap
from ntmp_cli.artifacts.summary_fields import Summary
from ntmp_cli.artifacts.writing import disk_errors, flush, made_parents
from ntmp_cli.errors import ArtifactError, UsageError

log = logging.getLogger(__name__)

# `refresh` is for `ntmp run`: keep unchanged outputs, replace the others.
IfExists = Literal["fail", "skip", "overwrite", "refresh"]


@dataclass
class Staging:
    """The directory that a stage writes into. Every file is announced with `add` once it is closed."""

    path: Path
    summary: Summary | None = None
    unhashed: list[str] = field(default_factory=list)
    _hasher: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(2), repr=False)
    _entries: dict[str, Future[FileEntry]] = field(default_factory=dict, repr=False)

    def file(self, name: str) -> Path:
        """Where to write the payload file `name`."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def add(self, name: str, rows: int | None = None) -> None:
        """Announce a finished file. It is flushed and hashed while the next one is written."""
        self._entries[name] = self._hasher.submit(self._settle, name, rows)

    def add_bytes(self, name: str, content: bytes, rows: int | None = None) -> None:
        self.file(name).write_bytes(content)
        self.add(name, rows)

    def add_json(self, name: str, value: Any, rows: int | None = None) -> None:
        self.add_bytes(name, canonical_json(value), rows)

    def carry(self, source: Artifact, name: str) -> None:
        """Copy a payload file of an input unopened, so that the new artefact needs no other."""
        shutil.copyfile(source.file(name), self.file(name))
        self.add(name, next(entry.rows for entry in source.manifest.files if entry.path == name))

    def add_unhashed(self, name: str, content: bytes) -> None:
        """A file that differs between equal runs, such as timings."""
        self.file(name).write_bytes(content)
        self.unhashed.append(name)

    def _settle(self, name: str, rows: int | None) -> FileEntry:
        path = self.path / name
        digest = sha256_file(path)
        flush(path)
        return FileEntry(name, path.stat().st_size, digest, rows)

    def entries(self) -> tuple[FileEntry, ...]:
        return tuple(self._entries[name].result() for name in sorted(self._entries))

    def close(self) -> None:
        self._hasher.shutdown(cancel_futures=True)


def existing_output(out: Path, plan: Plan, if_exists: IfExists) -> Artifact[Any] | None:
    """Decide what happens to existing output before any work is done.

    Returns the artefact to keep (`skip`), or None when the stage should compute.
    """
    refuse_overlap(out, plan.reads)
    _require_reachable(out)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    if not carries_manifest(out):
        raise UsageError(
            f"{out}: exists and was not written by ntmp, so it is never replaced",
            hint="Choose another --out.",
        )
    if if_exists == "overwrite":
        return None
    if if_exists == "fail":
        raise UsageError(
            f"{out}: exists already",
            hint="Choose another --out, or pass --if-exists skip (keep it) or --if-exists overwrite.",
        )
    existing = open_artifact(out)
    if not existing.manifest.fulfils(plan):
        if if_exists == "refresh":
            return None
        raise UsageError(
            f"{out}: exists, but from other inputs or settings ({_difference(existing.manifest, plan)})",
            hint="Choose another --out, or pass --if-exists overwrite.",
        )
    if if_exists == "refresh" and (damage := existing.damage()):
        log.warning("%s; it is made again", damage)
        return None
    existing.verify()
    remove_stale(linked_output(out))
    existing.kept = True
    return existing


def _require_reachable(out: Path) -> None:
    """Refuse an output path that cannot be created, before any work is done."""
    blocking = next((parent for parent in out.absolute().parents if parent.exists() and not parent.is_dir()), None)
    if blocking is not None:
        raise UsageError(f"{out}: cannot be made, because {blocking} is a file", hint="Choose another --out.")


@contextmanager
def publishing(out: Path, plan: Plan, *, if_exists: IfExists = "fail") -> Iterator[Staging]:
    """Give a staging directory; on success publish it as `out`, on any failure remove it."""
    if plan.kind not in KINDS:
        raise ValueError(f"unknown artefact kind '{plan.kind}'")
    refuse_overlap(out, plan.reads)
    out = linked_output(out)
    with disk_errors(out), made_parents(out):
        remove_stale(out)
        path, lock = new_temporary(out, is_folder=True)
        staging = Staging(path)
        try:
            yield staging
            _write_manifest(staging, plan)
            _swap_in(path, out, plan, if_exists)
            _confirm(out)
        finally:
            staging.close()
            if lock is not None:
                os.close(lock)
            shutil.rmtree(path, ignore_errors=True)


def _confirm(out: Path) -> None:
    """Flush the parent folder of the output. The output is published by now, so an error is only a warning."""
    try:
        flush(out.parent)
    except OSError as error:
        log.warning("%s: is complete, but the disk did not confirm it (%s)", out, error.strerror)


def _write_manifest(staging: Staging, plan: Plan) -> None:
    """The last file of an artefact, once all others are known to be on the disk."""
    if staging.summary is not None and (aside := long_fields(plan.kind, staging.summary.to_json())):
        staging.add_json(STRATA, aside)
    path, entries = staging.path, staging.entries()
    summary = _fitting_summary(staging.summary, plan, entries)
    manifest = Manifest(plan.kind, plan.config, plan.seed, plan.inputs, entries, summary, tuple(staging.unhashed))
    (path / MANIFEST).write_bytes(manifest.to_bytes())
    for folder in (path, *(p for p in path.rglob("*") if p.is_dir())):
        flush(folder)
    flush(path / MANIFEST)


def _fitting_summary(summary: Summary | None, plan: Plan, files: Sequence[FileEntry]) -> Summary:
    """Refuse to publish what no reader would open: that is an internal error."""
    if summary is None or summary.kind != plan.kind:
        raise ValueError(f"a stage of kind '{plan.kind}' must set its summary")
    if problems := list(summary.misfits(rows_by_file(files))):
        raise ValueError(f"summary of kind '{plan.kind}': {'; '.join(problems)}")
    return summary


def linked_output(out: Path) -> Path:
    """The path behind links: a link stays, and its target is created or replaced."""
    try:
        return out.resolve() if out.is_symlink() else out.absolute()
    except RuntimeError:
        raise UsageError(f"{out}: a link that leads to itself", hint="Choose another --out.") from None


def _swap_in(path: Path, out: Path, plan: Plan, if_exists: IfExists) -> None:
    """Make `path` visible as `out`. Replacing exchanges the two, so that `out` exists at every moment.

    If another process published first, `skip` keeps its output if that is the same.
    """
    try:
        path.rename(out)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    if if_exists == "skip" and carries_manifest(out) and open_artifact(out).manifest.fulfils(plan):
        log.info("%s: another process made it meanwhile; it is kept", out)
        return
    if if_exists not in ("overwrite", "refresh") or not carries_manifest(out):
        raise ArtifactError(f"{out}: appeared while this stage was running; nothing was replaced")
    if not _exchange(path, out):
        old = out.parent / f".{out.name}.old-{secrets.token_hex(6)}"
        out.rename(old)
        path.rename(out)
        shutil.rmtree(old, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two directories in one step (Linux renameat2); False where the system cannot."""
    at_cwd, rename_exchange = -100, 2
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    return bool(rename(at_cwd, os.fsencode(a), at_cwd, os.fsencode(b), rename_exchange) == 0)


def _difference(manifest: Manifest, plan: Plan) -> str:
    """Name what changed, settings first, because that is what a user typed."""
    if manifest.kind != plan.kind:
        return f"it is of kind '{manifest.kind}'"
    keys = sorted(manifest.config.keys() | plan.config.keys())
    changed = [
        f"{key}: {manifest.config.get(key)} there, {plan.config.get(key)} now"
        for key in keys
        if manifest.config.get(key) != plan.config.get(key)
    ]
    if changed:
        return "; ".join(changed[:5])
    if list(manifest.inputs) != list(plan.inputs):
        return "its inputs differ"
    return f"written by ntmp {manifest.package_version}"
