"""predict --engine: the tables of a folder or pattern are scored by several processes, one output table each."""

from __future__ import annotations

import logging
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any

from ntmp_cli.artifacts import refuse_overlap
from ntmp_cli.artifacts.manifest import sha256_file
from ntmp_cli.artifacts.partition_calls import Workers, carry_out, place_text
from ntmp_cli.artifacts.partitioned import MANIFEST, Partition, PartitionedOutput
from ntmp_cli.artifacts.runs import open_run
from ntmp_cli.config import PredictConfig
from ntmp_cli.data.user.table_files import CSV_ENDINGS, PARQUET_ENDINGS, STDIN
from ntmp_cli.data.user.table_sets import files_read, is_tables, require_input, table_paths
from ntmp_cli.errors import ArtifactError, InterruptedRunError, UsageError
from ntmp_cli.interrupts import stop_requested
from ntmp_cli.progress import long_step
from ntmp_cli.stages.predict import (
    PredictOptions,
    ScoredTable,
    Scoring,
    open_rows,
    prediction_facts,
    warn_of,
    write_scores,
)
from ntmp_cli.storage import Location, StorageUrl, file_pieces, location
from ntmp_cli.sweeps.engine import engines

log = logging.getLogger(__name__)

# Of every table, in its record.
COUNTS = ("rows", "positive")


def predict_partitions(
    config: PredictConfig, run_path: Path, source: Location, out: Location, options: PredictOptions, workers: Workers
) -> dict[str, Any]:
    """Score every table of `source` that is not done yet. One failure stops no other; the manifest comes last."""
    _require_possible(config, source, out)
    engines.get(workers.engine)
    run = open_run(run_path)
    partitions = partitions_of(source)
    refuse_overlap(out, (run_path, *files_read(source)))
    with long_step("loading the classifier"):
        scorer = Scoring(run, config, options.device)
    # What is wrong with every table is said once, before any of them is scored.
    open_rows(run, config, partitions[0].source, options)
    output = PartitionedOutput(out, COUNTS)
    plan = {
        "run_sha256": run.sha256,
        "config": config.model_dump(mode="json"),
        "raw_ids": options.raw_ids,
        "threads": workers.resources.threads,
    }
    with output.locked():
        waiting = output.waiting(plan, partitions, "overwrite" if options.if_exists == "overwrite" else "fail")
        if waiting:
            with output.writing(plan):
                arguments = {
                    "run": str(run_path.absolute()),
                    "run_sha256": run.sha256,
                    "config": config.model_dump(mode="json", exclude_unset=True),
                    "out": place_text(out),
                    "device": options.device,
                    "flags": {"raw_ids": options.raw_ids, "allow_outside": options.allow_outside},
                }
                _score(waiting, arguments, output, workers)
        records = output.finish(plan, partitions)
    _warn(records, str(source))
    rows, positive = (sum(record["output"][key] for record in records) for key in ("rows", "positive"))
    return {
        **prediction_facts(scorer, out, rows, positive),
        "manifest": str(out / MANIFEST),
        "tables": len(partitions),
        "kept": len(partitions) - len(waiting),
    }


def _require_possible(config: PredictConfig, source: Location, out: Location) -> None:
    if config.with_counts or config.by is not None:
        raise UsageError(
            f"--{'with-counts' if config.with_counts else 'by'}: not with --engine, which scores every table alone",
            hint="Rows of a tuple or group may lie in several tables: leave --engine and --jobs out.",
        )
    if out == Path("-") or out.name.lower().endswith((".csv", *PARQUET_ENDINGS)):
        raise UsageError(f"--out {out}: not a folder", hint="--engine and --jobs write a folder of tables.")
    if source == STDIN:
        raise UsageError("-: standard input is one table", hint="Leave --engine and --jobs out.")
    require_input(source)
    if not is_tables(source):
        raise UsageError(
            f"{source}: neither a table nor a folder of tables",
            hint="--engine scores tables (.csv, .tsv, .parquet): leave it out for arrays and images.",
        )


