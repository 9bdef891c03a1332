"""import-tuples: the user's rows become counted tuples and, where some have no tuple, an unlabeled pool."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ntmp_cli.artifacts import IfExists, Plan, Staging, TuplesArtifact, existing_output, open_artifact, publishing
from ntmp_cli.artifacts.feature_rows import FeatureRow, feature_rows, is_long, listed_rows
from ntmp_cli.artifacts.import_shards import Shard, instance_format, pool_shards, test_shards, tuple_shards, write_shard
from ntmp_cli.artifacts.import_work import discard_work, import_work, require_tables
from ntmp_cli.artifacts.layout import BLOCKS, FEATURES, MAPPING, TEST_LABELS, TUPLE_IDS
from ntmp_cli.artifacts.manifest import sha256_file
from ntmp_cli.artifacts.oracle import writing_oracle
from ntmp_cli.artifacts.partition_calls import Workers
from ntmp_cli.artifacts.summaries import TuplesSummary
from ntmp_cli.artifacts.summary_fields import (
    InstanceSummary,
    KnowledgeSummary,
    PoolSizes,
    Record,
    Sizes,
    Strata,
    StratumRow,
    spec_of,
    strata_rows,
)
from ntmp_cli.artifacts.temporary_rows import GatheredRows, TemporaryRows
from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.counting.laws import parse_law
from ntmp_cli.counting.strata import knowledge_of, strata_of
from ntmp_cli.data.user.count_cells import CountColumn
from ntmp_cli.data.user.grouping import Grouped, hold_out, hold_out_blocks
from ntmp_cli.data.user.images import ImageRows, images_of_both_kinds
from ntmp_cli.data.user.import_warnings import warnings_of
from ntmp_cli.data.user.inputs import ImportOptions, Inputs, open_inputs
from ntmp_cli.data.user.mapping import (
    BlockStatistics,
    FeatureMapping,
    ImageFeatures,
    Roles,
    block_statistics,
    blocks_of,
    coded_columns,
    fit_blocks,
)
from ntmp_cli.data.user.problems import Problems
from ntmp_cli.data.user.reading import ImportedRows, ImportSources, Survey, read_rows
from ntmp_cli.data.user.rows import FeatureColumns
from ntmp_cli.data.user.streams import BLOCK_BYTES
from ntmp_cli.data.user.table_files import LateTextError
from ntmp_cli.data.user.table_sets import files_read, table_paths
from ntmp_cli.progress import long_step
from ntmp_cli.randomness import stream
from ntmp_cli.storage import Location, StorageUrl

log = logging.getLogger(__name__)

# Rows per block of the statistics: fixed, so that they do not depend on how the files were read; fewer where rows are
# so wide (more than 1,024 columns) that a block would be larger than this.
STATISTICS_ROWS = 8192
STATISTICS_BYTES = 64 * 2**20

# From blocks of row numbers, and the columns of few categories, to the statistics of the blocks, in order.
StatisticsOf = Callable[[Sequence[NDArray[np.int64]], Sequence[int]], Iterable[BlockStatistics]]


@dataclass(frozen=True)
class _Splits:
    """Tuples and unlabeled rows that are trained on, and those held out."""

    tuples: dict[str, Grouped]
    unlabeled: dict[str, NDArray[np.int64]]
    labelled: dict[str, int]
    """How many of the tuples are labelled rows, which are the last ones."""


@dataclass(frozen=True)
class _Read:
    """All that the shards of an import follow from."""

    imported: ImportedRows
    splits: _Splits
    mapping: FeatureMapping


def import_tuples(
    config: ImportTuplesConfig,
    inputs: Inputs,
    out: Path,
    *,
    if_exists: IfExists = "fail",
    block_bytes: int = BLOCK_BYTES,
    workers: Workers | None = None,
) -> TuplesArtifact:
    """Read the user's files and publish them as a tuples directory. The bytes do not depend on `workers`.

    Rows of a tuple may lie anywhere: they are read into a nameless file beside the output, and gathered from it shard
    by shard. Memory holds blocks of rows and a few bytes per row, whatever the features take.
    """
    problems = Problems()
    with long_step("opening the input"):
        opened = _open(config, inputs, block_bytes, problems)
    if workers is not None:
        require_tables(opened)
    named = (file for path in inputs.paths().values() for file in files_read(path) if isinstance(file, Path))
    reads = (*named, *_places_of_images(inputs, opened))
    with long_step("hashing the input"):
        lineage = tuple(_lineage(inputs, opened))
    plan = Plan("tuples", config.model_dump(mode="json"), config.seed, lineage, reads)
    if kept := existing_output(out, plan, if_exists):
        return kept
    if workers is not None:
        with import_work(out, block_bytes, workers) as work:
            if (rows := work.read(opened, config.positive, config.max_categories)) is not None:
                read = _understood(config, opened, rows, work.statistics)
                pieces = [shard for _, _, _, shards in _shards(read) for shard in shards]
                work.write_shards(pieces, read.mapping)
                with publishing(out, plan, if_exists=if_exists) as staging:
                    work.add_shards(staging, pieces)
                    _write_rest(staging, inputs, opened, read)
                return open_artifact(out, "tuples")
    with publishing(out, plan, if_exists=if_exists) as staging, TemporaryRows(staging.path) as temporary:
        imported = _read(config, opened, problems, temporary)
        pa.default_memory_pool().release_unused()  # free the blocks before the next step
        read = _understood(config, opened, imported, partial(_statistics, temporary))
        for what, unit, total, shards in _shards(read):
            with long_step(what, total, unit) as advance:
                for shard in shards:
                    write_shard(staging.file(shard.name), shard, read.mapping, temporary, advance)
                    staging.add(shard.name, rows=len(shard))
        _write_rest(staging, inputs, opened, read)
    discard_work(out)
    return open_artifact(out, "tuples")


def _statistics(
    rows: GatheredRows, blocks: Sequence[NDArray[np.int64]], coded: Sequence[int]
) -> Iterator[BlockStatistics]:
    for block in blocks:
        yield block_statistics(rows.gather(block), coded)


class RawFeature(Record):
    """A column as it was read, before any statistic is known."""

    name: str
    kind: str
    missing: int
    categories: tuple[str, ...] | None


class Understood(Record):
    """What an import would make of the user's files."""

    tuples: Sizes
    instances: Sizes
    unlabeled: PoolSizes
    test: int
    test_labels: bool
    strata: Strata
    features: tuple[RawFeature, ...]
    first_rows: tuple[dict[str, Any], ...]


