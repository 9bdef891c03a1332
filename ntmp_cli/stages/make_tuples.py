"""make-tuples: a labelled data set becomes counted tuples and an unlabeled pool."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import Artifact, IfExists, Plan, Staging, kept_output, open_artifact, publishing
from ntmp_cli.artifacts.layout import TEST_INSTANCES, TEST_LABELS
from ntmp_cli.artifacts.oracle import OracleWriter, writing_oracle
from ntmp_cli.artifacts.shards import TupleBlock, write_instances, write_tuple_shards
from ntmp_cli.config import MakeTuplesConfig
from ntmp_cli.data.drawing import TupleDraw
from ntmp_cli.data.labelled import LabelledData, binary_labels, load_labelled, named_paths
from ntmp_cli.data.pools import Parts, choose_unlabeled, cut
from ntmp_cli.data.specs import TupleSpec, mean_length, parse_spec
from ntmp_cli.learning.groups import NO_GAP, effective_gap
from ntmp_cli.randomness import stream

log = logging.getLogger(__name__)

SHARD_BYTES = 16 * 2**20
GATHER = 1024


def make_tuples(
    config: MakeTuplesConfig,
    out: Path,
    *,
    data_root: Path | None = None,
    download: bool = False,
    if_exists: IfExists = "fail",
) -> Artifact:
    """Draw tuples and U from a labelled data set and publish them, true labels apart."""
    specs = [parse_spec(text) for text in config.tuples]
    data = load_labelled(config.dataset, root=data_root, download=download, resize=config.resize)
    return tuples_from_labelled(config, specs, data, out, if_exists=if_exists)


def tuples_from_labelled(
    config: MakeTuplesConfig,
    specs: Sequence[TupleSpec],
    data: LabelledData,
    out: Path,
    *,
    if_exists: IfExists = "fail",
) -> Artifact:
    """The stage after loading, so that benchmarks and Python users can pass arrays of their own."""
    positive, test_positive = binary_labels(data, config.positive)
    plan = tuples_plan(config, data)
    if kept := kept_output(out, plan, if_exists):
        return kept

    parts = cut(len(positive), config.tuple_share, config.heldout_share, stream(config.seed, "cut"))
    unlabeled = _choose_unlabeled(config, parts, positive)
    draws = _tuple_draws(config, specs, parts, positive)
    warnings = _foresee(specs, draws, positive, unlabeled)
    for text in warnings:
        log.warning(text)

    with publishing(out, plan, if_exists=if_exists) as staging:
        strata = {split: _write_tuples(staging, split, draw, data, config) for split, draw in draws.items()}
        for split, indices in unlabeled.items():
            _write_unlabeled(staging, split, indices, data, positive)
        write_instances(staging, TEST_INSTANCES, _pieces(data.x_test), len(data.x_test), scale=data.scale)
        with writing_oracle(staging, TEST_LABELS) as oracle:
            oracle.append(labels=test_positive)
        staging.summary = _summary(data, draws, strata, unlabeled, positive, warnings, config)
    return open_artifact(out)


def tuples_plan(config: MakeTuplesConfig, data: LabelledData) -> Plan:
    """What tuples of these data with these settings are known by."""
    # The name without the user's folders: manifests hold no host path.
    settings = {**config.model_dump(mode="json"), "dataset": data.name}
    lineage = {"kind": "dataset", "name": data.name, "sha256": data.fingerprint()}
    return Plan("tuples", settings, config.seed, (lineage,), (*named_paths(config.dataset), *data.files))


def _choose_unlabeled(
    config: MakeTuplesConfig, parts: Parts, positive: NDArray[np.bool_]
) -> dict[str, NDArray[np.int64]]:
    size = config.unlabeled_size
    chosen = {
        "train": choose_unlabeled(parts.unlabeled, positive, config.prior, size, stream(config.seed, "unlabeled"))
    }
    if len(parts.unlabeled_heldout):
        rng = stream(config.seed, "unlabeled-heldout")
        chosen["heldout"] = choose_unlabeled(parts.unlabeled_heldout, positive, config.prior, None, rng)
    return chosen


def _tuple_draws(
    config: MakeTuplesConfig, specs: Sequence[TupleSpec], parts: Parts, positive: NDArray[np.bool_]
) -> dict[str, TupleDraw]:
    size = config.num_tuples or max(1, round(len(positive) / mean_length(specs)))
    sizes = {"train": (size, parts.tuples)}
    if len(parts.tuples_heldout):
        sizes["heldout"] = (max(1, round(size * config.heldout_share)), parts.tuples_heldout)
    return {
        split: TupleDraw(specs, count, pool, positive, config.count_noise, config.seed, split)
        for split, (count, pool) in sizes.items()
    }


def _foresee(
    specs: Sequence[TupleSpec],
    draws: dict[str, TupleDraw],
    positive: NDArray[np.bool_],
    unlabeled: dict[str, NDArray[np.int64]],
) -> list[str]:
    """What will make learning hard, said before anything is written."""
    prior = float(positive[unlabeled["train"]].mean())
    rates = {spec.fixed[1] / spec.fixed[0] for spec in specs if spec.fixed}
    if len(rates) != 1 or any(spec.fixed is None for spec in specs):
        return []
    (rate,) = rates
    gap = abs(prior - rate)
    instances = draws["train"].size * mean_length(specs)
    if effective_gap([instances, len(unlabeled["train"])], [rate, prior]) < NO_GAP:
        return [
            f"the unlabeled prior π = {prior:.4g} equals the only tuple rate α = {rate:.4g}: no unbiased risk is "
            "identifiable from these tuples; change --prior or mix tuples of another rate (--tuple)"
        ]
    if gap < 0.05:
        return [
            f"the gap |π − α| = |{prior:.4g} − {rate:.4g}| = {gap:.3g} is below 0.05: the risk estimate will be noisy; "
            "move --prior or mix tuples of another rate (--tuple)"
        ]
    return []


def _write_tuples(
    staging: Staging, split: str, draw: TupleDraw, data: LabelledData, config: MakeTuplesConfig
) -> Counter[tuple[int, int]]:
    strata: Counter[tuple[int, int]] = Counter()
    item_bytes = data.x_train[0].nbytes * mean_length(draw.specs)
    shard_size = config.shard_size or max(1, round(SHARD_BYTES / item_bytes))
    with writing_oracle(staging, f"oracle/{split}-tuples.h5") as oracle:
        blocks = _instance_blocks(draw, data, oracle, strata)
        write_tuple_shards(staging, split, blocks, shard_size=shard_size, scale=data.scale)
    return strata


def _instance_blocks(
    draw: TupleDraw, data: LabelledData, oracle: OracleWriter, strata: Counter[tuple[int, int]]
) -> Iterator[TupleBlock]:
    """Turn drawn indices into instances; keep the truth and the strata on the way past."""
    for block in draw.blocks():
        oracle.append(
            labels=draw.positive[block.indices],
            true_counts=block.true_counts.astype(np.int32),
            source=block.indices.astype(np.int32),
        )
        sizes = np.diff(block.offsets)
        keys, tuples = np.unique(sizes << 32 | block.counts, return_counts=True)
        strata.update({(int(key >> 32), int(key & 0xFFFFFFFF)): int(k) for key, k in zip(keys, tuples, strict=True)})
        # Instances are gathered in smaller pieces than tuples are drawn: they are what takes memory.
        for start in range(0, len(sizes), GATHER):
            stop = min(start + GATHER, len(sizes))
            a, b = block.offsets[start], block.offsets[stop]
            offsets = block.offsets[start : stop + 1] - a
            yield TupleBlock(data.x_train[block.indices[a:b]], offsets, block.counts[start:stop])


def _write_unlabeled(
    staging: Staging, split: str, indices: NDArray[np.int64], data: LabelledData, positive: NDArray[np.bool_]
) -> None:
    per_shard = max(1, SHARD_BYTES // data.x_train[0].nbytes)
    for number, start in enumerate(range(0, len(indices), per_shard)):
        part = indices[start : start + per_shard]
        name = f"{split}/unlabeled-{number:05d}.h5"
        write_instances(staging, name, _pieces(data.x_train, part), len(part), scale=data.scale)
    with writing_oracle(staging, f"oracle/{split}-unlabeled.h5") as oracle:
        oracle.append(labels=positive[indices], source=indices.astype(np.int32))


def _pieces(x: NDArray[np.generic], indices: NDArray[np.int64] | None = None) -> Iterator[NDArray[np.generic]]:
    rows = max(1, 4 * 2**20 // x[0].nbytes)
    size = len(x) if indices is None else len(indices)
    for start in range(0, size, rows):
        yield x[start : start + rows] if indices is None else x[indices[start : start + rows]]


def strata_table(strata: Counter[tuple[int, int]]) -> list[dict[str, Any]]:
    """Tuples of equal length and count, as a manifest lists them."""
    return [{"n": n, "m": m, "rate": m / n, "tuples": k, "instances": n * k} for (n, m), k in sorted(strata.items())]


def _summary(
    data: LabelledData,
    draws: dict[str, TupleDraw],
    strata: dict[str, Counter[tuple[int, int]]],
    unlabeled: dict[str, NDArray[np.int64]],
    positive: NDArray[np.bool_],
    warnings: list[str],
    config: MakeTuplesConfig,
) -> dict[str, Any]:
    table = {split: strata_table(counter) for split, counter in strata.items()}
    prior = float(positive[unlabeled["train"]].mean())
    sizes = [s["instances"] for s in table["train"]] + [len(unlabeled["train"])]
    rates = [s["rate"] for s in table["train"]] + [prior]
    total = sum(s["tuples"] for s in table["train"])
    return {
        "dataset": data.name,
        "instance": {
            "shape": list(data.x_train.shape[1:]),
            "dtype": data.x_train.dtype.name,
            "scale": data.scale,
        },
        "tuples": {split: draw.size for split, draw in draws.items()},
        "instances": {split: sum(s["instances"] for s in rows) for split, rows in table.items()},
        "unlabeled": {split: len(indices) for split, indices in unlabeled.items()},
        "test": len(data.x_test),
        "strata": table,
        "mean_rate": sum(s["tuples"] * s["rate"] for s in table["train"]) / total,
        "prior": prior,
        "effective_gap": effective_gap(sizes, rates),
        "reuse": draws["train"].reuse(),
        "count_noise": config.count_noise,
        "positive_classes": list(config.positive or data.positive),
        "notes": list(data.notes),
        "warnings": warnings,
    }
