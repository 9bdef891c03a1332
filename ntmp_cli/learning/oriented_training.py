"""A training with a test of its orientation.

The count likelihood has a second local optimum with the classes exchanged. The evidence for the orientation comes from
data that a network was not trained on, because a network can distinguish its training tuples from U whatever their
classes are. The held-out tuples come first. If they are not certain, all training tuples and all of U follow, scored by
prior-free networks of the other tuples. If these are not certain either, or contradict the network, the network is
flipped and trained again without warm-up. In the orientation with more evidence, the network with the most probable
counts is kept.
"""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from ntmp_cli.learning.cross_fitting import score_fold, with_other_folds
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.lengths import with_length
from ntmp_cli.learning.loop import Checkpoints, Environment, State, restore_result, result_state
from ntmp_cli.learning.method import HeldoutScores, methods
from ntmp_cli.learning.methods.count import Count
from ntmp_cli.learning.models import Scorer, snapshot
from ntmp_cli.learning.network_prior import SHARED
from ntmp_cli.learning.orientation_evidence import (
    CERTAIN,
    UNDECIDED,
    CountFits,
    Evidence,
    OrientationTest,
    Trust,
    require_agreement,
    require_certainty,
)
from ntmp_cli.learning.prior_free import prior_free_training
from ntmp_cli.learning.results import EpochRecord, Trained, TrainingResult, score_heldout
from ntmp_cli.learning.resuming import require_finished
from ntmp_cli.learning.trainer import Training, assemble, finished, train_scorer
from ntmp_cli.learning.training_data import Batching, orientation_sample, training_folds, training_shares
from ntmp_cli.tuple_source import TupleSource

log = logging.getLogger(__name__)

# Where a state of what follows the first training keeps its result.
FIRST = "first"
# Networks trained on fewer tuples or unlabeled instances are uninformative.
FEWEST = 20
FOLDS = 2


class Decision(NamedTuple):
    """The trained network to keep, whether to flip it, and the evidence for this orientation."""

    kept: int
    flipped: bool
    evidence: Evidence
    first_side: bool
    """Whether that is the side of the first network."""


@dataclass
class Judgement:
    """Evidence for the orientation: held-out data scored by every trained network, and cross-fitted folds.

    Folds have the orientation of the first network. If nothing was held out (`unseen` is False), the networks are
    compared by their training tuples, which are no evidence for the orientation.
    """

    test: OrientationTest
    unseen: bool
    warmed_up: bool = False
    """Whether a warm-up chose the side of the first network, which takes more than weak evidence to leave."""
    starts: list[HeldoutScores] = field(default_factory=list)
    folds: list[HeldoutScores] = field(default_factory=list)

    def decision(self, trust: Trust | None = None) -> Decision:
        """The side with more evidence; on it the network, or mirrored network, whose counts are most probable."""
        test, starts = self.test, self.starts
        same_side = [same_orientation(starts[0], start) for start in starts]
        fits = [
            fit if same else fit.exchanged() for fit, same in zip(map(test.count_fits, starts), same_side, strict=True)
        ]
        # The pool as the network sees it whose counts are most probable, whatever its sign.
        best = int(np.argmax([max(fit.as_is, fit.mirrored) for fit in fits]))
        pool = starts[best] if same_side[best] else mirrored(starts[best], test.shift)
        heldout, counts = ([pool], reduce(CountFits.better, fits)) if self.unseen else ([], CountFits(0.0, 0.0, 0.0))
        evidence = test.evidence(
            [*heldout, *self.folds], reduce(CountFits.plus, map(test.count_fits, self.folds), counts)
        )
        other = evidence.trusted(trust).z < (-UNDECIDED if self.warmed_up else 0.0)
        kept = int(np.argmax([fit.mirrored if other else fit.as_is for fit in fits]))
        return Decision(kept, same_side[kept] == other, evidence.mirrored() if other else evidence, not other)


@dataclass(frozen=True)
class _AfterFirst:
    """Checkpoints of what follows the first training: every state carries its result."""

    checkpoints: Checkpoints
    first: State
    resumes: bool = True

    def save(self, state: State) -> None:
        self.checkpoints.save({**(state if self.resumes else {}), FIRST: self.first})

    def load(self) -> State | None:
        state = self.checkpoints.load() if self.resumes else None
        return {k: v for k, v in state.items() if k != FIRST} or None if state is not None and FIRST in state else None

    def due(self) -> bool:
        return self.resumes and self.checkpoints.due()


def train_oriented(training: Training) -> Trained:
    """Train. Methods by the count likelihood get the orientation with more evidence and its z, or an error."""
    source, processes = training.source, training.environment.processes
    config = with_length(training.config, source.instance, source.task)
    training = replace(training, config=config)
    method = methods.get(config.method)(config, source.task)
    if not isinstance(method, Count):
        return train_scorer(training)
    options, task, first_rank = method.options, source.task, processes.rank == 0
    test = method.orientation_test(prior_is_known=training.prior_is_known)
    judgement = Judgement(test, source.heldout() is not None, method.warms_up)
    starts = [_first_start(method, training)]

    def decide() -> Decision:
        if first_rank:
            judgement.starts.extend(_scored(start, training) for start in starts[len(judgement.starts) :])
        chosen = processes.broadcast(judgement.decision(options.trust) if first_rank else None)
        assert chosen is not None, "the first rank decides"
        require_agreement(chosen.evidence, test, options)
        return chosen

    chosen = decide()
    # A trusted prior has oriented the network by its risk, but for tuples that are half positive the sign may be free.
    open_question = options.trust != "prior" or task.symmetric
    if open_question and not chosen.evidence.settled and _can_be_folded(source):
        log.info("the orientation is uncertain by held-out tuples (z = %.1f): all tuples decide", chosen.evidence.z)
        if first_rank:
            judgement.folds.extend(_folds(training, starts[0]))
        chosen = decide()
    # A flipped network is as good as a trained one only if the likelihood is symmetric.
    uncertain = chosen.evidence.z < CERTAIN and not method.warms_up
    if open_question and (uncertain or chosen.flipped) and not task.symmetric:
        log.info("training again from the flipped network (z = %.1f)", chosen.evidence.z)
        starts.append(train_scorer(_from_other_side(training, starts[0], test.shift)))
        chosen = decide()
    z = chosen.evidence.trusted(options.trust).z
    require_certainty(z, test, options, warmed_up=method.warms_up and chosen.first_side)
    kept = starts[chosen.kept]
    return replace(_flipped(kept, method, source) if chosen.flipped else kept, orientation_z=z)


