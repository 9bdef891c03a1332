"""The closed-form discriminant as a teacher: probabilities of single instances, and weights that move U to a prior."""

from __future__ import annotations

import logging

import numpy as np
from scipy.special import expit

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.fitting import fit_data
from ntmp_cli.learning.method import FitData
from ntmp_cli.learning.methods.discriminant import ClosedForm
from ntmp_cli.learning.models import build_scorer
from ntmp_cli.learning.training_data import InstanceTargets, input_normalisation, training_shares
from ntmp_cli.tuple_source import TupleSource

log = logging.getLogger(__name__)


def discriminant_targets(config: TrainConfig, source: TupleSource) -> InstanceTargets:
    """P(y=1) of every training instance by the closed form: given its tuple's count (Eq. 24), or the prior of U."""
    blocks = training_blocks(config, source)
    scores = closed_form(config, source).discriminant(blocks).scores
    law = count_noise(getattr(config.settings, "count_noise", 0.0))
    tuple_probs = [count_posterior(scores(x), CountObservations(n, m, law)) for x, n, m in blocks.tuples()]
    unlabeled_probs = [expit(scores(x)) for x in blocks.unlabeled()]
    return np.concatenate(tuple_probs).astype(np.float32), np.concatenate(unlabeled_probs).astype(np.float32)


def prior_weights(config: TrainConfig, source: TupleSource) -> InstanceTargets:
    """Weights that move U to the training prior π if the prior ρ of U is outside π ± ε₀; otherwise ones.

    U = ρp₊ + (1−ρ)p₋, weighted by q π/ρ + (1−q)(1−π)/(1−ρ) (Eq. 21), is πp₊ + (1−π)p₋ exactly if q(x) is P(y=1|x) at ρ.
    The closed form estimates both ρ and q; ρ by the covariance within tuples (Eq. 37), which does not depend on π.
    Tuple instances keep a weight of one.
    """
    task, blocks, prior = source.task, training_blocks(config, source), config.known_prior()
    margin: float = config.settings.margin  # type: ignore[attr-defined]
    ones = np.ones(task.instances, dtype=np.float32), np.ones(task.unlabeled, dtype=np.float32)
    estimate = None
    if not task.symmetric:
        estimate = closed_form(config, source).discriminant(blocks, trusts_prior=False).prior_estimate
    if estimate is None or not 0 < estimate < 1:
        raise NotIdentifiableError(
            "margin policy 'reweight': the prior of the unlabeled pool cannot be estimated from these tuples",
            hint="Use more tuples with 0 < m < n and n other than 2m, or the margin policy 'resample'.",
        )
    message = f"the prior of the unlabeled pool is {estimate:.3f} by the closed form"
    if abs(estimate - prior) <= margin:
        log.info("%s, within %g ± %g", message, prior, margin)
        return ones
    log.info("%s, not within %g ± %g: its instances are weighted to %g", message, prior, margin, prior)
    at_estimate = closed_form(config.model_copy(update={"prior": estimate}), source)
    scores = at_estimate.discriminant(blocks, trusts_prior=False).scores
    q = np.concatenate([expit(scores(x)) for x in blocks.unlabeled()])
    weights = q * prior / estimate + (1 - q) * (1 - prior) / (1 - estimate)
    return ones[0], (weights / weights.mean()).astype(np.float32)


def closed_form(config: TrainConfig, source: TupleSource) -> ClosedForm:
    """The method `discriminant` at the config's prior."""
    settings = {"method": "discriminant", "prior": config.prior, "normalize": config.normalize, "seed": config.seed}
    noise: float = getattr(config.settings, "count_noise", 0.0)
    return ClosedForm(TrainConfig.model_validate({**settings, "count_noise": noise}), source.task)


def training_blocks(config: TrainConfig, source: TupleSource) -> FitData:
    """Training instances as a network sees them, block by block."""
    (data,) = training_shares(source, config)
    factor, shift = input_normalisation(source, [data], config.normalize)
    scorer = build_scorer("linear", source.instance.shape, factor, shift, config.seed)
    return fit_data(data, scorer, source.heldout())
