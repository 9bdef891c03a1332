"""Several tables as one: the files of a folder or of a pattern such as 'new/*.parquet', also behind a URL, in order
of their names."""

from __future__ import annotations

import glob
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.streams import BLOCK_BYTES
from ntmp_cli.data.user.table_files import (
    STDIN,
    Guess,
    Kind,
    LateTextError,
    TableFile,
    is_table,
    open_table,
)
from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.storage import CREDENTIALS, Location, StorageUrl


def table_paths(path: Location) -> Sequence[Location] | None:
    """The files of a folder of tables or of a pattern; None if the path or URL is neither."""
    if isinstance(path, StorageUrl):
        return _url_paths(path)
    if path == STDIN or path.is_file():
        return None
    if glob.has_magic(str(path)) and not path.exists():
        matches = map(Path, glob.glob(str(path)))  # noqa: PTH207 - the pattern may start anywhere
        return sorted(file for file in matches if file.is_file() and is_table(file))
    if not path.is_dir():
        return None
    seen = [entry for entry in path.iterdir() if not entry.name.startswith((".", "_"))]
    # A folder of images may hold a table of counts beside the folders of its tuples.
    is_set = bool(seen) and all(entry.is_file() and is_table(entry) for entry in seen)
    return sorted(seen) if is_set else None


def _url_paths(url: StorageUrl) -> list[StorageUrl] | None:
    """As `table_paths`; a URL with the ending of a table is one, without a request to the server."""
    if url.is_pattern:
        return [match for match in url.matches() if is_table(match)]
    if is_table(url):
        return None
    seen = [child for child in url.children() if not child.name.startswith((".", "_"))]
    return seen if seen and all(map(is_table, seen)) else None


def files_read(path: Location) -> Sequence[Location]:
    """The paths that an output must not overlap: the path itself, or the files of its pattern."""
    if isinstance(path, StorageUrl):
        return (table_paths(path) or [path]) if path.is_pattern else [path]
    return (table_paths(path) or [path]) if not path.exists() else [path]


def require_input(path: Location) -> None:
    """Refuse a path, folder or pattern without a file."""
    if path != STDIN and not path.exists() and not table_paths(path):
        is_pattern = path.is_pattern if isinstance(path, StorageUrl) else glob.has_magic(str(path))
        what = "no table matches" if is_pattern else "no such file"
        hint = CREDENTIALS if isinstance(path, StorageUrl) else "A relative path starts at the current directory."
        raise DataError(f"{path}: {what}", hint=hint)


def is_tables(path: Location) -> bool:
    """Whether the path is a table, a folder of tables or a pattern of tables."""
    if table_paths(path) is not None:
        return True
    return is_table(path) and (isinstance(path, StorageUrl) or not path.is_dir())


def open_tables(path: Location, block_bytes: int = BLOCK_BYTES) -> TableFile:
    """The table, or all tables of a folder or pattern as one."""
    paths = table_paths(path)
    if paths is None:
        return open_table(path, block_bytes)
    tables = [open_table(file, block_bytes) for file in paths]
    return tables[0] if len(tables) == 1 else TableSet(str(path), tables)


def place_of_images(path: Location) -> Path:
    """The folder that image paths in a table, or in the tables of a set, are relative to."""
    first = (table_paths(path) or [path])[0]
    if isinstance(first, StorageUrl):
        raise UsageError(f"{first}: refers to images, which must be local", hint="Copy the table and the images.")
    return first.parent


class TableSet(TableFile):
    """Tables of the same columns, one after the other. The first determines the columns."""

    def __init__(self, where: str, tables: Sequence[TableFile]) -> None:
        self.where, self._tables, self.types = where, tables, tables[0].types
        rows = [table.expected_rows for table in tables]
        self.expected_rows = None if None in rows else sum(row or 0 for row in rows)
        self._starts: list[int] = []
        for table in tables[1:]:
            _require_same_columns(tables[0], table)

    def batches(self, wanted: Mapping[str, Kind], problems: Problems, guess: Guess | None = None) -> Iterator[Any]:
        self._starts, rows = [], 0
        for table in self._tables:
            self._starts.append(rows)
            try:
                for batch in table.batches(wanted, problems, guess):
                    yield batch
                    rows += batch.num_rows
            except LateTextError:
                self._raise_late_texts(wanted, guess)  # of all tables, so that they are read again only once
                raise

    def parts(self) -> Sequence[TableFile]:
        return self._tables

    def set_lengths(self, rows: Sequence[int]) -> None:
        """Set the number of rows of each table, if other processes read them; `place` needs it."""
        self._starts = [0, *accumulate(rows)][:-1]

    def samples(self, names: Sequence[str]) -> Iterator[Any]:
        return self._tables[0].samples(names)

    def place(self, row: int) -> str:
        which = bisect_right(self._starts, row) - 1
        return self._tables[which].place(row - self._starts[which])

    def _text_batches(self, names: Collection[str]) -> Iterator[Any]:
        for table in self._tables:
            yield from table._text_batches(names)


def _require_same_columns(first: TableFile, other: TableFile) -> None:
    differing = sorted(first.types.keys() ^ other.types.keys())
    if first.stores_types and other.stores_types and not differing:
        differing = [name for name, kind in first.types.items() if kind != other.types[name]]
    if differing:
        name = differing[0]
        here, there = (str(table.types.get(name, "no such column")) for table in (other, first))
        raise DataError(
            f"{other.where}: column '{name}' holds {here}, but in {first.where} {there}"
            if name in other.types and name in first.types
            else f"{other.where} and {first.where}: only one of them has the column '{name}'",
            hint="Tables that are read together must have the same columns and types.",
        )