def dry_run(config: ImportTuplesConfig, inputs: Inputs, *, block_bytes: int = BLOCK_BYTES) -> Understood:
    """What an import would understand of these files, after reading all of them and writing nothing."""
    problems = Problems()
    opened = _open(config, inputs, block_bytes, problems)
    imported = _read(config, opened, problems)
    splits = _split(imported, config)
    sizes = _sizes(imported, splits)
    for warning in _all_warnings(opened, imported, sizes["strata"].train, has_pool=bool(sizes["unlabeled"].train)):
        log.warning("%s", warning)
    return Understood(
        **sizes,
        features=_raw_features(opened, imported.survey),
        first_rows=tuple({k: _plain(v) for k, v in row.items()} for row in opened.main.first_rows()),
    )


def _open(config: ImportTuplesConfig, inputs: Inputs, block_bytes: int, problems: Problems) -> ImportSources:
    features = FeatureColumns(config.categorical, config.numeric, config.ignore, most_categories=config.max_categories)
    counts = CountColumn(config.counts_are, parse_law(config.count_law))
    return open_inputs(inputs, ImportOptions(_roles(config), features, config.resize, block_bytes, counts), problems)


def _roles(config: ImportTuplesConfig) -> Roles:
    return Roles(**{name: getattr(config, name) for name in Roles.model_fields})


def _lineage(inputs: Inputs, opened: ImportSources) -> Iterator[dict[str, str]]:
    """Every file that the tuples depend on, by its content."""
    for role, path in inputs.paths().items():
        files = table_paths(path)
        if files is None and isinstance(path, Path) and path.is_dir():
            files = sorted(file for file in path.rglob("*") if file.is_file())
        identity = sha256_file(path) if files is None else _hash_of(path, files)
        yield {"kind": role, "name": _name_of(path), "sha256": identity}
    for role, path, named in _images_elsewhere(inputs, opened):
        files = sorted({file for file in named if file.is_file()})
        yield {"kind": f"{role}-images", "sha256": _hash_of(path.parent, files)}


def _places_of_images(inputs: Inputs, opened: ImportSources) -> list[Path]:
    """One image of every folder that tables name images of: an output around any of them is around this one."""
    files = [file for _, _, named in _images_elsewhere(inputs, opened) for file in named]
    return list({file.parent: file for file in files}.values())


def _images_elsewhere(inputs: Inputs, opened: ImportSources) -> Iterator[tuple[str, Path, list[Path]]]:
    """Role, table and image files of every table that names images."""
    sources = {"tuples": opened.main, "unlabeled": opened.unlabeled, "test": opened.test}
    for role, path in inputs.paths().items():
        source = sources.get(role)
        if isinstance(source, ImageRows) and isinstance(path, Path) and not path.is_dir():
            yield role, path, [file for file in source.files if file is not None]


def _name_of(path: Location) -> str:
    return path.name if isinstance(path, StorageUrl) else path.resolve().name


