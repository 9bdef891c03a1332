"""Tables for other programs, CSV or Parquet: written block by block, and visible only once they are complete."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ntmp_cli.artifacts.writing import replacing
from ntmp_cli.data.user.arrow_columns import text_scalar
from ntmp_cli.errors import UsageError
from ntmp_cli.plain_text import FORMULA_START, PLAIN_NUMBER
from ntmp_cli.storage import Location, file_pieces

IfFileExists = Literal["fail", "overwrite"]


class TableWriter:
    """Blocks of one schema, one after the other."""

    def __init__(self, sink: Any, *, parquet: bool, raw_ids: bool) -> None:
        self._sink, self._parquet, self._raw = sink, parquet, raw_ids or parquet
        self._writer: Any = None
        self.quoted = 0
        """Number of texts quoted so far, because a spreadsheet would run them as formulas."""

    def write(self, block: Any) -> None:
        block = block if self._raw else self._without_formulas(block)
        if self._writer is None:
            self._writer = self._opened(block.schema)
        self._writer.write(block)

    def _opened(self, schema: Any) -> Any:
        if self._parquet:
            import pyarrow.parquet as pq  # only here: most tables are CSV

            return pq.ParquetWriter(self._sink, schema)
        return pacsv.CSVWriter(self._sink, schema, write_options=pacsv.WriteOptions(quoting_style="needed"))

    def _without_formulas(self, block: Any) -> Any:
        columns = []
        for column in block.columns:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                formulas = pc.and_not(
                    pc.match_substring_regex(column, FORMULA_START), pc.match_substring_regex(column, PLAIN_NUMBER)
                )
                self.quoted += pc.sum(formulas).as_py() or 0
                quoted = pc.binary_join_element_wise(text_scalar("'"), column, text_scalar(""))
                column = pc.if_else(formulas, quoted, column)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, names=block.schema.names)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def writing_table(
    out: Location, if_exists: IfFileExists, stream: IO[bytes] | None = None, *, raw_ids: bool = False
) -> Iterator[TableWriter]:
    """A writer of the table `out`; on success one rename makes it visible, on failure nothing is left.

    A table behind a URL is uploaded from a temporary file once it is complete. With `stream` (standard output) the
    table is CSV and is written there block by block. In CSV, texts that a spreadsheet would run as formulas get a
    leading apostrophe, unless `raw_ids`.
    """
    if stream is not None:
        writer = TableWriter(pa.PythonFile(stream, mode="w"), parquet=False, raw_ids=raw_ids)
        yield writer
        writer.close()
        stream.flush()
        return
    parquet = require_writable(out, if_exists)
    with _complete(out) as partial:
        with partial.open("wb") as file:
            writer = TableWriter(file, parquet=parquet, raw_ids=raw_ids)
            yield writer
            writer.close()
        require_writable(out, if_exists)  # another process may have been faster


@contextmanager
def _complete(out: Location) -> Iterator[Path]:
    """A temporary file that becomes `out` once it is complete."""
    if isinstance(out, Path):
        with replacing(out) as partial:
            yield partial
        return
    with tempfile.TemporaryDirectory(prefix="ntmp-") as folder:
        partial = Path(folder, "table")
        yield partial
        out.write(file_pieces(partial))


def require_writable(out: Location, if_exists: IfFileExists) -> bool:
    """Refuse an unusable `out` before any work is done; returns whether the table is Parquet."""
    name = out.name.lower()
    if not name.endswith((".csv", ".parquet", ".pq")):
        raise UsageError(f"--out {out}: not the name of a table", hint="End it in .csv or .parquet, or pass - for CSV.")
    if isinstance(out, Path) and out.is_dir():
        raise UsageError(f"--out {out}: is a directory", hint="Name a file.")
    if out.exists() and if_exists == "fail":
        raise UsageError(f"{out}: exists already", hint="Choose another --out, or pass --if-exists overwrite.")
    return not name.endswith(".csv")
