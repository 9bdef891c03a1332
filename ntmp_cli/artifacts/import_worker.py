"""A worker of an import: the files of the shared folder, how they are written and read.

The file of a table holds its cells (float64, row by row), then the columns with a role as an Arrow stream. Files of row
numbers and of statistics are concatenated arrays in NumPy's format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.artifacts.import_shards import Shard, write_shard
from ntmp_cli.artifacts.manifest import sha256_file, strict_json
from ntmp_cli.artifacts.partitioned import Partition, PartitionedOutput
from ntmp_cli.artifacts.temporary_rows import RowFiles
from ntmp_cli.artifacts.writing import replacing
from ntmp_cli.data.user.mapping import FeatureMapping, block_statistics, text_code
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.reading import FileColumns, Survey
from ntmp_cli.data.user.rows import TableReading, TableRows
from ntmp_cli.data.user.table_files import open_table
from ntmp_cli.errors import DataError, InterruptedRunError
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.storage import location

# In the shared folder: how tables are read, the files of their rows, and the mapping of the shards.
READINGS, FILES, MAPPING, ROWS = "readings.json", "files.json", "mapping.json", "rows"
INDEX = "index"


def read_table(work: str, table: str, name: str, role: str, label: str) -> None:
    """Read one table: its cells and the columns with a role. Problems are left to the process that reads all tables.

    `label` is the table as the user has named it.
    """
    folder = Path(work)
    plan = strict_json((folder / READINGS).read_bytes())
    partition, output = Partition(location(table), name), PartitionedOutput(folder / ROWS)
    state, survey, problems = partition.state(), Survey(plan["most_categories"]), Problems()
    total = 0
    with _checked() as check, replacing(folder / ROWS / name) as partial:
        kept: list[Any] = []
        try:
            opened = open_table(partition.source, plan["block_bytes"])
            opened.where = label
            rows = TableRows.read_as(opened, reading_of(plan["readings"][role]))
            with partial.open("wb") as file:
                for block in rows.rows(problems):
                    file.write(np.ascontiguousarray(block.cells).data)
                    survey.add(block)
                    total += len(block.cells)
                    if block.roles:
                        kept.append(pa.RecordBatch.from_arrays(list(block.roles.values()), names=list(block.roles)))
                    check()
                if kept:
                    with pa.ipc.new_stream(file, kept[0].schema) as stream:
                        for batch in kept:
                            stream.write_batch(batch)
            unclear = problems.first
        except DataError as error:
            unclear = error.message
        if unclear is not None:
            partial.write_bytes(b"")
            total, survey = 0, Survey(0)
        made = {"bytes": partial.stat().st_size, "sha256": sha256_file(partial), "rows": total}
    output.record(partition, state, {"output": made, "notes": {"unclear": unclear, "survey": stored_survey(survey)}})


def make_statistics(work: str, rows: str, plan: dict[str, Any], name: str) -> None:
    """Statistics of blocks of rows."""
    with _making(work, "statistics", name) as (partial, arrays, check):
        blocks = []
        for numbers in arrays:
            blocks.append(block_statistics(_row_files(work, rows).gather(numbers), plan["coded"]))
            check(len(numbers))
        with partial.open("wb") as file:
            np.save(file, np.array([block.rows for block in blocks]))
            np.save(file, np.stack([block.moments for block in blocks]))
            for block in blocks:
                for codes in block.codes.values():
                    np.save(file, np.array(codes, np.float64))


def make_shards(work: str, rows: str, plan: dict[str, Any], name: str) -> None:
    """One shard."""
    with _making(work, "shards", name) as (partial, arrays, check):
        write_shard(partial, Shard(name, *arrays), _mapping(work, plan["mapping"]), _row_files(work, rows), check)


@contextmanager
def _making(work: str, kind: str, name: str) -> Iterator[tuple[Path, list[NDArray[Any]], Callable[[int], None]]]:
    """The path to write to, the arrays of row numbers, and a check that raises if the worker must stop."""
    folder = Path(work)
    index = folder / INDEX / kind / name
    output = PartitionedOutput(folder / kind)
    state = {"bytes": index.stat().st_size, "sha256": sha256_file(index)}
    arrays = stored_arrays(index)
    with _checked() as check, replacing(folder / kind / name) as partial:
        yield partial, arrays, lambda number: check()
        made = {"bytes": partial.stat().st_size, "sha256": sha256_file(partial), "rows": sum(map(len, arrays[:1]))}
    output.record(Partition(index, name), state, {"output": made, "notes": {}})


@contextmanager
def _checked() -> Iterator[Callable[[], None]]:
    with stop_requested() as stopping:

        def check() -> None:
            if stopping():
                raise InterruptedRunError("interrupted")

        yield check


@lru_cache(maxsize=1)
def _row_files(work: str, digest: str) -> RowFiles:
    """The rows of all tables, cached because a worker writes many shards."""
    return row_files(Path(work))


@lru_cache(maxsize=1)
def _mapping(work: str, digest: str) -> FeatureMapping:
    return FeatureMapping.model_validate_json((Path(work) / MAPPING).read_bytes())


# Serialisation -----------------------------------------------------------------------------------


def stored_reading(reading: TableReading) -> dict[str, Any]:
    """As JSON. Pairs are lists: keys would be sorted, and the order of columns matters."""
    return {
        "kinds": [*map(list, reading.kinds.items())],
        "columns": list(reading.columns),
        "categorical": list(reading.categorical),
        "roles": [*map(list, reading.roles.items())],
    }


def reading_of(stored: dict[str, Any]) -> TableReading:
    return TableReading(dict(stored["kinds"]), stored["columns"], stored["categorical"], dict(stored["roles"]))


def stored_survey(survey: Survey) -> dict[str, Any]:
    texts = {name: None if known is None else list(known.values()) for name, known in survey.texts.items()}
    missing = None if survey.missing is None else survey.missing.tolist()
    return {"rows": survey.rows, "missing": missing, "texts": texts, "comma": survey.comma}


def survey_of(stored: dict[str, Any], most_categories: int) -> Survey:
    missing, texts = stored["missing"], stored["texts"]
    return Survey(
        most_categories,
        stored["rows"],
        None if missing is None else np.array(missing, np.int64),
        {name: None if known is None else {text_code(text): text for text in known} for name, known in texts.items()},
        stored["comma"],
    )


def stored_arrays(path: Path) -> list[NDArray[Any]]:
    arrays = []
    with path.open("rb") as file:
        end = path.stat().st_size
        while file.tell() < end:
            arrays.append(np.load(file, allow_pickle=False))
    return arrays


def row_files(folder: Path) -> RowFiles:
    """The rows of all tables that were read."""
    stored = strict_json((folder / FILES).read_bytes())
    return RowFiles([(folder / ROWS / name, rows) for name, rows in stored["files"]], stored["columns"])


def kept_columns(file: FileColumns, path: Path, rows: int, columns: int) -> None:
    """Read the columns with a role that a worker stored."""
    with pa.OSFile(str(path)) as stored:
        if stored.size() == 8 * rows * columns:  # it has none
            file.keep(rows, {})
            return
        stored.seek(8 * rows * columns)
        with pa.ipc.open_stream(stored) as stream:
            for batch in stream:
                file.keep(batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True)))