def _hash_of(folder: Location, files: Sequence[Location]) -> str:
    """One hash of the names and hashes of files, the same for equal files on a disk and behind a URL."""
    digest = hashlib.sha256()
    for file in files:
        if isinstance(file, StorageUrl) and isinstance(folder, StorageUrl):
            name = file.relative_to(folder)
        else:
            name = os.path.relpath(str(file), str(folder))
        digest.update(f"{name}\0{sha256_file(file)}\n".encode())
    return digest.hexdigest()


def _read(
    config: ImportTuplesConfig, opened: ImportSources, problems: Problems, temporary: TemporaryRows | None = None
) -> ImportedRows:
    """Read all rows; again from the beginning where a column of numbers turns out to hold categories."""

    def sink(cells: NDArray[Any]) -> None:
        if temporary is not None:
            temporary.append(cells)

    while True:
        try:
            return read_rows(opened, config.positive, Survey(config.max_categories), sink, problems.copy())
        except LateTextError as late:
            columns = ", ".join(f"'{name}'" for name in sorted(late.names))
            log.info("texts below the first rows of %s: the column holds categories; all is read again", columns)
            if temporary is not None:
                temporary.clear()


def _split(imported: ImportedRows, config: ImportTuplesConfig) -> _Splits:
    """Hold out a random share of tuples and of U, if any; nothing if a set would be empty, because all are needed."""
    share = config.heldout_share
    tuples, rng = imported.tuples, stream(config.seed, "heldout-tuples")
    train, held = hold_out_blocks(tuples.blocks, share, rng) if tuples.blocks else hold_out(len(tuples), share, rng)
    inside, outside = hold_out(len(imported.unlabeled), share, stream(config.seed, "heldout-unlabeled"))
    pool = {"train": imported.unlabeled[inside], "heldout": imported.unlabeled[outside]}
    if not len(imported.unlabeled):
        pool = {"train": imported.unlabeled}
    if not (len(train) and len(held)) or (len(imported.unlabeled) and not (len(inside) and len(outside))):
        return _Splits({"train": tuples}, {"train": imported.unlabeled}, {"train": imported.labelled})
    numbers = {"train": train, "heldout": held}
    labelled = {split: int((which >= len(tuples) - imported.labelled).sum()) for split, which in numbers.items()}
    return _Splits({split: tuples.subset(which) for split, which in numbers.items()}, pool, labelled)


def _understood(
    config: ImportTuplesConfig, opened: ImportSources, imported: ImportedRows, statistics: StatisticsOf
) -> _Read:
    splits = _split(imported, config)
    with long_step("computing means and spreads"):
        return _Read(imported, splits, _fit(config, opened, imported, splits, statistics))


