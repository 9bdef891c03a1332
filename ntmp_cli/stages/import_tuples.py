"""import-tuples: the user's own rows become counted tuples and an unlabeled pool."""

from __future__ import annotations

import hashlib
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import Artifact, IfExists, Plan, Staging, kept_output, open_artifact, publishing
from ntmp_cli.artifacts.layout import MAPPING, TEST_INSTANCES, TEST_LABELS, TUPLE_IDS
from ntmp_cli.artifacts.manifest import sha256_file
from ntmp_cli.artifacts.oracle import writing_oracle
from ntmp_cli.artifacts.scratch import Scratch
from ntmp_cli.artifacts.shards import TupleBlock, write_instances, write_tuple_shards
from ntmp_cli.config import ImportTuplesConfig
from ntmp_cli.data.own.grouping import Grouped, set_aside
from ntmp_cli.data.own.mapping import FeatureMapping, ImageFeatures, Roles, TableFeatures, blocks_of, fit_table
from ntmp_cli.data.own.pictures import PictureRows
from ntmp_cli.data.own.problems import Problems
from ntmp_cli.data.own.reading import Found, Sink, Survey, read_everything
from ntmp_cli.data.own.sources import Inputs, Opened, Reading, open_inputs
from ntmp_cli.data.own.tables import BLOCK_BYTES
from ntmp_cli.randomness import stream
from ntmp_cli.stages.make_tuples import SHARD_BYTES, strata_table

log = logging.getLogger(__name__)

# Rows per block of the statistics: fixed, so that they do not depend on how the files were read.
STATISTICS_ROWS = 8192
PIECE_BYTES = 4 * 2**20


@dataclass(frozen=True)
class Parts:
    """Tuples and unlabeled rows that are trained on, and those set aside."""

    tuples: dict[str, Grouped]
    unlabeled: dict[str, NDArray[np.int64]]


def import_tuples(
    config: ImportTuplesConfig,
    inputs: Inputs,
    out: Path,
    *,
    if_exists: IfExists = "fail",
    block_bytes: int = BLOCK_BYTES,
) -> Artifact:
    """Read the user's files and publish them as a tuples directory.

    Rows of a tuple may lie anywhere: they are read once, into a nameless file beside the output, and gathered from it
    shard by shard. Memory holds blocks of rows and a few bytes per row, whatever the features take.
    """
    problems = Problems()
    opened = _open(config, inputs, block_bytes, problems)
    reads = (*inputs.paths().values(), *_places_of_images(inputs, opened))
    plan = Plan("tuples", config.model_dump(mode="json"), config.seed, tuple(_lineage(inputs, opened)), reads)
    if kept := kept_output(out, plan, if_exists):
        return kept
    with publishing(out, plan, if_exists=if_exists) as staging, Scratch(staging.path) as scratch:
        found = _read(config, opened, problems, scratch.append)
        parts = _parts(found, config)
        mapping = _fit(config, opened, found, parts, scratch)
        _write(staging, found, parts, mapping, scratch)
        staging.summary = _summary(inputs, opened, found, parts, mapping)
        for text in staging.summary["warnings"]:
            log.warning(text)
    return open_artifact(out)


def dry_run(config: ImportTuplesConfig, inputs: Inputs, *, block_bytes: int = BLOCK_BYTES) -> dict[str, Any]:
    """What an import would understand of these files, after reading all of them and writing nothing."""
    problems = Problems()
    opened = _open(config, inputs, block_bytes, problems)
    found = _read(config, opened, problems, lambda cells: None)
    parts = _parts(found, config)
    return {
        **_sizes(found, parts),
        "strata": {split: strata_table(_strata(tuples)) for split, tuples in parts.tuples.items()},
        "features": _feature_facts(config, opened, found.survey),
        "first_rows": [{k: _plain(v) for k, v in row.items()} for row in opened.main.first_rows()],
    }


def _open(config: ImportTuplesConfig, inputs: Inputs, block_bytes: int, problems: Problems) -> Opened:
    how = Reading(_roles(config), config.categorical, config.ignore, config.resize, block_bytes)
    return open_inputs(inputs, how, problems)


def _roles(config: ImportTuplesConfig) -> Roles:
    return Roles(**{name: getattr(config, name) for name in Roles.model_fields})


def _lineage(inputs: Inputs, opened: Opened) -> Iterator[dict[str, str]]:
    """Every file that the tuples depend on, by its content."""
    for role, path in inputs.paths().items():
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else []
        identity = _together(path, files) if path.is_dir() else sha256_file(path)
        yield {"kind": role, "name": path.resolve().name, "sha256": identity}
    for role, path, named in _images_elsewhere(inputs, opened):
        files = sorted({file for file in named if file.is_file()})
        yield {"kind": f"{role}-images", "sha256": _together(path.parent, files)}


