"""make-tuples: a labelled data set becomes counted tuples and an unlabeled pool."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import IfExists, Plan, Staging, TuplesArtifact, existing_output, open_artifact, publishing
from ntmp_cli.artifacts.feature_rows import feature_rows, is_long, listed_rows
from ntmp_cli.artifacts.layout import FEATURES, MAPPING, TEST_INSTANCES, TEST_LABELS
from ntmp_cli.artifacts.oracle import OracleWriter, writing_oracle
from ntmp_cli.artifacts.shards import SHARD_BYTES, TupleBlock, write_instances, write_tuple_shards
from ntmp_cli.artifacts.summaries import Reuse, TuplesSummary
from ntmp_cli.artifacts.summary_fields import InstanceSummary, KnowledgeSummary, PoolSizes, Sizes, Strata, strata_rows
from ntmp_cli.config import MakeTuplesConfig
from ntmp_cli.counting.recorded import Counts, join
from ntmp_cli.counting.strata import knowledge_of, strata_of
from ntmp_cli.data.labelled import LabelledData, TableColumns, binary_labels, load_labelled, named_paths
from ntmp_cli.data.pools import PoolRequest, PoolSplit, choose_unlabeled, split_pool
from ntmp_cli.data.recording import Recording
from ntmp_cli.data.sampling import TupleSampler
from ntmp_cli.data.specs import TupleSpec, mean_length, parse_spec
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.groups import NO_GAP, effective_gap
from ntmp_cli.randomness import stream

log = logging.getLogger(__name__)

GATHER = 1024


@dataclass(frozen=True)
class _Sample:
    """Tuples and unlabeled instances of every split, and the prior of the pool that is trained on."""

    samplers: dict[str, TupleSampler]
    unlabeled: dict[str, NDArray[np.int64]]
    prior: float


def make_tuples(
    config: MakeTuplesConfig,
    out: Path,
    *,
    data_root: Path | None = None,
    download: bool = False,
    if_exists: IfExists = "fail",
) -> TuplesArtifact:
    """Sample tuples and U from a labelled data set and publish them, true labels apart."""
    specs = [parse_spec(text) for text in config.tuples]
    _recording(config)
    data = load_labelled(
        config.dataset, root=data_root, download=download, resize=config.resize, columns=table_columns(config)
    )
    return tuples_from_labelled(config, specs, data, out, if_exists=if_exists)


def table_columns(config: MakeTuplesConfig) -> TableColumns:
    """What the settings say of the columns of a table."""
    return TableColumns(
        config.label_column or TableColumns.label,
        config.categorical,
        config.numeric,
        config.ignore,
        test_share=config.test_share,
    )


def tuples_from_labelled(
    config: MakeTuplesConfig,
    specs: Sequence[TupleSpec],
    data: LabelledData,
    out: Path,
    *,
    if_exists: IfExists = "fail",
) -> TuplesArtifact:
    """The stage after loading, so that benchmarks and Python users can pass arrays."""
    positive, test_positive = binary_labels(data, config.positive)
    plan = tuples_plan(config, data)
    if kept := existing_output(out, plan, if_exists):
        return kept

    pools = split_pool(len(positive), config.tuple_share, config.heldout_share, stream(config.seed, "cut"))
    unlabeled = _choose_unlabeled(config, pools, positive)
    samplers = _tuple_samplers(config, specs, pools, positive)
    sample = _Sample(samplers, unlabeled, _prior(config, positive, unlabeled["train"]))
    warnings = _foresee(specs, sample)
    for text in warnings:
        log.warning(text)

    with publishing(out, plan, if_exists=if_exists) as staging:
        recorded = {split: _write_tuples(staging, split, sampler, data, config) for split, sampler in samplers.items()}
        for split, indices in unlabeled.items():
            _write_unlabeled(staging, split, indices, data, positive)
        write_instances(staging, TEST_INSTANCES, _pieces(data.x_test), len(data.x_test), scale=data.scale)
        with writing_oracle(staging, TEST_LABELS) as oracle:
            oracle.append(labels=test_positive)
        if data.mapping is not None:
            staging.add_json(MAPPING, data.mapping.model_dump(mode="json"))
            if is_long(rows := feature_rows(data.mapping, data.missing)):
                staging.add_json(FEATURES, [row.to_json() for row in rows], rows=len(rows))
        staging.summary = _summary(config, data, sample, recorded, warnings)
    return open_artifact(out, "tuples")


def tuples_plan(config: MakeTuplesConfig, data: LabelledData) -> Plan:
    """The plan of tuples of these data with these settings."""
    # The name without the user's folders: manifests hold no host path.
    settings = {**config.model_dump(mode="json"), "dataset": data.name}
    lineage = {"kind": "dataset", "name": data.name, "sha256": data.fingerprint()}
    return Plan("tuples", settings, config.seed, (lineage,), (*named_paths(config.dataset), *data.files))


def _choose_unlabeled(
    config: MakeTuplesConfig, pools: PoolSplit, positive: NDArray[np.bool_]
) -> dict[str, NDArray[np.int64]]:
    request = PoolRequest(config.prior, config.unlabeled_size, config.pool == "iid")
    chosen = {"train": choose_unlabeled(pools.unlabeled, positive, request, stream(config.seed, "unlabeled"))}
    if len(pools.unlabeled_heldout):
        rng = stream(config.seed, "unlabeled-heldout")
        chosen["heldout"] = choose_unlabeled(pools.unlabeled_heldout, positive, replace(request, size=None), rng)
    return chosen


def _prior(config: MakeTuplesConfig, positive: NDArray[np.bool_], unlabeled: NDArray[np.int64]) -> float:
    """Of an exact pool its share of positives; of an i.i.d. pool the probability that its labels were sampled with."""
    if config.pool == "exact":
        return float(positive[unlabeled].mean())
    return float(positive.mean()) if config.prior is None else config.prior


def _tuple_samplers(
    config: MakeTuplesConfig, specs: Sequence[TupleSpec], pools: PoolSplit, positive: NDArray[np.bool_]
) -> dict[str, TupleSampler]:
    size = config.num_tuples or max(1, round(len(positive) / mean_length(specs)))
    sizes = {"train": (size, pools.tuples)}
    if len(pools.tuples_heldout):
        sizes["heldout"] = (max(1, round(size * config.heldout_share)), pools.tuples_heldout)
    recording = _recording(config)
    return {
        split: TupleSampler(specs, count, pool, positive, config.count_noise, config.seed, split, recording)
        for split, (count, pool) in sizes.items()
    }


def _recording(config: MakeTuplesConfig) -> Recording:
    recording = Recording.of(config.record, config.count_law)
    if config.count_noise and not recording.plain:
        raise UsageError(
            "--count-noise beside --record or --count-law: counts are recorded in one way",
            hint=f"Write the noise as --count-law off-by-one:{config.count_noise:g}.",
        )
    return recording


def _foresee(specs: Sequence[TupleSpec], sample: _Sample) -> list[str]:
    """Warnings about tuples that are hard to learn from, before anything is written."""
    prior = sample.prior
    rates = {spec.fixed[1] / spec.fixed[0] for spec in specs if spec.fixed}
    if len(rates) != 1 or any(spec.fixed is None for spec in specs):
        return []
    (rate,) = rates
    gap = abs(prior - rate)
    instances = sample.samplers["train"].size * mean_length(specs)
    if effective_gap([instances, len(sample.unlabeled["train"])], [rate, prior]) < NO_GAP:
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


class _Recorded(NamedTuple):
    """Sizes and recorded counts of the tuples of a split."""

    sizes: NDArray[np.int64]
    counts: Counts


def _write_tuples(
    staging: Staging, split: str, sampler: TupleSampler, data: LabelledData, config: MakeTuplesConfig
) -> _Recorded:
    recorded: list[_Recorded] = []
    item_bytes = data.x_train[0].nbytes * mean_length(sampler.specs)
    shard_size = config.shard_size or max(1, round(SHARD_BYTES / item_bytes))
    with writing_oracle(staging, f"oracle/{split}-tuples.h5") as oracle:
        blocks = _instance_blocks(sampler, data, oracle, recorded)
        write_tuple_shards(staging, split, blocks, shard_size=shard_size, scale=data.scale)
    return _Recorded(np.concatenate([part.sizes for part in recorded]), join([part.counts for part in recorded]))


def _instance_blocks(
    sampler: TupleSampler, data: LabelledData, oracle: OracleWriter, recorded: list[_Recorded]
) -> Iterator[TupleBlock]:
    """Turn sampled indices into instances; write their true labels and keep what is recorded."""
    for block in sampler.blocks():
        oracle.append(
            labels=sampler.positive[block.indices],
            true_counts=block.true_counts.astype(np.int32),
            source=block.indices.astype(np.int32),
        )
        sizes = np.diff(block.offsets)
        recorded.append(_Recorded(sizes, block.counts))
        # Instances are gathered in smaller pieces than tuples are sampled: they are what takes memory.
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
        shard = indices[start : start + per_shard]
        name = f"{split}/unlabeled-{number:05d}.h5"
        write_instances(staging, name, _pieces(data.x_train, shard), len(shard), scale=data.scale)
    with writing_oracle(staging, f"oracle/{split}-unlabeled.h5") as oracle:
        oracle.append(labels=positive[indices], source=indices.astype(np.int32))


def _pieces(x: NDArray[np.generic], indices: NDArray[np.int64] | None = None) -> Iterator[NDArray[np.generic]]:
    rows = max(1, 4 * 2**20 // x[0].nbytes)
    size = len(x) if indices is None else len(indices)
    for start in range(0, size, rows):
        yield x[start : start + rows] if indices is None else x[indices[start : start + rows]]


def _summary(
    config: MakeTuplesConfig,
    data: LabelledData,
    sample: _Sample,
    recorded: dict[str, _Recorded],
    warnings: list[str],
) -> TuplesSummary:
    strata = {split: strata_of(*part) for split, part in recorded.items()}
    table = {split: strata_rows(rows) for split, rows in strata.items()}
    knowledge = knowledge_of(strata["train"], *recorded["train"])
    sizes = [s.instances for s in table["train"] if s.known] + [len(sample.unlabeled["train"])]
    rates = [s.rate for s in table["train"] if s.known] + [sample.prior]
    total = sum(s.tuples for s in table["train"])
    return TuplesSummary(
        dataset=data.name,
        spec="+".join(config.tuples),
        instance=InstanceSummary(
            shape=data.x_train.shape[1:],
            dtype=data.x_train.dtype.name,
            scale=data.scale,
            standardised=data.mapping is not None,
            resize=config.resize,
        ),
        tuples=Sizes.of({split: sampler.size for split, sampler in sample.samplers.items()}),
        instances=Sizes.of({split: sum(s.instances for s in rows) for split, rows in table.items()}),
        unlabeled=PoolSizes.of({split: len(indices) for split, indices in sample.unlabeled.items()}),
        test=len(data.x_test),
        test_labels=True,
        strata=Strata.of(table),
        mean_rate=sum(s.tuples * s.rate for s in table["train"]) / total,
        prior=sample.prior,
        effective_gap=effective_gap(sizes, rates),
        reuse=Reuse(**sample.samplers["train"].reuse()),
        count_noise=config.count_noise,
        positive_classes=tuple(config.positive or data.positive),
        features=() if data.mapping is None else listed_rows(feature_rows(data.mapping, data.missing)),
        notes=tuple(data.notes),
        warnings=tuple(warnings),
        knowledge=None if knowledge is None else KnowledgeSummary.of(knowledge),
        labelled=None,
    )