def _fit(
    config: ImportTuplesConfig,
    opened: ImportSources,
    imported: ImportedRows,
    splits: _Splits,
    statistics: StatisticsOf,
) -> FeatureMapping:
    """The mapping, its statistics from training instances only: not from held-out ones, not from test rows."""
    names, images = opened.main.columns, opened.main.image_features()
    if images is not None or names is None:
        assert images is not None, "images were read"
        return FeatureMapping(roles=_roles(config), features=images)
    rows = np.sort(np.concatenate([splits.tuples["train"].rows, splits.unlabeled["train"]]))
    size = max(1, min(STATISTICS_ROWS, STATISTICS_BYTES // (8 * len(names))))
    texts = imported.survey.texts
    blocks = statistics(list(blocks_of(rows, size)), coded_columns(names, texts))
    features = fit_blocks(names, texts, blocks, config.hash_width)
    return FeatureMapping(roles=_roles(config), ignored=config.ignore, features=features)


def _shards(read: _Read) -> Iterator[tuple[str, str, int, Iterator[Shard]]]:
    """What is written: in words, its unit, how many of them, and its shards."""
    for split, tuples in read.splits.tuples.items():
        yield f"writing tuples ({split})", "tuples", len(tuples), tuple_shards(split, tuples, read.mapping)
    for split, rows in read.splits.unlabeled.items():
        yield f"writing the pool ({split})", "rows", len(rows), pool_shards(split, rows, read.mapping)
    test = read.imported.test
    yield "writing the test rows", "rows", len(test), test_shards(test)


def _write_rest(staging: Staging, inputs: Inputs, opened: ImportSources, read: _Read) -> None:
    """All files but the shards, and the summary."""
    imported, splits, mapping = read.imported, read.splits, read.mapping
    if imported.labels is not None:
        with writing_oracle(staging, TEST_LABELS) as oracle:
            oracle.append(labels=imported.labels)
    staging.add_json(MAPPING, mapping.model_dump(mode="json"))
    if is_long(features := _feature_rows(imported, mapping)):
        staging.add_json(FEATURES, [row.to_json() for row in features], rows=len(features))
    staging.add_json(TUPLE_IDS, {split: list(tuples.names) for split, tuples in splits.tuples.items()})
    if imported.tuples.blocks:
        staging.add_json(BLOCKS, {split: list(tuples.blocks) for split, tuples in splits.tuples.items()})
    staging.summary = _summary(inputs, opened, read)
    for text in staging.summary.warnings:
        log.warning(text)


def _sizes(imported: ImportedRows, splits: _Splits) -> dict[str, Any]:
    return {
        "tuples": Sizes.of({split: len(tuples) for split, tuples in splits.tuples.items()}),
        "instances": Sizes.of({split: len(tuples.rows) for split, tuples in splits.tuples.items()}),
        "unlabeled": PoolSizes.of({split: len(rows) for split, rows in splits.unlabeled.items()}),
        "test": len(imported.test),
        "test_labels": imported.labels is not None,
        "strata": Strata.of(
            {split: strata_rows(strata_of(np.diff(t.offsets), t.counts)) for split, t in splits.tuples.items()}
        ),
    }


def _summary(inputs: Inputs, opened: ImportSources, read: _Read) -> TuplesSummary:
    imported, splits, mapping = read.imported, read.splits, read.mapping
    shape, dtype, scale = instance_format(mapping)
    sizes = _sizes(imported, splits)
    strata: tuple[StratumRow, ...] = sizes["strata"].train
    total = sum(row.tuples for row in strata)
    train = splits.tuples["train"]
    knowledge = knowledge_of(strata_of(np.diff(train.offsets), train.counts), np.diff(train.offsets), train.counts)
    images = mapping.features if isinstance(mapping.features, ImageFeatures) else None
    return TuplesSummary(
        dataset=_name_of(inputs.main),
        spec=spec_of(strata),
        instance=InstanceSummary(
            shape=tuple(shape),
            dtype=dtype.name,
            scale=scale,
            standardised=images is None,
            resize=None if images is None else images.resize,
        ),
        **sizes,
        mean_rate=sum(row.tuples * row.rate for row in strata) / total,
        # The prior of U and the noise of the counts are unknown, and without a prior there is no gap.
        prior=None,
        effective_gap=None,
        reuse=None,
        count_noise=None,
        positive_classes=(),
        features=listed_rows(_feature_rows(imported, mapping)),
        notes=(),
        warnings=_all_warnings(opened, imported, strata, has_pool=bool(sizes["unlabeled"].train)),
        knowledge=None if knowledge is None else KnowledgeSummary.of(knowledge),
        labelled=PoolSizes.of(splits.labelled) if imported.labelled else None,
    )


def _feature_rows(imported: ImportedRows, mapping: FeatureMapping) -> tuple[FeatureRow, ...]:
    missing = imported.survey.missing
    return feature_rows(mapping, [] if missing is None else missing.tolist())


def _all_warnings(
    opened: ImportSources, imported: ImportedRows, strata: Sequence[StratumRow], *, has_pool: bool
) -> tuple[str, ...]:
    return (
        *_warnings(strata, has_pool=has_pool),
        *warnings_of(imported),
        *images_of_both_kinds(opened.main),
    )


def _warnings(strata: Sequence[StratumRow], *, has_pool: bool) -> list[str]:
    warnings = []
    rates = {row.rate for row in strata}
    if len(rates) == 1 and rates <= {0.0, 1.0}:
        warnings.append(
            "all instances of tuples are of one class: training needs tuples of both, or a pool and its --prior"
        )
    elif rates <= {0.0, 1.0}:
        warnings.append(
            "every tuple is all positive or all negative: the counts are labels, so supervised training is possible"
        )
    elif len(rates) == 1 and strata[0].m * 2 == strata[0].n:
        warnings.append(
            "every tuple is half positive: the prior of the unlabeled rows must not be 1/2"
            if has_pool
            else "every tuple is half positive, and there is no unlabeled pool: the classes cannot be separated"
        )
    return warnings


def _raw_features(opened: ImportSources, survey: Survey) -> tuple[RawFeature, ...]:
    """The class of every raw feature, before any statistic is known."""
    if (images := opened.main.image_features()) is not None:
        return (RawFeature(name="image", kind=images.description, missing=0, categories=None),)
    features = []
    for j, name in enumerate(opened.main.columns or ()):
        kind, categories = "numeric", None
        if name in survey.texts:
            texts = survey.texts[name]
            kind, categories = ("hashed", None) if texts is None else ("one-hot", tuple(sorted(texts.values())))
        missing = 0 if survey.missing is None else int(survey.missing[j])
        features.append(RawFeature(name=name, kind=kind, missing=missing, categories=categories))
    return tuple(features)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
