"""The class prior of the pool, estimated by a prior-free network before the final network is trained."""

from __future__ import annotations

import torch

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.groups import usable_rate
from ntmp_cli.learning.loop import Environment
from ntmp_cli.learning.pool_prior import prior_of_pool
from ntmp_cli.learning.prior_free import prior_free_training
from ntmp_cli.learning.results import PoolPrior
from ntmp_cli.learning.trainer import Training, train_scorer
from ntmp_cli.learning.training_data import orientation_sample, training_shares
from ntmp_cli.prior.estimator import ScoredTuples
from ntmp_cli.randomness import stream
from ntmp_cli.tuple_source import TupleSource

# Settings of the training that its prior-free twin shares.
SHARED = (
    *("model", "encoder", "encoder_weights", "clip_model", "clip_weights", "normalize", "precision"),
    *("epochs", "batch_size", "optimizer", "lr", "memory_mb", "seed"),
)


def network_prior(config: TrainConfig, source: TupleSource, device: torch.device) -> PoolPrior:
    """Estimated on the scores of held-out tuples (of training tuples where none were held out) and of the pool."""
    if not source.task.unlabeled:
        return PoolPrior(usable_rate(source.task.rate, source.task.instances), "tuples")
    noise: float = getattr(config.settings, "count_noise", 0.0)
    settings = prior_free_training(source.task, **{name: getattr(config, name) for name in SHARED}, count_noise=noise)
    scorer = train_scorer(Training(settings, source, environment=Environment(device))).scorer
    (data,) = training_shares(source, settings)
    heldout, blocks = source.heldout(), source.blocks()
    held = heldout or orientation_sample(data)
    if blocks is not None:
        blocks = blocks[: len(held.sizes)] if heldout is None else blocks[-len(held.sizes) :]
    z, pool = scorer.score(held.tuples), scorer.score(held.unlabeled)
    scored = ScoredTuples(z, held.sizes, held.counts, pool, noise, blocks=blocks)
    return prior_of_pool(scored, stream(config.seed, "pool-prior"), getattr(config.settings, "assume", None))
