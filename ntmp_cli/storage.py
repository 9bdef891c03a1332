"""Files behind URLs: s3://, gs:// and others that pyarrow opens, and those that fsspec opens (extra `cloud`).

Credentials come from where their libraries look for them. Those that a URL holds all the same are never shown.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Literal
from urllib.parse import SplitResult, quote, unquote, urlsplit

from ntmp_cli.errors import DataError, NtmpError, OutputError, UsageError

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+)://")
# Text before an @ is a key and its secret, which may contain a slash; except an Azure container.
_USER = re.compile(r"(://)(?:[^\s?@]*:[^\s?]*|[^\s/?@]*)@")
_AZURE = ("abfs", "abfss", "wasb", "wasbs")
_QUERY = re.compile(r"(://[^\s?]*\?)[^\s'\"]+")
_MAGIC = re.compile(r"[*\[]")
# A request each: larger pieces than the blocks that tables are read in.
PIECE_BYTES = 8 * 2**20
CREDENTIALS = "Check the URL, and the credentials where its library looks for them (environment, configuration files)."


def redacted(text: str) -> str:
    """A text without the credentials of the URLs in it: what stands before an @, and all values after a ?."""
    scheme = _SCHEME.search(text)
    if scheme is None:
        return text
    if scheme[1].lower() not in _AZURE or re.search(r"://[^\s/@]*:[^\s/@]*@", text):
        text = _USER.sub(r"\1***@", text)
    return _QUERY.sub(r"\1***", text)


@dataclass(frozen=True, order=True)
class StorageUrl:
    """A file or folder by its URL. Its text is redacted: only `raw` holds all of it."""

    raw: str = field(repr=False)

    def __str__(self) -> str:
        return redacted(self.raw)

    @property
    def _parts(self) -> SplitResult:
        return urlsplit(self.raw, allow_fragments=False)

    @property
    def name(self) -> str:
        return unquote(PurePosixPath(self._parts.path).name)

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    @property
    def is_pattern(self) -> bool:
        """Whether the path holds * or [: a ? begins the query of a URL."""
        return _MAGIC.search(self._parts.path) is not None

    def __repr__(self) -> str:
        return f"StorageUrl({self})"

    def __truediv__(self, name: str) -> StorageUrl:
        parts = self._parts
        encoded = quote(name, safe="/ ~!$&'()+,;:=@")
        return StorageUrl(parts._replace(path=f"{parts.path.rstrip('/')}/{encoded}").geturl())

    def exists(self) -> bool:
        return str(self._info().type.name) != "NotFound"

    def is_file(self) -> bool:
        return str(self._info().type.name) == "File"

    def size(self) -> int:
        """In bytes; 0 where the server does not say it."""
        return int(self._info().size or 0)

    def modified_ns(self) -> int | None:
        """When it was last written; None where the server does not say it."""
        modified: int | None = self._info().mtime_ns
        return modified

    def children(self) -> list[StorageUrl]:
        """Files and folders directly inside."""
        return [child for child, _ in self._entries()]

    def _entries(self) -> list[tuple[StorageUrl, bool]]:
        """Files and folders directly inside, and which are folders."""
        import pyarrow.fs as pafs

        with reporting(self):
            system, path = self._opened()
            infos = system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted((self / info.base_name, info.type.name == "Directory") for info in infos)

    def matches(self) -> list[StorageUrl]:
        """The files and folders that the pattern names: * and [ ] match within a name, except a dot at its start."""
        names = [name for name in self._parts.path.split("/") if name]
        places = [StorageUrl(self._parts._replace(path="").geturl())]
        for depth, name in enumerate(names, 1):
            if _MAGIC.search(name) is None:
                places = [place / unquote(name) for place in places]
                continue
            inside = [entry for place in places for entry in place._entries()]
            places = [
                child
                for child, is_folder in inside
                if (is_folder or depth == len(names))
                and (name.startswith(".") or not child.name.startswith("."))
                and fnmatch.fnmatchcase(child.name, name)
            ]
        is_listed = bool(names) and _MAGIC.search(names[-1]) is not None
        return sorted(place for place in places if is_listed or place.exists())

    def pattern_base(self) -> StorageUrl:
        """The folder that all matches of the pattern lie in."""
        names = self._parts.path.split("/")
        first = next((at for at, name in enumerate(names) if _MAGIC.search(name)), len(names) - 1)
        return StorageUrl(self._parts._replace(path="/".join(names[:first])).geturl())

    def relative_to(self, folder: StorageUrl) -> str:
        """The path from a folder to here, as os.path.relpath gives it."""
        here, there = (unquote(url._parts.path).strip("/") or "." for url in (self, folder))
        return posixpath.relpath(here, there)

    def is_inside(self, other: StorageUrl) -> bool:
        """Whether this is the other one, or lies below it."""
        (mine, path), (its, above) = ((one._parts, one._parts.path.rstrip("/") + "/") for one in (self, other))
        place = (mine.scheme, mine.netloc.rpartition("@")[2]) == (its.scheme, its.netloc.rpartition("@")[2])
        return place and unquote(path).startswith(unquote(above))

    def open_stream(self) -> Any:
        """From the beginning to the end; unpacked where the name says that it is packed."""
        system, path = self._opened()
        return system.open_input_stream(path, compression="detect", buffer_size=PIECE_BYTES)

    def open_file(self) -> Any:
        """At any position."""
        system, path = self._opened()
        return system.open_input_file(path)

    def pieces(self) -> Iterator[bytes]:
        """All bytes, as they are stored."""
        with reporting(self):
            system, path = self._opened()
            with system.open_input_stream(path, compression=None) as stream:
                while piece := stream.read(PIECE_BYTES):
                    yield piece

    def write(self, pieces: Iterator[bytes]) -> None:
        """Write the file; on object stores it is seen only once it is complete."""
        with reporting(self, OutputError):
            system, path = self._opened()
            with system.open_output_stream(path, compression=None) as stream:
                for piece in pieces:
                    stream.write(piece)

    def delete(self) -> None:
        with reporting(self, OutputError):
            system, path = self._opened()
            system.delete_file(path)

    def _info(self) -> Any:
        with reporting(self):
            system, path = self._opened()
            return system.get_file_info(path)

    def _opened(self) -> tuple[Any, str]:
        """The file system, and the path in it."""
        parts = self._parts
        system, root = _file_system(parts.scheme.lower(), parts.netloc, parts.query)
        if parts.scheme.lower() in ("http", "https"):
            return system, parts.geturl()
        return system, f"{root.rstrip('/')}/{unquote(parts.path).strip('/')}".rstrip("/")


Location = Path | StorageUrl


def location(text: str) -> Location:
    """The path or URL that a text is; file:// is a path."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return Path(text)
    if scheme[1].lower() != "file":
        return StorageUrl(text)
    parts = urlsplit(text, allow_fragments=False)
    if parts.netloc not in ("", "localhost"):
        raise UsageError(f"{text}: names the machine '{parts.netloc}'", hint="A path begins after file://, with a /.")
    return Path(unquote(parts.path))


def file_pieces(path: Path) -> Iterator[bytes]:
    """All bytes of a file on a disk."""
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def on_disk(place: Location) -> Path:
    """A path; of URLs, only tables are read."""
    if isinstance(place, StorageUrl):
        raise UsageError(
            f"{place}: neither a table nor a folder of tables",
            hint="From URLs, tables are read (.csv, .tsv, .parquet): copy arrays and images to a disk.",
        )
    return place


@contextmanager
def reporting(url: StorageUrl, kind: type[DataError | OutputError] = DataError) -> Iterator[None]:
    """What libraries say about a URL becomes one message without credentials."""
    import pyarrow as pa

    try:
        yield
    except NtmpError:
        raise
    except FileNotFoundError:
        raise kind(f"{url}: no such file", hint=CREDENTIALS) from None
    # Drivers of fsspec raise errors of their own.
    except Exception as error:
        if isinstance(error, MemoryError) or (not isinstance(error, OSError | pa.ArrowException) and _is_ours(error)):
            raise
        what: Literal["read", "written"] = "read" if kind is DataError else "written"
        line = redacted(str(error).strip().partition("\n")[0] or type(error).__name__)[:300]
        raise kind(f"{url}: cannot be {what} ({line})", hint=CREDENTIALS) from None


def _is_ours(error: Exception) -> bool:
    """Whether an error was raised by this package, which is an internal error."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and str(at.tb_frame.f_globals.get("__name__", "")).startswith("ntmp_cli")


@lru_cache(maxsize=8)
def _file_system(scheme: str, netloc: str, query: str) -> tuple[Any, str]:
    """What opens URLs that begin so, and the path that they begin with in it."""
    import pyarrow as pa
    import pyarrow.fs as pafs

    begin = f"{scheme}://{netloc}"
    with reporting(StorageUrl(begin)):
        if scheme not in ("http", "https"):
            try:
                system, root = pafs.FileSystem.from_uri(begin + (f"?{query}" if query else ""))
                return system, str(root)
            except (pa.ArrowInvalid, NotImplementedError) as error:
                if "nrecognized filesystem" not in str(error) and "not supported" not in str(error):
                    raise
        return _by_fsspec(scheme, begin)


def _by_fsspec(scheme: str, begin: str) -> tuple[Any, str]:
    import pyarrow.fs as pafs

    try:
        import fsspec

        system, root = fsspec.core.url_to_fs(begin)
    except ImportError as error:
        missing = redacted(str(error).partition("\n")[0])
        raise UsageError(
            f"{scheme}:// needs a package ({missing})",
            hint="pip install 'ntmp[cloud]' for https://, or the package that it names.",
        ) from None
    except ValueError as error:
        if "rotocol" not in str(error):
            raise
        raise UsageError(f"{scheme}://: not supported", hint="Use s3://, gs://, https:// or file://.") from None
    return pafs.PyFileSystem(pafs.FSSpecHandler(system)), str(root)
