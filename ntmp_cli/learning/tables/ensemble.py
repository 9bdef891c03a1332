"""An ensemble of learners for tables, weighted by out-of-fold count likelihoods; no labels are used.

Every setting of every family (`fits`) scores each tuple by a fit to other blocks. The best setting of a family has the
greatest out-of-fold count likelihood. Families are weighted by how often they are the best under resampled tuples
(pseudo-BMA with the Bayesian bootstrap). These weights are averaged with equal weights of the families that are not
clearly worse: few tuples cannot tell learners apart, and an average loses little.

Families that also learn from the pool are judged by the tuples like all others: a pool that differs from the tuples in
more than its prior misleads them, and they get little weight. Tuples of one class cannot judge, and allow no other
families; out-of-fold rows of the pool then judge as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logit

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.pooled import PooledObjective
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.results import FoldFits
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.fits import (
    BOOSTED,
    BOOSTED_LINEAR,
    FEWEST_ROWS_FOR_TREES,
    LINEAR,
    MODELS,
    ONE_RATE_PENALTIES,
    ONE_RATE_START_PENALTY,
    PENALTIES,
    POOLED,
    PRESENCE_PENALTIES,
    PRESENCE_SPREADS,
    SOFT,
    START_PENALTY,
    WITHOUT_POOL,
    Fit,
    Setting,
    fits,
    settings_of,
    tree_kinds,
)
from ntmp_cli.learning.tables.linear import NO_LINE, LinearModel, oriented_line
from ntmp_cli.learning.tables.scorer import TableScorer, WeightedTrees
from ntmp_cli.learning.tables.spread import CLEAR_GAIN, spread_of

FOLDS = 5
RESAMPLES = 200
# A learner is clearly worse if its loss exceeds the smallest by so many standard errors of the difference.
CLEARLY_WORSE = 2.0


class Split(NamedTuple):
    """Training tuples of a fit, and validation tuples, which judge it."""

    training: Ints
    judged: Ints


@dataclass(frozen=True)
class FittedTable:
    """The classifier, and the out-of-fold scores that it was chosen by."""

    scorer: TableScorer
    """Log-odds at the rate of the tuples."""
    judged: Ints
    """The validation tuples, ascending."""
    scores: Floats
    """Out-of-fold log-odds of their concatenated members."""
    pool_scores: Floats
    """Log-odds of the pool by the same fits, a share by each; the fit to all tuples would be more confident."""
    spread: float
    nll: float
    """Mean −log P(observation) of the validation tuples; if all are of one class, mean −log of the terms of Eq. 46b."""
    learners: Sequence[dict[str, Any]]
    folds: FoldFits | None = None


class _Learner(NamedTuple):
    """The best setting of a family, with its out-of-fold scores and losses."""

    setting: Setting
    line: LinearModel
    """From the scores of fits to log-odds."""
    scores: Floats
    losses: Floats
    pool_scores: Floats
    fits: tuple[Fit, ...]


class _OutOfFold(NamedTuple):
    """Out-of-fold scores, and the fit of every split that gave them."""

    members: Floats
    """Of the concatenated members of the validation tuples."""
    pool: Floats
    fits: tuple[Fit, ...] = ()


def fit_table(
    data: TableData, model: str, rng: np.random.Generator, splits: Sequence[Split] | None = None
) -> FittedTable:
    """The weighted average of the families' best learners.

    By default the learners are cross-fitted to choose among them, then fitted to all tuples. Given `splits` replace the
    folds; the final fit is then to the training tuples of all splits.
    """
    _require_two_classes(data)
    cross_fitting = folds(data, rng) if splits is None else splits
    if data.one_class and len(cross_fitting) == 1:  # then only the pool is divided into folds
        cross_fitting = [*cross_fitting] * FOLDS
    spread = 0.0 if data.one_class else cross_fitted_spread(data, cross_fitting)
    # The pool needs folds too, and the pooled likelihood has no random intercepts.
    pooled = len(data.pool_rows) > 0 and len(cross_fitting) > 1 and spread == 0
    families = _families(data, model, pooled=pooled)
    judged = np.unique(np.concatenate([split.judged for split in cross_fitting]))
    judge = _Judge(data.subset(judged), spread, data)
    scores = _out_of_fold(data, _all_settings(data, families, cross_fitting), cross_fitting, spread)
    learners = [_best(family, scores, judge) for family in families]
    losses = np.stack([learner.losses for learner in learners])
    if judge.weights is not None:
        losses = losses * judge.weights
    shares = ensemble_weights(losses, rng, judge.blocks)
    whole = data if splits is None else data.subset(np.unique(np.concatenate([s.training for s in splits])))
    chosen = [learner.setting for learner in learners]
    fitted = dict(fits(whole, data, chosen, spread, data.pool_rows if pooled else None))
    mean_scores, pool_scores = (
        np.sum([share * getattr(a, which) for share, a in zip(shares, learners, strict=True)], axis=0)
        for which in ("scores", "pool_scores")
    )
    weighted = list(zip(shares, learners, strict=True))
    by_fold = [_average(data, [(share, a.fits[k], a.line) for share, a in weighted]) for k in range(len(cross_fitting))]
    return FittedTable(
        scorer=_average(data, [(share, fitted[a.setting], a.line) for share, a in weighted]),
        judged=judged,
        scores=mean_scores,
        pool_scores=pool_scores,
        spread=spread,
        nll=float(judge.losses(_OutOfFold(mean_scores, pool_scores)).mean()),
        learners=[_facts(share, a) for share, a in weighted],
        folds=fold_fits(cross_fitting, by_fold if len(by_fold) > 1 else ()),
    )


def fold_fits(splits: Sequence[Split], scorers: Sequence[TableScorer] = ()) -> FoldFits | None:
    """Which fit scored which validation tuple; None if a tuple was validated twice, or in its own training."""
    judged = np.concatenate([split.judged for split in splits])
    if len(np.unique(judged)) < len(judged) or any(np.isin(s.judged, s.training).any() for s in splits):
        return None
    fold = np.repeat(np.arange(len(splits)), [len(split.judged) for split in splits])
    return FoldFits(tuple(scorers), fold[np.argsort(judged)])


def _require_two_classes(data: TableData) -> None:
    """Refuse tuples that may all be of one class, unless a pool of known prior can be compared with them."""
    observed = data.observed
    positives, members = observed.rate * observed.instances, observed.instances
    if 0.5 <= positives <= members - 0.5 or (data.one_class and len(data.pool_rows)):
        return
    if data.one_class:
        raise NotIdentifiableError(
            "all tuple instances are of one class, so nothing tells the classes apart",
            hint="Give an unlabeled pool and its class prior, which must differ clearly from the rate of the tuples; "
            "or use tuples with 0 < m < n, or of several rates.",
        )
    raise NotIdentifiableError(
        "what is recorded of the tuples is likeliest if all their instances are of one class",
        hint="Add tuples with fewer and with more positives, such as some that are known to have none.",
    )


def _families(data: TableData, model: str, *, pooled: bool) -> list[str]:
    """The families of a model that these tuples can fit, and, with the pool, those that use both."""
    if data.one_class:
        return [POOLED[family] for family in _with_rows(data, MODELS[model], len(data.pool_rows)) if family in POOLED]
    unusable = {SOFT, BOOSTED} if data.one_rate else set()
    alone = _with_rows(data, [family for family in MODELS[model] if family not in unusable], 0)
    if not pooled:
        return alone or [LINEAR]
    # With the pool, trees start from a constant only: those from a linear fit differ little, and take as long.
    both = [family for family in MODELS[model] if family in (LINEAR, BOOSTED)]
    return [*(alone or [LINEAR]), *(POOLED[family] for family in _with_rows(data, both, len(data.pool_rows)))]


def _with_rows(data: TableData, families: Sequence[str], pool: int) -> list[str]:
    """Drop trees if there are too few rows for two leaves in every fold, or no column to split."""
    if len(data.x) + pool >= FEWEST_ROWS_FOR_TREES and np.ptp(data.x, axis=0).any():
        return [*families]
    return [family for family in families if family not in (BOOSTED, BOOSTED_LINEAR)]


def _all_settings(data: TableData, families: Sequence[str], splits: Sequence[Split]) -> list[Setting]:
    rows = min(int(data.observed.sizes[split.training].sum()) for split in splits)
    more = rows + len(data.pool_rows) * (len(splits) - 1) // len(splits)
    weak = data.one_rate and not data.one_class
    penalties, start = (ONE_RATE_PENALTIES, ONE_RATE_START_PENALTY) if weak else (PENALTIES, START_PENALTY)
    settings: list[Setting] = []
    for family in families:
        # With the pool there are more rows: one kind of trees and half as many stages limit the time.
        coarse = family in WITHOUT_POOL and not data.one_class
        kinds = tree_kinds(data, more if family in WITHOUT_POOL else rows)
        settings.extend(settings_of(family, kinds[-1:] if coarse else kinds, penalties, start, coarse=coarse))
    return settings


class _Judge:
    """Negative log-likelihoods of observations under out-of-fold scores at the rate of the tuples.

    Observations are those of tuples; if tuples are of one class, also that rows are in the pool (Eq. 46b).
    """

    def __init__(self, judging: TableData, spread: float, everything: TableData) -> None:
        self._data, self._rate = judging, everything.weighted_rate
        self._pool = everything.pool_rows if everything.one_class else None
        self.objective = judging.objective(spread)

    def losses(self, scores: _OutOfFold) -> Floats:
        """−log P of every tuple, and of every pool row that judges."""
        if self._pool is None:
            return -self.objective.log_prob(scores.members)
        z, pooled = np.concatenate([scores.members, scores.pool[self._pool]]), self._pooled
        return -pooled.log_prob(z + float(logit(pooled.rate) - logit(self._rate)))

    @cached_property
    def _pooled(self) -> PooledObjective:
        assert self._pool is not None
        return self._data.pooled_objective(len(self._pool))

    @property
    def weights(self) -> Floats | None:
        weights = self._data.weights
        if weights is None or self._pool is None:
            return weights
        return np.concatenate([weights, np.ones(len(self._pool))])

    @property
    def blocks(self) -> Ints | None:
        blocks = self._data.blocks
        if blocks is None or self._pool is None:
            return blocks
        return np.concatenate([blocks, int(blocks.max()) + 1 + np.arange(len(self._pool))])


def ensemble_weights(losses: Floats, rng: np.random.Generator, blocks: Ints | None = None) -> Floats:
    """Weights of learners from their losses per tuple (C, T): pseudo-BMA weights, averaged with equal ones (Eq. 44).

    Learners whose mean loss clearly exceeds the smallest have no share of the equal half. Blocks are resampled whole.
    """
    if blocks is not None:
        codes = np.unique(blocks, return_inverse=True)[1]
        losses = np.stack([np.bincount(codes, row) for row in losses])
    tuples = losses.shape[1]
    resampled = rng.dirichlet(np.ones(tuples), size=RESAMPLES) * tuples
    evidence = -resampled @ losses.T
    evidence = np.exp(evidence - evidence.max(axis=1, keepdims=True))
    weights: Floats = (evidence / evidence.sum(axis=1, keepdims=True)).mean(axis=0)
    excess = losses - losses[losses.mean(axis=1).argmin()]
    contends = excess.mean(axis=1) <= CLEARLY_WORSE * excess.std(axis=1) / np.sqrt(tuples)
    shrunk: Floats = (weights + contends / contends.sum()) / 2
    return shrunk


def folds(data: TableData, rng: np.random.Generator, number: int = FOLDS) -> list[Split]:
    """Folds: every tuple is validated once; no block is divided."""
    tuples = len(data.observed)
    blocks = np.arange(tuples) if data.blocks is None else np.unique(data.blocks, return_inverse=True)[1]
    units = int(blocks.max()) + 1
    if units == 1:  # a single block cannot be divided
        return [Split(np.arange(tuples), np.arange(tuples))]
    fold = rng.permutation(np.arange(units) % number)[blocks]
    return [Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in np.unique(fold)]


def _best(family: str, scores: dict[Setting, _OutOfFold], judge: _Judge) -> _Learner:
    losses = {s: judge.losses(z) for s, z in scores.items() if s.family == family}
    setting = min(losses, key=lambda s: np.average(losses[s], weights=judge.weights))
    members, pool, split_fits = scores[setting]
    if family != SOFT:
        return _Learner(setting, NO_LINE, members, losses[setting], pool, split_fits)
    # Soft labels make scores too small: recalibration by the counts corrects that.
    line = oriented_line(members, judge.objective)
    z = line.scores(members[:, None])
    return _Learner(setting, line, z, -judge.objective.log_prob(z), line.scores(pool[:, None]), split_fits)


def _facts(share: float, learner: _Learner) -> dict[str, Any]:
    setting = learner.setting
    facts = {"learner": setting.family, "weight": float(share), "nll": float(learner.losses.mean())}
    if setting.trees is None:
        return {**facts, "penalty": setting.penalty}
    return {**facts, "leaves": setting.trees.leaves, "stages": setting.stages}


def _average(data: TableData, weighted: Sequence[tuple[float, Fit, LinearModel]]) -> TableScorer:
    """One linear score of raw features plus weighted trees."""
    standardise = data.standardisation
    bias, weight = 0.0, np.zeros(data.x.shape[1])
    trees = []
    for share, fit, line in weighted:
        slope = float(line.weight[0])
        bias += share * (slope * fit.linear.bias + line.bias)
        weight = weight + share * slope * fit.linear.weight
        if fit.trees is not None:
            trees.append(WeightedTrees(share * slope, fit.trees, fit.stages))
    raw = weight / standardise.scale
    return TableScorer(raw, float(bias - raw @ standardise.centre), tuple(trees))


def _out_of_fold(
    data: TableData, settings: Sequence[Setting], splits: Sequence[Split], spread: float
) -> dict[Setting, _OutOfFold]:
    """Out-of-fold scores of members and pool by setting; the fit of each split scores a share of the pool.

    Fits that use the pool are not trained on that share.
    """
    pool = np.empty((0, data.x.shape[1])) if data.unlabeled is None else data.unlabeled
    x, members = np.concatenate([data.x, pool]), len(data.x)
    scores = {setting: np.full(len(x), np.nan) for setting in settings}
    kept_fits: dict[Setting, list[Fit]] = {setting: [] for setting in settings}
    fold = np.arange(len(pool)) % len(splits)
    fold[data.pool_rows] = np.arange(len(data.pool_rows)) % len(splits)  # equal shares of the rows that fits use
    for number, split in enumerate(splits):
        rows = np.concatenate([data.rows(split.judged), members + np.flatnonzero(fold == number)])
        judged = x[rows]
        standardised = data.standardisation(judged)
        others = data.pool_rows[fold[data.pool_rows] != number]
        for setting, fit in fits(data.subset(split.training), data, settings, spread, others):
            scores[setting][rows] = fit.scores(judged, standardised)
            kept_fits[setting].append(fit)
    kept = data.rows(np.concatenate([split.judged for split in splits]))
    return {setting: _OutOfFold(z[kept], z[members:], tuple(kept_fits[setting])) for setting, z in scores.items()}


def cross_fitted_spread(data: TableData, splits: Sequence[Split]) -> float:
    """The spread of the random intercepts of tuples, by cross-fitted linear models (Eq. 46)."""
    if data.observed.some is not None and not data.one_rate:
        return _presence_spread(data, splits)
    setting = Setting(LINEAR, START_PENALTY)

    def scores_under(spread: float) -> Floats:
        return _out_of_fold(data, [setting], splits, spread)[setting].members

    return spread_of(data.subset(np.sort(np.concatenate([split.judged for split in splits]))), scores_under)


def _presence_spread(data: TableData, splits: Sequence[Split]) -> float:
    """The same for tuples of which only the presence of a positive member is known.

    They have no counts whose residuals could be examined. A spread shrinks slopes, so every spread is judged with its
    best penalty.
    """
    judging = data.subset(np.sort(np.concatenate([split.judged for split in splits])))
    settings = [Setting(LINEAR, penalty) for penalty in PRESENCE_PENALTIES]

    def value(spread: float) -> float:
        objective = judging.objective(spread)
        found = _out_of_fold(data, settings, splits, spread)
        return max(objective.value_and_gradient(scores.members)[0] for scores in found.values())

    values = {spread: value(spread) for spread in PRESENCE_SPREADS}
    best = max(values, key=values.__getitem__)
    return best if 2 * (values[best] - values[0.0]) > CLEAR_GAIN else 0.0
