"""import-tuples --engine: several processes read the tables, compute statistics and write the shards.

They share the folder `.OUT.import` beside the output, which holds a file of cells per table. Shards gather their rows
from these files, so that the rows of a tuple may lie in any tables. After an interruption the folder stays, and the
same command continues from it; it is removed once the output is published.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts.import_shards import Shard
from ntmp_cli.artifacts.import_worker import (
    FILES,
    INDEX,
    MAPPING,
    READINGS,
    ROWS,
    kept_columns,
    row_files,
    stored_arrays,
    stored_reading,
    survey_of,
)
from ntmp_cli.artifacts.locking import folder_lock, remove
from ntmp_cli.artifacts.manifest import canonical_json, sha256_file
from ntmp_cli.artifacts.partition_calls import Words, Workers, carry_out, place_text
from ntmp_cli.artifacts.partitioned import Partition, PartitionedOutput
from ntmp_cli.artifacts.publish import Staging, linked_output
from ntmp_cli.artifacts.writing import replacing
from ntmp_cli.data.user.mapping import BlockStatistics, FeatureMapping, block_statistics
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.reading import FileColumns, ImportedRows, ImportSources, Survey, understood_rows
from ntmp_cli.data.user.rows import RowSource, TableRows
from ntmp_cli.data.user.table_files import TableFile
from ntmp_cli.errors import FailedCellsError, InterruptedRunError, UsageError

log = logging.getLogger(__name__)

WORKER = "ntmp_cli.artifacts.import_worker"
# Blocks of statistics per call.
BLOCKS_PER_CALL = 16


def require_tables(opened: ImportSources) -> None:
    """Refuse inputs that only one process can read."""
    for source in _sources(opened).values():
        if not isinstance(source, TableRows):
            raise UsageError(
                f"{source.where}: not a table of features",
                hint="--engine and --jobs read tables (.csv, .tsv, .parquet): leave them out for arrays and images.",
            )


def _sources(opened: ImportSources) -> dict[str, RowSource]:
    named = {"main": opened.main, "unlabeled": opened.unlabeled, "test": opened.test}
    return {name: source for name, source in named.items() if source is not None}


@contextmanager
def import_work(out: Path, block_bytes: int, workers: Workers) -> Iterator[ImportWork]:
    """The folder that the workers of an import share; it stays after an interruption or failed calls."""
    folder = _folder_of(out)
    with PartitionedOutput(folder).locked():
        try:
            yield ImportWork(folder, block_bytes, workers)
        except (InterruptedRunError, KeyboardInterrupt, FailedCellsError):
            if not any(folder.rglob("done/*.json")):
                remove(folder)
            raise
        except BaseException:
            remove(folder)
            raise
        remove(folder)


def discard_work(out: Path) -> None:
    """Remove the shared folder unless it is in use."""
    if (folder := _folder_of(out)).exists():
        with folder_lock(folder) as locked:
            if locked:
                remove(folder)


def _folder_of(out: Path) -> Path:
    out = linked_output(out)
    return out.parent / f".{out.name}.import"


@dataclass(frozen=True)
class _Table(Partition):
    """A table to read, and the role of its rows: tuples, unlabeled or test."""

    role: str

    @property
    def label(self) -> str:
        return str(self.source)


@dataclass(frozen=True)
class _Indexed(Partition):
    """A file computed from rows whose numbers are in another file, which is identified by its content."""

    def state(self) -> dict[str, Any]:
        assert isinstance(self.source, Path)
        return {"bytes": self.source.stat().st_size, "sha256": sha256_file(self.source)}


class ImportWork:
    """One import by several processes: tables are read, then statistics computed, then shards written."""

    def __init__(self, folder: Path, block_bytes: int, workers: Workers) -> None:
        self._folder, self._block_bytes, self._workers = folder, block_bytes, workers
        self._rows = ""

    def read(self, opened: ImportSources, positive: Sequence[str], most_categories: int) -> ImportedRows | None:
        """Read all tables; None if one has problems, or text among numbers: then one process reads them again."""
        problems = Problems()
        sources = {name: source for name, source in _sources(opened).items() if isinstance(source, TableRows)}
        readings = {name: source.reading(problems) for name, source in sources.items()}
        if None in readings.values():
            return None
        stored = {name: stored_reading(reading) for name, reading in readings.items() if reading is not None}
        plan = {"readings": stored, "block_bytes": self._block_bytes, "most_categories": most_categories}
        tables = [_table(name, table) for name, source in sources.items() for table in source.tables()]
        output = PartitionedOutput(self._folder / ROWS)
        if waiting := output.waiting(plan, tables, "resume"):
            with output.writing(plan):
                self._write(READINGS, canonical_json(plan))
                arguments = {"work": str(self._folder)}
                carry_out(
                    waiting,
                    f"{WORKER}:read_table",
                    lambda one: {**arguments, **_reading_of(one)},
                    output,
                    self._workers,
                    Words("reading", "read", "tables"),
                )
        records = output.records(tables)
        if causes := [cause for record in records if (cause := record["notes"]["unclear"]) is not None]:
            log.info("the tables are read again by one process: %s", causes[0])
            return None
        columns = len(sources["main"].columns or ())
        files = [[record["name"], record["output"]["rows"]] for record in records]
        self._write(FILES, canonical_json({"columns": columns, "files": files}))
        self._rows = hashlib.sha256("".join(record["output"]["sha256"] for record in records).encode()).hexdigest()
        survey = Survey(most_categories)
        kept: dict[str, FileColumns] = {}
        total = 0
        for name, source in sources.items():
            file = kept[name] = FileColumns(source, total)
            own = [record for table, record in zip(tables, records, strict=True) if table.role == name]
            for record in own:
                kept_columns(file, self._folder / ROWS / record["name"], record["output"]["rows"], columns)
                if name != "test":
                    survey.join(survey_of(record["notes"]["survey"], most_categories))
            source.set_lengths([record["output"]["rows"] for record in own])
            total += file.rows
        return understood_rows(kept, opened, positive, survey, problems)

    def statistics(self, blocks: Sequence[NDArray[np.int64]], coded: Sequence[int]) -> Iterator[BlockStatistics]:
        """Statistics of the rows of every block, in order. A few blocks are computed here, without workers."""
        if len(blocks) <= BLOCKS_PER_CALL:
            with row_files(self._folder) as rows:
                for block in blocks:
                    yield block_statistics(rows.gather(block), coded)
            return
        groups = [blocks[start : start + BLOCKS_PER_CALL] for start in range(0, len(blocks), BLOCKS_PER_CALL)]
        jobs = ((f"{at:06d}", group) for at, group in enumerate(groups))
        plan = {"rows": self._rows, "coded": list(coded)}
        words = Words("computing means of", "computed", "blocks")
        for path in self._made("statistics", plan, jobs, words):
            lengths, moments, *codes = stored_arrays(path)
            for at, number in enumerate(lengths.tolist()):
                own = codes[at * len(coded) : (at + 1) * len(coded)]
                yield BlockStatistics(number, moments[at], dict(zip(coded, (one.tolist() for one in own), strict=True)))

    def write_shards(self, shards: Sequence[Shard], mapping: FeatureMapping) -> None:
        self._write(MAPPING, mapping.model_dump_json().encode())
        plan = {"rows": self._rows, "mapping": sha256_file(self._folder / MAPPING)}
        jobs = ((shard.name, shard.arrays()) for shard in shards)
        self._made("shards", plan, jobs, Words("writing", "written", "shards"))

    def add_shards(self, staging: Staging, shards: Sequence[Shard]) -> None:
        """Put the shards into the output, by hard links if the file system allows them."""
        for shard in shards:
            made, target = self._folder / "shards" / shard.name, staging.file(shard.name)
            try:
                os.link(made, target)
            except OSError:
                shutil.copyfile(made, target)
            staging.add(shard.name, rows=len(shard))

    def _made(
        self, kind: str, plan: Mapping[str, Any], jobs: Iterable[tuple[str, Sequence[NDArray[Any]]]], words: Words
    ) -> list[Path]:
        """Let workers compute one file of this kind per job, from row numbers."""
        output = PartitionedOutput(self._folder / kind)
        partitions: list[Partition] = []
        for name, arrays in jobs:
            index = self._folder / INDEX / kind / name
            with replacing(index) as partial, partial.open("wb") as file:
                for array in arrays:
                    np.save(file, array, allow_pickle=False)
            partitions.append(_Indexed(index, name))
        if waiting := output.waiting(plan, partitions, "resume"):
            with output.writing(plan):
                arguments = {"work": str(self._folder), "rows": self._rows, "plan": dict(plan)}
                carry_out(
                    waiting,
                    f"{WORKER}:make_{kind}",
                    lambda one: {**arguments, "name": one.name},
                    output,
                    self._workers,
                    words,
                )
        return [self._folder / kind / one.name for one in partitions]

    def _write(self, name: str, content: bytes) -> None:
        with replacing(self._folder / name) as partial:
            partial.write_bytes(content)


def _table(role: str, table: TableFile) -> _Table:
    return _Table(table.path, hashlib.sha256(f"{role}\0{table.path}".encode()).hexdigest()[:32], role)


def _reading_of(table: Partition) -> dict[str, str]:
    """What a worker is told of a table."""
    assert isinstance(table, _Table)
    return {"table": place_text(table.source), "name": table.name, "role": table.role, "label": table.label}
