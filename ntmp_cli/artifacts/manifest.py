"""The manifest: what a directory holds, where it came from, and the hash of every byte in it.

`manifest.json` is written last, so its presence means that the directory is complete. It holds no
time stamp and no host path: the same seed gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Literal, overload

from pydantic import ValidationError
from typing_extensions import TypeVar

from ntmp_cli import __version__
from ntmp_cli.artifacts.layout import STRATA
from ntmp_cli.artifacts.long_fields import is_elsewhere, with_long_fields, without_long_fields
from ntmp_cli.artifacts.summaries import (
    SUMMARIES,
    AuditSummary,
    DesignSummary,
    EvaluationSummary,
    ExplanationSummary,
    ExportSummary,
    FeaturesSummary,
    PriorSummary,
    ReportSummary,
    RunSummary,
    SweepSummary,
    TuplesSummary,
)
from ntmp_cli.artifacts.summary_fields import Summary, problems_of
from ntmp_cli.errors import ArtifactError
from ntmp_cli.storage import Location, StorageUrl

# If the kind does not matter, the type is `Artifact` without a parameter.
S = TypeVar("S", bound=Summary, covariant=True, default=Summary)

MANIFEST = "manifest.json"
FORMAT = "ntmp"
FORMAT_VERSION = 1
# The key of a configuration that names the plugins it depends on.
PLUGINS = "plugins"
SHOWN_PROBLEMS = 5
# A larger file is not a manifest.
MOST_MANIFEST_BYTES = 2**28
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
    "explanation": "ntmp explain",
}


@dataclass(frozen=True)
class Plan:
    """What a stage is about to compute. Two equal plans give equal bytes."""

    kind: str
    config: dict[str, Any]
    seed: int | None = None
    inputs: tuple[dict[str, str], ...] = ()
    # Paths of the inputs, so that no output replaces them. Not recorded: manifests hold no path of this machine.
    reads: tuple[Path, ...] = field(default=(), compare=False)

    def to_bytes(self) -> bytes:
        """The recorded fields as canonical JSON."""
        recorded = {"kind": self.kind, "config": self.config, "seed": self.seed, "inputs": self.inputs}
        return canonical_json(recorded)


@dataclass(frozen=True)
class FileEntry:
    """One payload file; `rows` is its number of tuples, instances or lines, if it has any."""

    path: str
    bytes: int
    sha256: str
    rows: int | None = None


@dataclass(frozen=True)
class Manifest(Generic[S]):
    kind: str
    config: dict[str, Any]
    seed: int | None
    inputs: tuple[dict[str, str], ...]
    files: tuple[FileEntry, ...]
    summary: S
    # Files that differ between equal runs (timings): listed, but not hashed.
    unhashed: tuple[str, ...] = ()
    package_version: str = __version__
    format_version: int = FORMAT_VERSION

    def to_bytes(self) -> bytes:
        summary = without_long_fields(self.kind, self.summary.to_json())
        return canonical_json({"format": FORMAT, **asdict(self), "summary": summary})

    @property
    def plugins(self) -> dict[str, str]:
        """Origin of registered names that are not built in: `method mine` -> file and hash."""
        return dict(self.config.get(PLUGINS, {}))

    def fulfils(self, plan: Plan) -> bool:
        """Whether this artefact is what `plan` would compute again."""
        recorded = Plan(self.kind, self.config, self.seed, self.inputs)
        return self.package_version == __version__ and recorded.to_bytes() == plan.to_bytes()


@dataclass
class Artifact(Generic[S]):
    """A published directory. Files are checked against the manifest the first time they are used."""

    path: Path
    manifest: Manifest[S]
    sha256: str
    kept: bool = False  # it existed already, so nothing was computed
    _checked: set[str] = field(default_factory=set, repr=False)

    @property
    def kind(self) -> str:
        return self.manifest.kind

    @property
    def summary(self) -> S:
        return self.manifest.summary

    def entries(self, prefix: str = "") -> list[FileEntry]:
        """Payload files whose path starts with `prefix`, in order."""
        return [entry for entry in self.manifest.files if entry.path.startswith(prefix)]

    def has(self, name: str) -> bool:
        return any(entry.path == name for entry in self.manifest.files)

    def entry(self, name: str) -> FileEntry:
        """What the manifest says about a payload file."""
        entry = next((e for e in self.manifest.files if e.path == name), None)
        if entry is None:
            raise ArtifactError(f"{self.path}: the manifest lists no file '{name}'", hint=remake(self.kind))
        return entry

    def file(self, name: str) -> Path:
        """Path of a payload file, after checking its size and hash."""
        entry = self.entry(name)
        if name not in self._checked:
            self._check(entry)
            self._checked.add(name)
        return self.path / name

    def read_json(self, name: str) -> Any:
        """The content of a JSON payload file."""
        try:
            return strict_json(self.file(name).read_bytes())
        except ValueError:
            raise self.damaged(name, "not valid JSON") from None

    def read_text(self, name: str) -> str:
        """The content of a text file."""
        try:
            return self.file(name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            raise self.damaged(name, "not valid UTF-8") from None

    def damaged(self, name: str, what: str) -> ArtifactError:
        """The error for a payload file that matches its hash but has invalid content."""
        return ArtifactError(f"{self.path / name}: damaged: {what}", hint=remake(self.kind))

    def require_rows(self, name: str, rows: int) -> None:
        """Refuse a payload file that does not have as many rows as the manifest says."""
        expected = self.entry(name).rows
        if rows != expected:
            raise ArtifactError(
                f"{self.path / name}: has {rows} rows, but the manifest says {expected}", hint=remake(self.kind)
            )

    def damage(self) -> str | None:
        """The problem of the first damaged payload file, or None."""
        try:
            for entry in self.manifest.files:
                self.file(entry.path)
        except ArtifactError as error:
            return error.message
        return None

    def verify(self) -> None:
        """Check every payload file, and that the directory holds no other files."""
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
        if not path.exists() or path.is_dir():
            raise ArtifactError(f"{path}: listed in the manifest but missing", hint=remake(self.kind))
        folders = [folder for folder in path.parents if folder.is_relative_to(self.path) and folder != self.path]
        if not _is_regular(path) or any(folder.is_symlink() for folder in folders):
            raise ArtifactError(
                f"{path}: not a regular file inside its directory; links, pipes and devices are not followed",
                hint=remake(self.kind),
            )
        size = path.stat().st_size
        if size != entry.bytes:
            how = "truncated" if size < entry.bytes else "too long"
            raise ArtifactError(f"{path}: {how}: {size} bytes, expected {entry.bytes}", hint=remake(self.kind))
        if sha256_file(path) != entry.sha256:
            raise ArtifactError(f"{path}: damaged: its contents do not match the recorded hash", hint=remake(self.kind))


TuplesArtifact = Artifact[TuplesSummary]
RunArtifact = Artifact[RunSummary]


def remake(kind: str) -> str:
    """What to do about a damaged artefact."""
    return f"Make the directory again with `{KINDS[kind]}`, or restore it from a copy."


@overload
def open_artifact(path: Path, kind: Literal["tuples"]) -> Artifact[TuplesSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["features"]) -> Artifact[FeaturesSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["prior"]) -> Artifact[PriorSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["run"]) -> Artifact[RunSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["evaluation"]) -> Artifact[EvaluationSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["report"]) -> Artifact[ReportSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["design"]) -> Artifact[DesignSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["sweep"]) -> Artifact[SweepSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["audit"]) -> Artifact[AuditSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["export"]) -> Artifact[ExportSummary]: ...
@overload
def open_artifact(path: Path, kind: Literal["explanation"]) -> Artifact[ExplanationSummary]: ...
@overload
def open_artifact(path: Path, kind: None = None) -> Artifact: ...


def open_artifact(path: Path, kind: str | None = None) -> Artifact[Any]:
    """Read and check the manifest of a directory; files are checked when they are used."""
    expected = f"Pass the directory written by `{KINDS[kind]}`." if kind else "Pass a directory written by ntmp."
    if not path.exists():
        raise ArtifactError(f"{path}: no such directory", hint=expected)
    if not path.is_dir():
        raise ArtifactError(f"{path}: is a file, not an ntmp artefact", hint=expected)
    file = path / MANIFEST
    if not _is_regular(file):
        raise ArtifactError(f"{path}: not an ntmp artefact: it has no {MANIFEST}", hint=expected)
    if file.stat().st_size > MOST_MANIFEST_BYTES:
        raise ArtifactError(f"{file}: too large for a manifest", hint="Restore it from a copy.")
    raw = file.read_bytes()
    manifest = _parse(file, raw)
    if kind and manifest.kind != kind:
        raise ArtifactError(f"{path}: expected kind '{kind}', found '{manifest.kind}'", hint=expected)
    return Artifact(path, manifest, hashlib.sha256(raw).hexdigest())


def _parse(file: Path, raw: bytes) -> Manifest:
    try:
        document = strict_json(raw, finite=False)  # a field that is not a number is reported below
    except ValueError:
        raise ArtifactError(f"{file}: damaged: not valid JSON", hint="Restore it from a copy.") from None
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ArtifactError(f"{file}: not the manifest of an ntmp artefact")
    version = document.get("format_version")
    if type(version) is not int or version != FORMAT_VERSION:
        raise ArtifactError(
            f"{file}: format version {version}, but this ntmp {__version__} reads version {FORMAT_VERSION}",
            hint="Use the ntmp version that wrote it, or make the artefact again.",
        )
    try:
        files = tuple(FileEntry(**entry) for entry in document.pop("files"))
        fields = {**document, "inputs": tuple(document["inputs"]), "unhashed": tuple(document["unhashed"])}
        manifest = Manifest[Any](files=files, **fields)
        if not _well_typed(manifest):
            raise TypeError
        canonical_json(document["config"])
    except (TypeError, KeyError, AttributeError, ValueError):
        raise ArtifactError(
            f"{file}: damaged: fields are missing, unknown or of the wrong type", hint="Restore it from a copy."
        ) from None
    if manifest.kind not in KINDS:
        raise ArtifactError(f"{file}: unknown kind '{manifest.kind}'", hint=f"Known kinds: {', '.join(KINDS)}.")
    for entry in files:
        # A manifest may name only files inside its own directory.
        if Path(entry.path).is_absolute() or ".." in Path(entry.path).parts or not entry.path.isprintable():
            raise ArtifactError(f"{file}: lists a file outside its directory: {entry.path}")
    if is_elsewhere(manifest.kind, document["summary"]):
        kept = Artifact(file.parent, manifest, "").read_json(STRATA)
        manifest = replace(manifest, summary=with_long_fields(manifest.kind, document["summary"], kept))
    return replace(manifest, summary=_summary(file, manifest))


def _summary(file: Path, manifest: Manifest[Any]) -> Summary:
    """The summary as the model of its kind; refused unless it is consistent and matches the files."""
    try:
        # Read as JSON: lists become tuples, and nothing else is converted.
        summary = SUMMARIES[manifest.kind].model_validate_json(json.dumps(manifest.summary))
        problems = list(summary.misfits(rows_by_file(manifest.files)))
    except ValidationError as error:
        problems = problems_of(error)
    if problems:
        more = f" (and {len(problems) - SHOWN_PROBLEMS} more)" if len(problems) > SHOWN_PROBLEMS else ""
        lines = "; ".join(f"summary.{problem}" for problem in problems[:SHOWN_PROBLEMS])
        raise ArtifactError(f"{file}: {lines}{more}", hint=remake(manifest.kind))
    return summary


def rows_by_file(files: Sequence[FileEntry]) -> dict[str, int | None]:
    return {entry.path: entry.rows for entry in files}


def _well_typed(manifest: Manifest[Any]) -> bool:
    expected = {"kind": str, "config": dict, "summary": dict, "package_version": str}
    return (
        all(isinstance(getattr(manifest, name), kind) for name, kind in expected.items())
        and _is_text_by_text(manifest.config.get(PLUGINS, {}))
        and (manifest.seed is None or _is_size(manifest.seed))
        and all(_is_text_by_text(entry) and {"kind", "sha256"} <= entry.keys() for entry in manifest.inputs)
        and all(isinstance(name, str) for name in manifest.unhashed)
        and all(isinstance(e.path, str) and isinstance(e.sha256, str) and _is_size(e.bytes) for e in manifest.files)
        and all(e.rows is None or _is_size(e.rows) for e in manifest.files)
        and len({e.path for e in manifest.files}) == len(manifest.files)
    )


def _is_text_by_text(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def carries_manifest(path: Path) -> bool:
    """Whether a directory holds a manifest of ntmp, of any version. Other programs use this file name too."""
    try:
        document = strict_json((path / MANIFEST).read_bytes()) if _is_regular(path / MANIFEST) else None
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("format") == FORMAT


def content_sha256(artifact: Artifact) -> str:
    """Hash of the payload: the same for equal files, whichever version of ntmp wrote the manifest."""
    return hashlib.sha256("".join(f"{e.path} {e.sha256}\n" for e in artifact.manifest.files).encode()).hexdigest()


def describe_input(artifact: Artifact) -> dict[str, str]:
    """The entry of an artefact in the lineage of the next one."""
    return {"kind": artifact.kind, "sha256": artifact.sha256}


def canonical_json(value: Any) -> bytes:
    """The only JSON text of a value: sorted keys, plain ASCII, no NaN."""
    return (json.dumps(value, sort_keys=True, indent=1, allow_nan=False) + "\n").encode("ascii")


def strict_json(raw: bytes, *, finite: bool = True) -> Any:
    """Parse JSON. Raises ValueError if it is invalid, nested too deeply or, if `finite`, holds NaN or infinity."""

    def number(text: str) -> float:
        if not math.isfinite(value := float(text)):
            raise ValueError(f"{text} is not a number")
        return value

    try:
        return json.loads(raw, parse_constant=number, parse_float=number) if finite else json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _is_regular(path: Path) -> bool:
    """Whether a path is a regular file: no link, pipe or device."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def sha256_file(path: Location) -> str:
    if isinstance(path, StorageUrl):
        digest = hashlib.sha256()
        for piece in path.pieces():
            digest.update(piece)
        return digest.hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