def same_orientation(one: HeldoutScores, other: HeldoutScores) -> bool:
    """Whether two networks have the same orientation: their scores are positively correlated."""
    a, b = (np.concatenate([scores.tuple_scores, scores.unlabeled_scores]) for scores in (one, other))
    return bool((a - a.mean()) @ (b - b.mean()) >= 0)


def mirrored(scores: HeldoutScores, centre: float) -> HeldoutScores:
    """Those of the flipped network."""
    inside, outside = 2 * centre - scores.tuple_scores, 2 * centre - scores.unlabeled_scores
    return replace(scores, tuple_scores=inside, unlabeled_scores=outside)


def _first_start(method: Count, training: Training) -> Trained:
    """The first training, or its result where a checkpoint of what follows has it."""
    saved = training.environment.checkpoints.load()
    if saved is None or FIRST not in saved:
        return train_scorer(training)
    job, outcome, epochs = assemble(method, training), TrainingResult(), training.config.epochs
    assert epochs is not None, "a training has a length"
    test_rows = len(job.test) if training.environment.processes.rank == 0 else None
    require_finished(saved[FIRST], snapshot(job.model), epochs, test_rows)
    restore_result(saved[FIRST], outcome)
    return finished(job, outcome)


def _from_other_side(training: Training, first: Trained, centre: float) -> Training:
    """The same without warm-up, from the flipped network."""
    config, environment = training.config, training.environment
    start = copy.deepcopy(first.scorer)
    assert isinstance(start, Scorer), "a network is flipped"
    start.flip(centre)
    settings = config.settings.model_copy(update={"warmup": "none", "teacher": None})
    return replace(
        training,
        config=config.model_copy(update={"settings": settings}),
        initial_weights=snapshot(start),
        environment=replace(environment, checkpoints=_AfterFirst(environment.checkpoints, result_state(first.outcome))),
    )


def _can_be_folded(source: TupleSource) -> bool:
    tuples, blocks = sum(tuples for _, _, tuples in source.task.strata), source.blocks()
    divisible = blocks is None or len(np.unique(blocks[:tuples])) >= FOLDS
    return divisible and min(tuples, source.task.unlabeled) >= FEWEST


def _folds(training: Training, first: Trained) -> list[HeldoutScores]:
    """Training tuples and U by networks of the other fold, at the prior of the first network and on its side."""
    config, source, environment = training.config, training.source, training.environment
    noise: float = getattr(config.settings, "count_noise", 0.0)
    settings = prior_free_training(source.task, **{name: getattr(config, name) for name in SHARED}, count_noise=noise)
    checkpoints = _AfterFirst(environment.checkpoints, result_state(first.outcome), resumes=False)
    alone = Environment(environment.device, checkpoints, stop=environment.stop)
    shift = rate_shift(config.known_prior(), source.task.rate, source.task.instances)
    folds = []
    for number, fold, rest in with_other_folds(training_folds(source, settings, FOLDS, Batching(Count.batch))):
        network = train_scorer(Training(settings, source, [rest], config.seed + number, environment=alone)).scorer
        ours, theirs = (score_fold(fold, score, noise) for score in (network.score, first.scorer.score))
        scores = HeldoutScores(ours.scores + shift, ours.sizes, ours.counts, ours.unlabeled + shift)
        beside = HeldoutScores(theirs.scores, theirs.sizes, theirs.counts, theirs.unlabeled)
        folds.append(scores if same_orientation(beside, scores) else mirrored(scores, shift))
    return folds


def _scored(trained: Trained, training: Training) -> HeldoutScores:
    """Held-out data; where nothing was held out, the first training tuples."""
    heldout = training.source.heldout()
    if heldout is None:
        heldout = orientation_sample(training_shares(training.source, training.config)[0])
    return score_heldout(trained.scorer, heldout)


def _flipped(trained: Trained, method: Count, source: TupleSource) -> Trained:
    """The same with the classes exchanged, in its scores of the past too."""
    scorer, outcome = trained.scorer, trained.outcome
    assert isinstance(scorer, Scorer), "a network is flipped"
    scorer.flip(method.shift)
    heldout = source.heldout()
    risk = None if heldout is None else method.heldout_risk(score_heldout(scorer, heldout))

    def exchanged(record: EpochRecord) -> EpochRecord:
        scores = None if record.test_scores is None else 2 * method.shift - record.test_scores
        if record.epoch != outcome.selected_epoch:
            return replace(record, test_scores=scores)
        fields = {**record.fields, "heldout_risk": None if risk is None else risk.value, "flipped": True}
        return replace(record, test_scores=scores, fields=fields)

    records = [exchanged(record) for record in outcome.records]
    return replace(trained, outcome=replace(outcome, records=records, best=risk, weights=snapshot(scorer)))