def partitions_of(source: Location) -> list[Partition]:
    """The tables to be scored, and the names of those that are made of them: CSV of texts, Parquet of Parquet."""
    paths = table_paths(source)
    if paths is None:
        return [Partition(source, _output_name(source.name))]
    names = [_output_name(_relative(path, _base(source))) for path in paths]
    for name, times in Counter(names).items():
        if times > 1:
            both = [str(path) for path, made in zip(paths, names, strict=True) if made == name]
            raise UsageError(f"{both[0]} and {both[1]} would both give {name}", hint="Rename one of them.")
    return [Partition(path, name) for path, name in zip(paths, names, strict=True)]


def _base(source: Location) -> Location:
    """The folder that all tables lie in."""
    if isinstance(source, StorageUrl):
        return source.pattern_base() if source.is_pattern else source
    if source.is_dir():
        return source
    parts = source.parts
    return Path(*parts[: next(at for at, part in enumerate(parts) if has_magic(part))])


def _relative(path: Location, base: Location) -> str:
    if isinstance(path, StorageUrl):
        assert isinstance(base, StorageUrl)
        return path.relative_to(base)
    assert isinstance(base, Path)
    return path.relative_to(base).as_posix()


def _output_name(name: str) -> str:
    if name.lower().endswith(PARQUET_ENDINGS):
        return name
    ending = max((ending for ending in CSV_ENDINGS if name.lower().endswith(ending)), key=len)
    return f"{name[: -len(ending)]}.csv"


def _score(
    waiting: Sequence[Partition], arguments: dict[str, Any], output: PartitionedOutput, workers: Workers
) -> None:
    work = f"{__name__}:score_partition"
    carry_out(waiting, work, lambda one: _call_arguments(one, arguments), output, workers)


def _call_arguments(partition: Partition, shared: dict[str, Any]) -> dict[str, Any]:
    return {**shared, "flags": {**shared["flags"], "source": place_text(partition.source), "name": partition.name}}


def _warn(records: Sequence[dict[str, Any]], where: str) -> None:
    """What there is to warn of, once for all tables."""
    unseen: Counter[str] = Counter()
    unused: dict[str, None] = {}
    quoted = 0
    for record in records:
        unseen.update(record["notes"]["unseen"])
        unused.update(dict.fromkeys(record["notes"]["unused"]))
        quoted += record["notes"]["quoted"]
    warn_of(ScoredTable(0, 0, quoted, dict(unseen), tuple(unused)), where)


# In a worker -----------------------------------------------------------------------------------


def score_partition(
    run: str, run_sha256: str, config: dict[str, Any], out: str, device: str, flags: dict[str, Any]
) -> None:
    """Score one table: its output first, then its record."""
    scorer = _scorer(run, run_sha256, PredictConfig.model_validate(config), device)
    partition, output = Partition(location(flags["source"]), flags["name"]), PartitionedOutput(location(out), COUNTS)
    with stop_requested() as stopping:

        def check() -> None:
            if stopping():
                raise InterruptedRunError("interrupted")

        options = PredictOptions(
            "overwrite", device, None, raw_ids=flags["raw_ids"], allow_outside=flags["allow_outside"]
        )
        options = replace(options, may_be_empty=True, check=check)
        state = partition.state()
        rows = open_rows(scorer.run, scorer.config, partition.source, options)
        with _local_file(output.folder / partition.name) as table:
            scored = write_scores(rows, scorer, table, options)
            made = {"bytes": table.stat().st_size, "sha256": sha256_file(table)}
        facts = {**made, "rows": scored.rows, "positive": scored.positive}
        notes = {"unseen": scored.unseen, "unused": scored.unused, "quoted": scored.quoted}
        output.record(partition, state, {"output": facts, "notes": notes})


@lru_cache(maxsize=1)
def _scorer(run_path: str, run_sha256: str, config: PredictConfig, device: str) -> Scoring:
    """A worker scores many tables with one run."""
    run = open_run(Path(run_path))
    if run.sha256 != run_sha256:
        raise ArtifactError(f"{run_path}: is another run on this node", hint="All nodes must see the same RUN.")
    return Scoring(run, config, device)


@contextmanager
def _local_file(out: Location) -> Iterator[Path]:
    """Where a table is written: in place, or in a temporary file that is sent to its URL when it is complete."""
    if isinstance(out, Path):
        yield out
        return
    with tempfile.TemporaryDirectory(prefix="ntmp-") as folder:
        table = Path(folder, PurePosixPath(out.name).name)
        yield table
        out.write(file_pieces(table))
