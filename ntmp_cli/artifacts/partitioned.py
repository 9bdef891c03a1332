"""A folder of files that several processes write; a record per file says that it is done.

A file is written first, then its record; the manifest, if any, comes last. A file without a record, left by a killed
process, is written again. Programs that read the folder as one table skip names that begin with _.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ntmp_cli import __version__
from ntmp_cli.artifacts.locking import folder_lock, remove
from ntmp_cli.artifacts.manifest import FORMAT_VERSION, canonical_json, sha256_file, strict_json
from ntmp_cli.artifacts.writing import replacing
from ntmp_cli.errors import UsageError
from ntmp_cli.storage import Location, StorageUrl

MANIFEST = "_manifest.json"
CONTROL = "_ntmp"
# Requests to a server at a time.
REQUESTS = 16
# "resume" is for folders of intermediate files: files from other settings or inputs are removed.
IfFolderExists = Literal["fail", "overwrite", "resume"]


@dataclass(frozen=True)
class Partition:
    """A file to read, and the name of the file computed from it, relative to the output folder."""

    source: Location
    name: str

    @property
    def label(self) -> str:
        """How messages name it."""
        return self.name

    def state(self) -> dict[str, Any]:
        """Size and modification time of the file to read, by which changes are detected."""
        source = self.source
        if isinstance(source, StorageUrl):
            return {"bytes": source.size(), "modified_ns": source.modified_ns()}
        found = source.stat()
        return {"bytes": found.st_size, "modified_ns": found.st_mtime_ns}


class PartitionedOutput:
    """The output folder, by path or URL; `counts` names the integers in every record."""

    def __init__(self, folder: Location, counts: Sequence[str] = ("rows",)) -> None:
        self.folder, self._counts = folder, counts
        self._plan, self._records = folder / CONTROL / "plan.json", folder / CONTROL / "done"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder against other processes. URLs have no locks; two processes would write the same files."""
        if isinstance(self.folder, StorageUrl):
            yield
            return
        if self.folder.exists() and not self.folder.is_dir():
            raise UsageError(f"--out {self.folder}: is a file", hint="--engine writes a folder of tables.")
        with folder_lock(self.folder) as locked:
            if not locked:
                raise UsageError(
                    f"{self.folder}: another process is writing to this folder",
                    hint="Wait for it, or choose another --out.",
                )
            yield

    def waiting(
        self, plan: Mapping[str, Any], partitions: Sequence[Partition], if_exists: IfFolderExists
    ) -> list[Partition]:
        """Check the folder and return the partitions that are not done yet; nothing is written."""
        if if_exists == "resume":
            self._forget_others(plan, partitions)
        self._require_own()
        before = _read_json(self._plan)
        records = self._all_records() if before is not None else {}
        if if_exists == "overwrite":
            self._clear(records)
            return list(partitions)
        if before is not None and before != self._with_version(plan):
            differing = sorted(key for key in before if before[key] != self._with_version(plan).get(key))
            raise UsageError(
                f"{self.folder}: exists, but from another run or other settings ({', '.join(differing)})",
                hint="Choose another --out, or pass --if-exists overwrite.",
            )
        if lost := sorted(records.keys() - {partition.name for partition in partitions}):
            raise UsageError(
                f"{self.folder}: holds {lost[0]}, written from a table that is no longer among the inputs",
                hint="Choose another --out, or pass --if-exists overwrite.",
            )
        done = self._in_threads(lambda one: self._is_done(records.get(one.name), one), partitions)
        return [partition for partition, is_done in zip(partitions, done, strict=True) if not is_done]

    @contextmanager
    def writing(self, plan: Mapping[str, Any]) -> Iterator[None]:
        """Write the plan into the folder; remove it again if no partition was recorded."""
        _delete(self.folder / MANIFEST)
        _write(self._plan, canonical_json(self._with_version(plan)))
        try:
            yield
        finally:
            if not self._record_files():
                _delete(self._plan)
                self._remove_empty_folders()

    def record(self, partition: Partition, state: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Record that a partition is done; `state` is that of its source before it was read."""
        _write(self._record_of(partition.name), canonical_json({"name": partition.name, "input": state, **facts}))

    def is_recorded(self, partition: Partition) -> bool:
        """Whether a partition is done, as far as this process can see."""
        return self._is_done(self._read_record(self._record_of(partition.name)), partition, by_hash=False)

    def records(self, partitions: Sequence[Partition]) -> list[dict[str, Any]]:
        """The records of partitions that are done."""
        return self._in_threads(lambda one: self._read_record(self._record_of(one.name)) or {}, partitions)

    def finish(self, plan: Mapping[str, Any], partitions: Sequence[Partition]) -> list[dict[str, Any]]:
        """Write the manifest, the last file; returns the records of all partitions."""
        records = self.records(partitions)
        files = [{"path": one["name"], **one["output"], "input": {"bytes": one["input"]["bytes"]}} for one in records]
        manifest = {"kind": "predictions", **self._with_version(plan), "files": files}
        for count in self._counts:
            manifest[count] = sum(file[count] for file in files)
        _write(self.folder / MANIFEST, canonical_json(manifest))
        return records

    def _with_version(self, plan: Mapping[str, Any]) -> dict[str, Any]:
        return {**plan, "format_version": FORMAT_VERSION, "package_version": __version__}

    def _require_own(self) -> None:
        """Refuse a folder with files that this class did not write."""
        folder = self.folder
        if isinstance(folder, Path):
            inside: Iterable[Location] = folder.iterdir() if folder.exists() else ()
        else:
            inside = folder.children()
        if any(True for _ in inside) and _read_json(self._plan) is None:
            raise UsageError(
                f"{folder}: exists and was not written by ntmp predict --engine, so it is never replaced",
                hint="Choose another --out.",
            )

    def _is_done(self, record: dict[str, Any] | None, partition: Partition, *, by_hash: bool = True) -> bool:
        """Whether the source is unchanged and the table complete: by hash on a disk, by size behind a URL."""
        if record is None or record["name"] != partition.name or record["input"] != partition.state():
            return False
        table = self.folder / partition.name
        if not table.is_file():
            return False
        size = table.size() if isinstance(table, StorageUrl) else table.stat().st_size
        made = record["output"]
        same_bytes = isinstance(table, StorageUrl) or not by_hash or sha256_file(table) == made["sha256"]
        return bool(size == made["bytes"]) and same_bytes

    def _record_of(self, name: str) -> Location:
        """Named by a hash: a table's name may contain folders, and be too long for another ending."""
        return self._records / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    def _record_files(self) -> Sequence[Location]:
        place = self._records
        return sorted(place.glob("*.json")) if isinstance(place, Path) else place.children()

    def _all_records(self) -> dict[str, dict[str, Any]]:
        records = self._in_threads(self._read_record, self._record_files())
        return {record["name"]: record for record in records if record is not None}

    def _read_record(self, place: Location) -> dict[str, Any] | None:
        value = _read_json(place)
        return value if value is not None and _is_record(value, self._counts) else None

    def _forget_others(self, plan: Mapping[str, Any], partitions: Sequence[Partition]) -> None:
        """Remove files of another plan, or of sources that are no longer among the inputs."""
        assert isinstance(self.folder, Path), "intermediate files are on a disk"
        if _read_json(self._plan) != self._with_version(plan):
            for child in self.folder.iterdir() if self.folder.exists() else ():
                remove(child)
            return
        for name in self._all_records().keys() - {partition.name for partition in partitions}:
            self._clear([name])

    def _clear(self, records: Iterable[str]) -> None:
        """Remove the files of an earlier call, and nothing else."""
        for name in records:
            _delete(self.folder / name)
            _delete(self._record_of(name))
        _delete(self.folder / MANIFEST)

    def _remove_empty_folders(self) -> None:
        if isinstance(self.folder, Path):
            control = self.folder / CONTROL
            for folder in (control / "done", control, self.folder):
                with suppress(OSError):
                    folder.rmdir()

    def _in_threads(self, work: Any, items: Sequence[Any]) -> list[Any]:
        """Apply `work` to all items, in threads if they are requests to a server."""
        with ThreadPoolExecutor(REQUESTS if isinstance(self.folder, StorageUrl) else 1) as pool:
            return list(pool.map(work, items))


def _read_json(place: Location) -> dict[str, Any] | None:
    """A plan or a record; None if it is missing or damaged, so that its work is done again."""
    if not place.exists():
        return None
    try:
        raw = b"".join(place.pieces()) if isinstance(place, StorageUrl) else place.read_bytes()
        value = strict_json(raw)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_record(value: dict[str, Any], counted: Sequence[str]) -> bool:
    name, made, read, notes = (value.get(key) for key in ("name", "output", "input", "notes"))
    if not (isinstance(name, str) and all(isinstance(part, dict) for part in (made, read, notes))):
        return False
    assert isinstance(made, dict)
    assert isinstance(read, dict)
    path = PurePosixPath(name)
    inside = not path.is_absolute() and ".." not in path.parts and path.parts[:1] != (CONTROL,)
    counts = all(type(made.get(key)) is int for key in ("bytes", *counted))
    return inside and counts and isinstance(made.get("sha256"), str) and type(read.get("bytes")) is int


def _write(place: Location, content: bytes) -> None:
    if isinstance(place, StorageUrl):
        place.write(iter([content]))
        return
    with replacing(place) as partial:
        partial.write_bytes(content)


def _delete(place: Location) -> None:
    if isinstance(place, Path):
        place.unlink(missing_ok=True)
    elif place.is_file():
        place.delete()
