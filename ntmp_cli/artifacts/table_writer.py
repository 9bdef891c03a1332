"""Tables for other programs, CSV or Parquet: written block by block, and seen only once they are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ntmp_cli.artifacts.writing import replacing
from ntmp_cli.errors import UsageError

IfFileExists = Literal["fail", "overwrite"]


class TableWriter:
    """Blocks of one schema, one after the other."""

    def __init__(self, sink: Any, *, parquet: bool) -> None:
        self._sink, self._parquet = sink, parquet
        self._writer: Any = None

    def write(self, block: Any) -> None:
        if self._writer is None:
            self._writer = (
                pq.ParquetWriter(self._sink, block.schema)
                if self._parquet
                else pacsv.CSVWriter(self._sink, block.schema, write_options=pacsv.WriteOptions(quoting_style="needed"))
            )
        self._writer.write(block)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def writing_table(out: Path, if_exists: IfFileExists, stream: IO[bytes] | None = None) -> Iterator[TableWriter]:
    """A writer of the table `out`; on success one rename makes it visible, on failure nothing is left.

    With `stream` (standard output) the table is CSV and goes there as it is made.
    """
    if stream is not None:
        writer = TableWriter(pa.PythonFile(stream, mode="w"), parquet=False)
        yield writer
        writer.close()
        stream.flush()
        return
    parquet = require_writable(out, if_exists)
    with replacing(out) as partial:
        with partial.open("xb") as file:
            writer = TableWriter(file, parquet=parquet)
            yield writer
            writer.close()
        require_writable(out, if_exists)  # another process may have been faster


def require_writable(out: Path, if_exists: IfFileExists) -> bool:
    """Refuse before the work what could only fail after it; whether the table is Parquet."""
    name = out.name.lower()
    if not name.endswith((".csv", ".parquet", ".pq")):
        raise UsageError(f"--out {out}: not the name of a table", hint="End it in .csv or .parquet, or pass - for CSV.")
    if out.is_dir():
        raise UsageError(f"--out {out}: is a directory", hint="Name a file.")
    if out.exists() and if_exists == "fail":
        raise UsageError(f"{out}: exists already", hint="Choose another --out, or pass --if-exists overwrite.")
    return not name.endswith(".csv")
