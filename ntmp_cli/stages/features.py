"""Features of a frozen encoder, computed once for a tuples directory and kept beside the runs that use them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as save_safetensors

from ntmp_cli.artifacts import (
    Artifact,
    Plan,
    RunArtifact,
    Staging,
    TuplesArtifact,
    describe_input,
    existing_output,
    folder_lock,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.distinct_instances import DistinctInstances, FeatureRows, others_of_encoder
from ntmp_cli.artifacts.layout import BLOCKS, ENCODER_WEIGHTS, TEST_INSTANCES
from ntmp_cli.artifacts.manifest import canonical_json
from ntmp_cli.artifacts.named_files import encoder_run, file_identity, weights_files
from ntmp_cli.artifacts.shards import (
    TupleBlock,
    read_instances,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
    write_digests,
    write_instances,
    write_tuple_shards,
)
from ntmp_cli.artifacts.stored_scorer import load_network
from ntmp_cli.artifacts.summaries import FeaturesSummary
from ntmp_cli.artifacts.summary_fields import InstanceSummary
from ntmp_cli.artifacts.temporary_rows import TemporaryRows
from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.encoders import PENULTIMATE, Encoder, EncoderRequest, build_encoder
from ntmp_cli.learning.models import Scorer, require_network
from ntmp_cli.learning.penultimate import Penultimate
from ntmp_cli.plugins import plugin_settings

log = logging.getLogger(__name__)

# An encoder with random weights is the same for all seeds of a study.
ENCODER_SEED = 0
BATCH = 256


def encode_tuples(
    tuples: TuplesArtifact, encoder: str, config: TrainConfig, folder: Path, device: torch.device
) -> Artifact[FeaturesSummary]:
    """The features of a tuples directory, from `folder` if it has them already."""
    run = encoder_run(config) if encoder == config.encoder else None
    name = encoder if run is None else f"{PENULTIMATE}{run.summary.model}"
    settings = {
        "encoder": name,
        "weights": file_identity(_weights(encoder, config)) if run is None else f"sha256:{run.sha256}",
        "clip_model": file_identity(config.clip_model) if encoder == "clip" else None,
        **plugin_settings({"encoders": [name]}),
    }
    reads = (tuples.path, *weights_files(config))
    inputs = (tuples,) if run is None else (tuples, run)
    plan = Plan("features", settings, ENCODER_SEED, tuple(map(describe_input, inputs)), reads)
    digest = hashlib.sha256(canonical_json([settings, tuples.sha256])).hexdigest()[:12]
    out = folder / f"features-{name.replace(':', '-')}-{digest}"

    def network() -> Encoder:
        return _encoder(encoder, config, tuples) if run is None else _hidden_layer(run, tuples)

    with folder_lock(folder, wait=True):  # one of several parallel trainings computes the features; the others wait
        return existing_output(out, plan, "refresh") or _compute(tuples, network(), name, plan, out, device)


def _weights(encoder: str, config: TrainConfig) -> str | None:
    return config.clip_weights if encoder == "clip" else config.encoder_weights


def _encoder(encoder: str, config: TrainConfig, tuples: TuplesArtifact) -> Encoder:
    shape, scale = tuples.summary.instance.shape, tuples.summary.instance.scale
    return build_encoder(
        encoder,
        EncoderRequest(
            shape,
            seed=ENCODER_SEED,
            weights=_weights(encoder, config),
            pieces=lambda: (torch.from_numpy(x).float() / scale for x in _training_instances(tuples)),
            clip_model=config.clip_model,
        ),
    )


def _hidden_layer(run: RunArtifact, tuples: TuplesArtifact) -> Encoder:
    """The last hidden layer of a run's network."""
    hint = "Give a run of a network (such as --model mlp) that was trained on instances of this kind, without encoder."
    if run.summary.learner != "network" or run.summary.encoder is not None:
        raise UsageError(f"encoder run:{run.path}: not a network on raw instances", hint=hint)
    require_network(run.summary.model)
    if run.summary.instance != tuples.summary.instance:
        raise UsageError(
            f"encoder run:{run.path}: was trained on instances of shape {run.summary.instance.shape}, but those of "
            f"{tuples.path} have shape {tuples.summary.instance.shape}",
            hint=hint,
        )
    scorer = load_network(run)
    assert isinstance(scorer, Scorer), "a run without encoder has a scorer"
    return Penultimate.of(scorer, tuples.summary.instance.scale)


def _compute(
    tuples: TuplesArtifact, network: Encoder, encoder: str, plan: Plan, out: Path, device: torch.device
) -> Artifact[FeaturesSummary]:
    weights = save_safetensors({name: value.cpu().contiguous() for name, value in network.state_dict().items()})
    log.info("features of %s by %s are computed once and kept in %s", tuples.path, encoder, out)
    with publishing(out, plan, if_exists="refresh") as staging, TemporaryRows(staging.path.parent) as temporary:
        distinct = DistinctInstances(tuples)
        rows = FeatureRows(temporary, distinct)
        for other in others_of_encoder(out.parent, out, plan.config, hashlib.sha256(weights).hexdigest()):
            if taken := rows.take_from(other):
                log.info("features of %d of %d distinct instances are taken from %s", taken, len(distinct), other.path)
        _encode(rows, distinct, network.to(device), tuples.summary.instance.scale, device)
        _write(staging, tuples, rows)
        write_digests(staging, distinct.digests)
        staging.add_bytes(ENCODER_WEIGHTS, weights)
        instance = InstanceSummary(shape=(network.dim,), dtype="float32", scale=1.0, standardised=False, resize=None)
        changed = {"instance": instance, "features": (), "test_labels": False, "encoder": encoder}
        staging.summary = FeaturesSummary(**{**dict(tuples.summary), **changed})
    return open_artifact(out, "features")


def _encode(
    rows: FeatureRows, distinct: DistinctInstances, network: Encoder, scale: float, device: torch.device
) -> None:
    """Compute the features that no other directory has."""
    with torch.inference_mode():
        for raw, numbers in distinct.pieces(rows.known):
            pieces = torch.split(torch.from_numpy(raw), BATCH)
            coded = torch.cat([network(p.to(device).float() / scale).float().cpu() for p in pieces])
            rows.add(numbers, coded.numpy())


def _training_instances(tuples: TuplesArtifact) -> Iterator[NDArray[np.generic]]:
    for name in tuple_shard_names(tuples, "train"):
        yield read_tuple_shard(tuples, name).instances
    for name in unlabeled_shard_names(tuples, "train"):
        yield read_instances(tuples, name)


def _write(staging: Staging, tuples: TuplesArtifact, rows: FeatureRows) -> None:
    """The files of the tuples directory with features in place of instances."""
    for split in ("train", "heldout"):
        for number, name in enumerate(tuple_shard_names(tuples, split)):
            block = read_tuple_shard(tuples, name)
            coded = TupleBlock(rows.of(name), block.offsets, block.counts)
            write_tuple_shards(staging, split, [coded], shard_size=len(block.counts), scale=1.0, first=number)
        for name in unlabeled_shard_names(tuples, split):
            x = rows.of(name)
            write_instances(staging, name, [x], len(x), scale=1.0)
    if tuples.has(BLOCKS):
        staging.carry(tuples, BLOCKS)
    if tuples.has(TEST_INSTANCES):
        x = rows.of(TEST_INSTANCES)
        write_instances(staging, TEST_INSTANCES, [x], len(x), scale=1.0)
