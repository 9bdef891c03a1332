"""Features of a frozen encoder, computed once for a tuples directory and kept beside the runs that use them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save as save_safetensors

from ntmp_cli.artifacts import (
    Artifact,
    Plan,
    Staging,
    describe_input,
    kept_output,
    open_artifact,
    publishing,
    sole_user,
)
from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS, TEST_INSTANCES
from ntmp_cli.artifacts.manifest import canonical_json, sha256_file
from ntmp_cli.artifacts.shards import (
    TupleBlock,
    read_instances,
    read_tuple_shard,
    tuple_shard_names,
    unlabeled_shard_names,
    write_instances,
    write_tuple_shards,
)
from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.encoders import Encoder, build_encoder
from ntmp_cli.settings import Settings

log = logging.getLogger(__name__)

# An encoder that is drawn at random is the same for all seeds of a study.
ENCODER_SEED = 0
BATCH = 256
# Settings that may name a file.
WEIGHTS_FILES = ("encoder_weights", "clip_model", "clip_weights")


def encode_tuples(tuples: Artifact, encoder: str, config: TrainConfig, folder: Path, device: torch.device) -> Artifact:
    """The features of a tuples directory, from `folder` if they lie there already."""
    weights = config.clip_weights if encoder == "clip" else config.encoder_weights
    settings = {
        "encoder": encoder,
        "weights": file_identity(weights),
        "clip_model": file_identity(config.clip_model) if encoder == "clip" else None,
    }
    reads = (tuples.path, *weights_files(config))
    plan = Plan("features", settings, ENCODER_SEED, (describe_input(tuples),), reads)
    digest = hashlib.sha256(canonical_json([settings, tuples.sha256])).hexdigest()[:12]
    out = folder / f"features-{encoder.replace(':', '-')}-{digest}"
    with sole_user(folder, wait=True):  # of several trainings side by side one computes, the others wait for it
        return kept_output(out, plan, "refresh") or _compute(tuples, encoder, weights, config, out, plan, device)


def _compute(
    tuples: Artifact,
    encoder: str,
    weights: str | None,
    config: TrainConfig,
    out: Path,
    plan: Plan,
    device: torch.device,
) -> Artifact:
    shape = tuple(tuples.summary["instance"]["shape"])
    scale = float(tuples.summary["instance"]["scale"])
    network = build_encoder(
        encoder,
        shape,
        seed=ENCODER_SEED,
        weights=weights,
        pieces=lambda: (torch.from_numpy(x).float() / scale for x in _training_instances(tuples)),
        clip_model=config.clip_model,
    ).to(device)
    log.info("features of %s by %s are computed once and kept in %s", tuples.path, encoder, out)
    with publishing(out, plan, if_exists="refresh") as staging:
        _write(staging, tuples, network, scale, device)
        state = {name: value.cpu().contiguous() for name, value in network.state_dict().items()}
        staging.add_bytes(ENCODER_WEIGHTS, save_safetensors(state))
        info = {**tuples.summary, "instance": {"shape": [network.dim], "dtype": "float32", "scale": 1.0}}
        staging.summary = {**info, "encoder": encoder}
    return open_artifact(out)


def file_identity(name: str | None) -> str | None:
    """A file is known by its content, so that no path of this machine enters a manifest."""
    if name is not None and Path(name).is_file():
        return f"sha256:{sha256_file(Path(name))}"
    return name


def weights_files(config: Settings) -> tuple[Path, ...]:
    """The files that a frozen encoder is read from."""
    named = [getattr(config, name) for name in WEIGHTS_FILES]
    return tuple(Path(name) for name in named if name is not None and Path(name).is_file())


def _training_instances(tuples: Artifact) -> Iterator[NDArray[np.generic]]:
    for name in tuple_shard_names(tuples, "train"):
        yield read_tuple_shard(tuples, name).instances
    for name in unlabeled_shard_names(tuples, "train"):
        yield read_instances(tuples, name)


def _write(staging: Staging, tuples: Artifact, network: Encoder, scale: float, device: torch.device) -> None:
    def features(raw: NDArray[np.generic]) -> NDArray[Any]:
        with torch.inference_mode():
            pieces = torch.split(torch.from_numpy(raw), BATCH)
            return torch.cat([network(p.to(device).float() / scale).float().cpu() for p in pieces]).numpy()

    for split in ("train", "heldout"):
        for number, name in enumerate(tuple_shard_names(tuples, split)):
            block = read_tuple_shard(tuples, name)
            coded = TupleBlock(features(block.instances), block.offsets, block.counts)
            write_tuple_shards(staging, split, [coded], shard_size=len(block.counts), scale=1.0, first=number)
        for name in unlabeled_shard_names(tuples, split):
            x = features(read_instances(tuples, name))
            write_instances(staging, name, [x], len(x), scale=1.0)
    if tuples.has(TEST_INSTANCES):
        x = features(read_instances(tuples, TEST_INSTANCES))
        write_instances(staging, TEST_INSTANCES, [x], len(x), scale=1.0)