def _places_of_images(inputs: Inputs, opened: Opened) -> list[Path]:
    """One image of every folder that tables name images of: an output around any of them is around this one."""
    files = [file for _, _, named in _images_elsewhere(inputs, opened) for file in named]
    return list({file.parent: file for file in files}.values())


def _images_elsewhere(inputs: Inputs, opened: Opened) -> Iterator[tuple[str, Path, list[Path]]]:
    """Role, table and image files of every table that names images."""
    sources = {"tuples": opened.main, "unlabeled": opened.unlabeled, "test": opened.test}
    for role, path in inputs.paths().items():
        source = sources.get(role)
        if isinstance(source, PictureRows) and not path.is_dir():
            yield role, path, [file for file in source.files if file is not None]


def _together(folder: Path, files: Sequence[Path]) -> str:
    """One hash of the names and hashes of files."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{os.path.relpath(file, folder)}\0{sha256_file(file)}\n".encode())
    return digest.hexdigest()


def _read(config: ImportTuplesConfig, opened: Opened, problems: Problems, sink: Sink) -> Found:
    return read_everything(
        opened.main,
        opened.unlabeled,
        opened.test,
        counts=opened.counts,
        positive=config.positive,
        survey=Survey(frozenset(config.categorical), config.max_categories),
        sink=sink,
        problems=problems,
    )


def _parts(found: Found, config: ImportTuplesConfig) -> Parts:
    """A random share of tuples and of U set aside; nothing where either would be empty, because both are needed."""
    share = config.heldout_share
    train, held = set_aside(len(found.tuples), share, stream(config.seed, "heldout-tuples"))
    inside, outside = set_aside(len(found.unlabeled), share, stream(config.seed, "heldout-unlabeled"))
    if not (len(train) and len(held) and len(inside) and len(outside)):
        return Parts({"train": found.tuples}, {"train": found.unlabeled})
    return Parts(
        {"train": found.tuples.some(train), "heldout": found.tuples.some(held)},
        {"train": found.unlabeled[inside], "heldout": found.unlabeled[outside]},
    )


def _fit(config: ImportTuplesConfig, opened: Opened, found: Found, parts: Parts, scratch: Scratch) -> FeatureMapping:
    """The mapping, its statistics from training instances only: not from held-out ones, not from test rows."""
    names, images = opened.main.columns, opened.main.image_features()
    if images is not None or names is None:
        assert images is not None, "images were read"
        return FeatureMapping(roles=_roles(config), features=images)
    rows = np.sort(np.concatenate([parts.tuples["train"].rows, parts.unlabeled["train"]]))
    blocks = (scratch.gather(block) for block in blocks_of(rows, STATISTICS_ROWS))
    features = fit_table(names, found.survey.texts, blocks, config.hash_width)
    return FeatureMapping(roles=_roles(config), features=features)


def _write(staging: Staging, found: Found, parts: Parts, mapping: FeatureMapping, scratch: Scratch) -> None:
    shape, dtype, scale = _instance(mapping)
    item = int(np.prod(shape)) * dtype.itemsize
    for split, tuples in parts.tuples.items():
        per_shard = max(1, round(SHARD_BYTES * len(tuples) / (item * len(tuples.rows))))
        blocks = _blocks(tuples, max(1, PIECE_BYTES // item), mapping, scratch)
        write_tuple_shards(staging, split, blocks, shard_size=per_shard, scale=scale)
    for split, rows in parts.unlabeled.items():
        for number, own in enumerate(blocks_of(rows, max(1, SHARD_BYTES // item))):
            name = f"{split}/unlabeled-{number:05d}.h5"
            write_instances(staging, name, _pieces(own, item, mapping, scratch), len(own), scale=scale)
    if len(found.test):
        pieces = _pieces(found.test, item, mapping, scratch)
        write_instances(staging, TEST_INSTANCES, pieces, len(found.test), scale=scale)
    if found.labels is not None:
        with writing_oracle(staging, TEST_LABELS) as oracle:
            oracle.append(labels=found.labels)
    staging.add_json(MAPPING, mapping.model_dump(mode="json"))
    staging.add_json(TUPLE_IDS, {split: list(tuples.names) for split, tuples in parts.tuples.items()})


def _blocks(tuples: Grouped, rows: int, mapping: FeatureMapping, scratch: Scratch) -> Iterator[TupleBlock]:
    """Whole tuples, as many at a time as have about so many rows."""
    start = 0
    while start < len(tuples):
        stop = int(np.searchsorted(tuples.offsets, tuples.offsets[start] + rows, side="right")) - 1
        stop = min(max(stop, start + 1), len(tuples))
        a, b = tuples.offsets[start], tuples.offsets[stop]
        instances = _instances(mapping, scratch.gather(tuples.rows[a:b]))
        yield TupleBlock(instances, tuples.offsets[start : stop + 1] - a, tuples.counts[start:stop])
        start = stop


def _pieces(
    rows: NDArray[np.int64], item: int, mapping: FeatureMapping, scratch: Scratch
) -> Iterator[NDArray[np.generic]]:
    for some in blocks_of(rows, max(1, PIECE_BYTES // item)):
        yield _instances(mapping, scratch.gather(some))


def _instances(mapping: FeatureMapping, cells: NDArray[Any]) -> NDArray[np.generic]:
    features = mapping.features
    return features.apply(cells) if isinstance(features, TableFeatures) else cells[:, : features.shape[0]]


def _instance(mapping: FeatureMapping) -> tuple[list[int], np.dtype[Any], float]:
    """Shape, type and scale of an instance."""
    if isinstance(mapping.features, ImageFeatures):
        return list(mapping.features.shape), np.dtype(mapping.features.dtype), mapping.features.scale
    return [mapping.features.width], np.dtype(np.float32), 1.0


def _strata(tuples: Grouped) -> Counter[tuple[int, int]]:
    pairs, numbers = np.unique(np.stack([np.diff(tuples.offsets), tuples.counts]), axis=1, return_counts=True)
    return Counter({(int(n), int(m)): int(k) for n, m, k in zip(*pairs, numbers, strict=True)})


def _sizes(found: Found, parts: Parts) -> dict[str, Any]:
    return {
        "tuples": {split: len(tuples) for split, tuples in parts.tuples.items()},
        "instances": {split: len(tuples.rows) for split, tuples in parts.tuples.items()},
        "unlabeled": {split: len(rows) for split, rows in parts.unlabeled.items()},
        "test": len(found.test),
        "test_labels": found.labels is not None,
    }


def _summary(inputs: Inputs, opened: Opened, found: Found, parts: Parts, mapping: FeatureMapping) -> dict[str, Any]:
    shape, dtype, scale = _instance(mapping)
    table = {split: strata_table(_strata(tuples)) for split, tuples in parts.tuples.items()}
    total = sum(row["tuples"] for row in table["train"])
    rates = {row["rate"] for row in table["train"]}
    missing = found.survey.missing
    return {
        "dataset": inputs.main.resolve().name,
        "spec": _spec(table["train"]),
        "instance": {
            "shape": shape,
            "dtype": dtype.name,
            "scale": scale,
            "standardised": isinstance(mapping.features, TableFeatures),
        },
        **_sizes(found, parts),
        "strata": table,
        "mean_rate": sum(row["tuples"] * row["rate"] for row in table["train"]) / total,
        # Nobody has told us the prior of U, and without it there is no gap.
        "prior": None,
        "effective_gap": None,
        "features": _mapped_facts(mapping, missing),
        "warnings": _warnings(table["train"], rates, mapping),
    }


def _spec(strata: list[dict[str, Any]]) -> str:
    """Short words for the tuples, as in the results table."""
    if len(strata) <= 3:
        return "+".join(f"{row['n']}:{row['m']}" for row in strata)

    def span(key: str) -> str:
        low, high = min(row[key] for row in strata), max(row[key] for row in strata)
        return f"{low}" if low == high else f"{low}-{high}"

    return f"{span('n')}:{span('m')}"


def _warnings(strata: list[dict[str, Any]], rates: set[float], mapping: FeatureMapping) -> list[str]:
    found = []
    if rates <= {0.0, 1.0}:
        found.append("every tuple is all positive or all negative: the counts are labels, and plain training would do")
    elif len(rates) == 1 and strata[0]["m"] * 2 == strata[0]["n"]:
        found.append(
            "every tuple is half positive: only a prior of the unlabeled rows other than 1/2 tells the classes apart"
        )
    return found


def _mapped_facts(mapping: FeatureMapping, missing: NDArray[np.int64] | None) -> list[dict[str, Any]]:
    if isinstance(mapping.features, ImageFeatures):
        return [{"name": "image", "kind": _image_kind(mapping.features), "missing": 0, "width": 1}]
    counts = np.zeros(len(mapping.features.columns), np.int64) if missing is None else missing
    return [
        {"name": column.name, "kind": column.kind, "missing": int(count), "width": column.own_width + column.indicator}
        for column, count in zip(mapping.features.columns, counts, strict=True)
    ]


def _image_kind(images: ImageFeatures) -> str:
    return f"{'×'.join(map(str, images.shape))} {images.dtype}"


def _feature_facts(config: ImportTuplesConfig, opened: Opened, survey: Survey) -> list[dict[str, Any]]:
    """The class of every raw feature, before any statistic is known."""
    if (images := opened.main.image_features()) is not None:
        return [{"name": "image", "kind": _image_kind(images), "missing": 0, "categories": None}]
    facts = []
    for j, name in enumerate(opened.main.columns or ()):
        kind, categories = "numeric", None
        if name in config.categorical:
            texts = survey.texts.get(name, {})
            kind, categories = ("hashed", None) if texts is None else ("one-hot", sorted(texts.values()))
        missing = 0 if survey.missing is None else int(survey.missing[j])
        facts.append({"name": name, "kind": kind, "missing": missing, "categories": categories})
    return facts


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)
