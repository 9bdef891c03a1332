"""Another run as the teacher of a network: probabilities of single instances for the first part of a training."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from ntmp_cli.config import TrainConfig
from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_posterior
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.training_data import InstanceTargets, training_shares
from ntmp_cli.tuple_source import TupleSource


@dataclass(frozen=True)
class Teacher:
    """Scores of raw instances, log-odds at a prior; an instance that occurs several times is scored once."""

    score: Callable[[NDArray[np.generic]], NDArray[np.float64]]
    prior: float
    known: dict[bytes, float] = field(default_factory=dict, repr=False)

    def log_odds(self, raw: NDArray[np.generic], prior: float) -> NDArray[np.float64]:
        """Scores of the instances, moved to another prior."""
        names = [hashlib.blake2b(row, digest_size=16).digest() for row in np.ascontiguousarray(raw)]
        first = {name: row for row, name in enumerate(names) if name not in self.known}
        if first:
            scores = self.score(raw[list(first.values())])
            self.known.update(zip(first, scores.tolist(), strict=True))
        return np.array([self.known[name] for name in names]) + float(logit(prior) - logit(self.prior))


def teacher_targets(config: TrainConfig, source: TupleSource, teacher: Teacher) -> InstanceTargets:
    """P(y=1) of every training instance by the teacher: given its tuple's count (Eq. 24), or at the prior of U.

    A posterior given a range or a noisy count depends on the rate of the tuples: log-odds are moved to it.
    """
    (data,) = training_shares(source, config)
    prior, law = config.known_prior(), count_noise(getattr(config.settings, "count_noise", 0.0))
    at_tuples = rate_shift(prior, source.task.rate, source.task.instances)
    inside, outside = [], []
    for chunk in data.tuple_chunks:
        raw, sizes, counts = chunk.load()
        z = teacher.log_odds(raw, prior) - at_tuples
        inside.append(count_posterior(z, CountObservations(sizes, counts, law)))
    for pool in data.unlabeled_chunks:
        outside.append(expit(teacher.log_odds(pool.load(), prior)))
    return np.concatenate(inside).astype(np.float32), np.concatenate(outside).astype(np.float32)
