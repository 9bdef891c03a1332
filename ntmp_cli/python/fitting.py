"""How `NTMPClassifier.fit` trains: a learner for tables on all tuples, or a network that sets some aside."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.laws import NoiseLaw
from ntmp_cli.counting.recorded import with_parameters
from ntmp_cli.data.user.grouping import hold_out
from ntmp_cli.errors import UsageError
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.model_choice import is_table_training
from ntmp_cli.learning.results import Trained, score_heldout
from ntmp_cli.learning.tables.law_estimate import LawEstimate, estimate_law
from ntmp_cli.learning.tables.training import law_scoring, scores_without_prior, train_table
from ntmp_cli.tuple_source import ArraySource, HeldoutData, Task


def trained_on(config: TrainConfig, source: ArraySource, estimator: Any, heldout_share: float) -> tuple[Trained, Task]:
    """The configured classifier, and what it was trained on."""
    if is_table_training(config, source.instance):
        return train_table(config, source, estimator), source.task
    if source.tuple_weights is not None:
        raise UsageError(
            f"method {config.method} with model {config.model} does not use sample_weight",
            hint="Use method='count' with model='auto', 'linear' or 'trees', or an estimator.",
        )
    rest = _without_heldout(source, heldout_share, np.random.default_rng(config.seed))
    return _with_network(config, rest), rest.task


def with_estimated_law(config: TrainConfig, source: ArraySource, text: str) -> tuple[ArraySource, LawEstimate]:
    """The counts under the law whose `auto` parameters are estimated by cross-fitted linear scores.

    Labels stay exact.
    """
    scoring = law_scoring(config)

    def under(law: NoiseLaw) -> ArraySource:
        return replace(source, counts=with_parameters(source.counts, law))

    found = estimate_law(text, lambda law: scores_without_prior(scoring, under(law)))
    return under(found.law), found


def require_usable(config: TrainConfig) -> None:
    """Refuse what needs more than vectors and counts; warn of settings without effect."""
    kind = methods.get(config.method)
    if kind.encoder is not None or kind.is_oracle or config.encoder is not None:
        raise UsageError(f"method {config.method} needs more than vectors and counts", hint="Use `ntmp train`.")
    if config.ignored:
        warnings.warn(f"method {config.method} does not use {', '.join(config.ignored)}", UserWarning, stacklevel=3)


def _with_network(config: TrainConfig, source: ArraySource) -> Trained:
    import torch

    from ntmp_cli.learning.network_prior import network_prior
    from ntmp_cli.learning.oriented_training import train_oriented
    from ntmp_cli.learning.trainer import Training

    if not len(source.unlabeled):
        raise UsageError(
            f"model {config.model} with method {config.method} needs unlabeled rows",
            hint="Pass unlabeled=…, or use method='count' with model='auto'.",
        )
    prior = None
    if config.prior is None:
        prior = network_prior(config, source, torch.device("cpu"))
        config = config.model_copy(update={"prior": prior.value})
    trained = replace(train_oriented(Training(config, source, prior_is_known=prior is None)), prior=prior)
    held = source.heldout_data
    return trained if held is None else replace(trained, heldout=score_heldout(trained.scorer, held))


def _without_heldout(source: ArraySource, share: float, rng: np.random.Generator) -> ArraySource:
    """A random share of tuples, block by block, and of U set aside; nothing where any split would be empty."""
    if not 0 <= share < 1:
        raise UsageError(f"heldout_share {share}: expected a share from 0 to below 1")
    x, sizes, counts, pool = source.tuples, source.sizes, source.counts, source.unlabeled
    blocks = np.arange(len(sizes)) if source.tuple_blocks is None else source.tuple_blocks
    _, held_blocks = hold_out(int(blocks.max()) + 1, share, rng)
    inside, outside = hold_out(len(pool), share, rng)
    is_held = np.isin(blocks, held_blocks)
    if is_held.all() or not is_held.any() or not (len(inside) and len(outside)):
        return source
    members = np.repeat(~is_held, sizes)
    heldout = HeldoutData(x[~members], sizes[is_held], counts[is_held], pool[outside])
    return replace(
        source,
        tuples=np.ascontiguousarray(x[members]),
        sizes=sizes[~is_held],
        counts=counts[~is_held],
        unlabeled=pool[inside],
        heldout_data=heldout,
        tuple_blocks=None if source.tuple_blocks is None else np.concatenate([blocks[~is_held], blocks[is_held]]),
    )
