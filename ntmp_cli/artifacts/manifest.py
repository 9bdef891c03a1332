"""The manifest: what a directory holds, where it came from, and the hash of every byte in it.

`manifest.json` is written last, so its presence means that the directory is complete. It holds no
time stamp and no host path: the same seed gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ntmp_cli import __version__
from ntmp_cli.errors import ArtifactError

MANIFEST = "manifest.json"
FORMAT = "ntmp"
FORMAT_VERSION = 1
KINDS = {
    "tuples": "ntmp make-tuples",
    "features": "ntmp train --encoder",
    "prior": "ntmp estimate-prior",
    "run": "ntmp train",
    "evaluation": "ntmp evaluate",
    "report": "ntmp report",
    "design": "ntmp design",
    "sweep": "ntmp sweep",
    "audit": "ntmp audit",
    "export": "ntmp export",
}


@dataclass(frozen=True)
class Plan:
    """What a stage is about to compute. Two equal plans give equal bytes."""

    kind: str
    config: dict[str, Any]
    seed: int | None = None
    inputs: tuple[dict[str, str], ...] = ()
    # Where the inputs lie, so that no output replaces them. Not recorded: manifests hold no path of this machine.
    reads: tuple[Path, ...] = field(default=(), compare=False)

    def to_bytes(self) -> bytes:
        """One spelling of what is recorded."""
        recorded = {"kind": self.kind, "config": self.config, "seed": self.seed, "inputs": self.inputs}
        return canonical_json(recorded)


@dataclass(frozen=True)
class FileEntry:
    """One payload file; `rows` is what it counts (tuples, instances, lines), if anything."""

    path: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True)
class Manifest:
    kind: str
    config: dict[str, Any]
    seed: int | None
    inputs: tuple[dict[str, str], ...]
    files: tuple[FileEntry, ...]
    summary: dict[str, Any]
    # Files that differ between equal runs (timings): named, so that they are not foreign, but not hashed.
    unhashed: tuple[str, ...] = ()
    package_version: str = __version__
    format_version: int = FORMAT_VERSION

    def to_bytes(self) -> bytes:
        return canonical_json({"format": FORMAT, **asdict(self)})

    def fulfils(self, plan: Plan) -> bool:
        """Whether this artefact is what `plan` would compute again."""
        mine = Plan(self.kind, self.config, self.seed, self.inputs)
        return self.package_version == __version__ and mine.to_bytes() == plan.to_bytes()


@dataclass
class Artifact:
    """A published directory. Files are checked against the manifest the first time they are used."""

    path: Path
    manifest: Manifest
    sha256: str
    kept: bool = False  # it was there already, so that nothing was computed
    _checked: set[str] = field(default_factory=set, repr=False)

    @property
    def kind(self) -> str:
        return self.manifest.kind

    @property
    def summary(self) -> dict[str, Any]:
        return self.manifest.summary

    def entries(self, prefix: str = "") -> list[FileEntry]:
        """Payload files whose path starts with `prefix`, in order."""
        return [entry for entry in self.manifest.files if entry.path.startswith(prefix)]

    def has(self, name: str) -> bool:
        return any(entry.path == name for entry in self.manifest.files)

    def file(self, name: str) -> Path:
        """Path of a payload file, after checking its size and hash."""
        entry = next((e for e in self.manifest.files if e.path == name), None)
        if entry is None:
            raise ArtifactError(f"{self.path}: the manifest lists no file '{name}'", hint=self._remake())
        if name not in self._checked:
            self._check(entry)
            self._checked.add(name)
        return self.path / name

    def read_json(self, name: str) -> Any:
        """The content of a JSON payload file."""
        return json.loads(self.file(name).read_bytes())

    def damage(self) -> str | None:
        """What is wrong with the first payload file that is not as it was written, if any."""
        try:
            for entry in self.manifest.files:
                self.file(entry.path)
        except ArtifactError as error:
            return error.message
        return None

    def verify(self) -> None:
        """Check every payload file, and that nothing foreign lies among them."""
        for entry in self.manifest.files:
            self.file(entry.path)
        known = {entry.path for entry in self.manifest.files} | set(self.manifest.unhashed) | {MANIFEST}
        present = {str(p.relative_to(self.path)) for p in self.path.rglob("*") if not p.is_dir()}
        foreign = sorted(present - known)
        if foreign:
            raise ArtifactError(
                f"{self.path}: holds files that the manifest does not list: {', '.join(foreign[:5])}",
                hint="Move them elsewhere; an artefact directory holds only what its stage wrote.",
            )

    def _check(self, entry: FileEntry) -> None:
        path = self.path / entry.path
        if not path.is_file():
            raise ArtifactError(f"{path}: listed in the manifest but missing", hint=self._remake())
        size = path.stat().st_size
        if size != entry.bytes:
            how = "truncated" if size < entry.bytes else "too long"
            raise ArtifactError(f"{path}: {how}: {size} bytes, expected {entry.bytes}", hint=self._remake())
        if sha256_file(path) != entry.sha256:
            raise ArtifactError(f"{path}: damaged: its contents do not match the recorded hash", hint=self._remake())

    def _remake(self) -> str:
        return f"Make the directory again with `{KINDS[self.kind]}`, or restore it from a copy."


def open_artifact(path: Path, kind: str | None = None) -> Artifact:
    """Read and check the manifest of a directory; files are checked when they are used."""
    expected = f"Pass the directory written by `{KINDS[kind]}`." if kind else "Pass a directory written by ntmp."
    if not path.exists():
        raise ArtifactError(f"{path}: no such directory", hint=expected)
    if not path.is_dir():
        raise ArtifactError(f"{path}: is a file, not a directory of ours", hint=expected)
    file = path / MANIFEST
    if not file.is_file():
        raise ArtifactError(f"{path}: not an ntmp artefact: it has no {MANIFEST}", hint=expected)
    raw = file.read_bytes()
    manifest = _parse(file, raw)
    if kind and manifest.kind != kind:
        raise ArtifactError(f"{path}: expected kind '{kind}', found '{manifest.kind}'", hint=expected)
    return Artifact(path, manifest, hashlib.sha256(raw).hexdigest())


def _parse(file: Path, raw: bytes) -> Manifest:
    try:
        document = json.loads(raw)
    except ValueError:
        raise ArtifactError(f"{file}: damaged: not valid JSON", hint="Restore it from a copy.") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ArtifactError(f"{file}: foreign: not the manifest of an ntmp artefact")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"{file}: format version {version}, but this ntmp {__version__} reads version {FORMAT_VERSION}",
            hint="Use the ntmp version that wrote it, or make the artefact again.",
        )
    try:
        files = tuple(FileEntry(**entry) for entry in document.pop("files"))
        manifest = Manifest(
            files=files,
            inputs=tuple(document.pop("inputs")),
            unhashed=tuple(document.pop("unhashed")),
            **document,
        )
        if not _well_typed(manifest):
            raise TypeError
    except (TypeError, KeyError, AttributeError):
        raise ArtifactError(
            f"{file}: damaged: fields are missing, unknown or of the wrong type", hint="Restore it from a copy."
        ) from None
    if manifest.kind not in KINDS:
        raise ArtifactError(f"{file}: unknown kind '{manifest.kind}'", hint=f"Known kinds: {', '.join(KINDS)}.")
    for entry in files:
        # A manifest may name only files inside its own directory.
        if Path(entry.path).is_absolute() or ".." in Path(entry.path).parts:
            raise ArtifactError(f"{file}: foreign: lists a file outside its directory: {entry.path}")
    return manifest


def _well_typed(manifest: Manifest) -> bool:
    expected = {"kind": str, "config": dict, "summary": dict, "package_version": str}
    return (
        all(isinstance(getattr(manifest, name), kind) for name, kind in expected.items())
        and all(isinstance(each, dict) for each in manifest.inputs)
        and all(isinstance(name, str) for name in manifest.unhashed)
        and all(isinstance(e.path, str) and isinstance(e.bytes, int) for e in manifest.files)
    )


def carries_manifest(path: Path) -> bool:
    """Whether a directory holds a manifest of ours, of any version. Other programs use this file name too."""
    try:
        document = json.loads((path / MANIFEST).read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


def content_sha256(artifact: Artifact) -> str:
    """Of the payload alone: the same for equal files, whichever version of ntmp wrote the manifest."""
    return hashlib.sha256("".join(f"{e.path} {e.sha256}\n" for e in artifact.manifest.files).encode()).hexdigest()


def describe_input(artifact: Artifact) -> dict[str, str]:
    """How an artefact is named in the lineage of the next one."""
    return {"kind": artifact.kind, "sha256": artifact.sha256}


def canonical_json(value: Any) -> bytes:
    """One spelling for one value: sorted keys, plain ASCII, no NaN."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def sha256_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
