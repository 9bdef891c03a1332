"""Several learners of one table, weighted by what cross-fitted counts say of them; no label anywhere.

Families: logistic regression on soft labels, the linear count likelihood, trees boosted from a constant and from the
linear fit. Every setting of every family scores each tuple by a fit that has not seen its block. The best setting of a
family is the one whose out-of-fold count likelihood is greatest; families are weighted by how often they are the best
under resampled tuples (pseudo-BMA with the Bayesian bootstrap), halfway towards equal weights of those that are not
clearly worse: few tuples cannot tell learners apart, and an average loses little.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.learning.tables.boosting import TreeSettings, boost
from ntmp_cli.learning.tables.data import Standardisation, TableData
from ntmp_cli.learning.tables.linear import (
    NO_LINE,
    LinearModel,
    constant_model,
    count_fit,
    count_path,
    oriented_line,
    recalibrated,
    soft_label_fit,
)
from ntmp_cli.learning.tables.scorer import TableScorer, WeightedTrees
from ntmp_cli.learning.tables.spread import CLEAR_GAIN, spread_of
from ntmp_cli.learning.tables.starts import start_model
from ntmp_cli.learning.tables.trees import Trees

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# Of the linear fit that trees start from: strong, so that what it adds is beyond doubt.
START_PENALTY = 30.0
# Of tuples of one rate: their likelihood is flat at a constant, to which strong penalties lead.
ONE_RATE_PENALTIES = (1.0, 3.0, 10.0)
ONE_RATE_START_PENALTY = 3.0
SOFT_PENALTY = 1.0
STAGES = (25, 50, 100, 150, 200, 300, 400)
SMALL_TREES = TreeSettings(leaves=4, rows_per_leaf=20, l2=5.0)
FEWEST_ROWS_FOR_TREES = 100
LARGE_TREES = TreeSettings(leaves=16, rows_per_leaf=20, l2=20.0, rate=0.1)
# Where "some" or "none" is all that is known of tuples, few members are known to be positive, and the scores of most
# have little curvature: leaves of many rows, or a strong l2, would leave them where they start.
PRESENCE_TREES = TreeSettings(leaves=8, rows_per_leaf=5, l2=1.0, rate=0.1)
# Spreads that such tuples choose among, each with the best of these penalties: one bit per tuple tells no more.
PRESENCE_SPREADS = (0.0, 1.0, 2.5, 5.0)
PRESENCE_PENALTIES = (1.0, 3.0, 10.0, 30.0)
# From so many rows on, trees of many leaves are tried, and to so many, trees of few.
ROWS_FOR_LARGE_TREES, ROWS_FOR_SMALL_TREES = 1200, 4500
FOLDS = 5
RESAMPLES = 200
# A learner is clearly worse if its loss exceeds the least by so many standard errors of the difference.
CLEARLY_WORSE = 2.0

SOFT, LINEAR, BOOSTED, BOOSTED_LINEAR = "soft", "linear", "boosted", "boosted-linear"
FAMILIES = (SOFT, LINEAR, BOOSTED, BOOSTED_LINEAR)
# What a model's name stands for.
MODELS = {"auto": FAMILIES, "linear": (LINEAR,), "trees": (BOOSTED, BOOSTED_LINEAR)}


class Setting(NamedTuple):
    """One learner: its family, and what it is fitted with."""

    family: str
    penalty: float = 0.0
    trees: TreeSettings | None = None
    stages: int = 0


class Split(NamedTuple):
    """Tuples that fits learn from, and tuples that judge them."""

    training: Ints
    judged: Ints


@dataclass(frozen=True)
class FittedTable:
    """The classifier, and what it was chosen by."""

    scorer: TableScorer
    """Log-odds at the rate of the tuples."""
    judged: Ints
    """The tuples that judged it, ascending."""
    scores: Floats
    """Of their members in a row, by fits that had not seen them."""
    pool_scores: Floats
    """Of the pool by the same fits, each of a share of it: by the fit to all tuples they would be surer."""
    spread: float
    nll: float
    """Mean −log P(observation) of the judged tuples."""
    learners: Sequence[dict[str, Any]]


class _Fit(NamedTuple):
    """What one learner adds: a linear model of standardised features and, of some families, trees of raw ones."""

    linear: LinearModel
    trees: Trees | None = None
    stages: int = 0

    def scores(self, x: Floats, standardised: Floats) -> Floats:
        scores = self.linear.scores(standardised)
        return scores if self.trees is None else scores + self.trees.scores(x, self.stages)


class _Learner(NamedTuple):
    """The best setting of a family, with what judged it."""

    setting: Setting
    line: LinearModel
    """From the scores of fits to log-odds."""
    scores: Floats
    losses: Floats
    pool_scores: Floats


class _OutOfFold(NamedTuple):
    """Scores by fits that have not seen the tuple."""

    members: Floats
    """Of the judged tuples, in a row."""
    pool: Floats


def fit_table(
    data: TableData, model: str, rng: np.random.Generator, splits: Sequence[Split] | None = None
) -> FittedTable:
    """The weighted average of the families' best learners.

    By default tuples are judged fold by fold and the learners are fitted to all of them; given splits judge instead,
    and the fit is to the tuples that some split learns from.
    """
    families = _families(data, model)
    cross_fitting = folds(data, rng) if splits is None else splits
    spread = cross_fitted_spread(data, cross_fitting)
    judged = np.sort(np.concatenate([split.judged for split in cross_fitting]))
    judging = data.subset(judged)
    rows = min(int(data.observed.sizes[split.training].sum()) for split in cross_fitting)
    settings = list(_settings(families, _tree_kinds(data, rows), one_rate=data.one_rate))
    scores = _out_of_fold(data, settings, cross_fitting, spread)
    learners = [_best(family, scores, judging, spread) for family in families]
    losses = np.stack([learner.losses for learner in learners])
    if judging.weights is not None:
        losses = losses * judging.weights
    shares = ensemble_weights(losses, rng, None if data.blocks is None else data.blocks[judged])
    whole = data if splits is None else data.subset(np.unique(np.concatenate([s.training for s in splits])))
    fits = dict(_fits(whole, data, [learner.setting for learner in learners], spread))
    mean_scores, pool_scores = (
        np.sum([share * getattr(a, which) for share, a in zip(shares, learners, strict=True)], axis=0)
        for which in ("scores", "pool_scores")
    )
    return FittedTable(
        scorer=_average(data, [(share, fits[a.setting], a.line) for share, a in zip(shares, learners, strict=True)]),
        judged=judged,
        scores=mean_scores,
        pool_scores=pool_scores,
        spread=spread,
        nll=float(-judging.objective(spread).log_prob(mean_scores).mean()),
        learners=[_facts(share, a) for share, a in zip(shares, learners, strict=True)],
    )


def _families(data: TableData, model: str) -> list[str]:
    """What a model stands for, less what these tuples cannot teach."""
    unusable = {SOFT, BOOSTED} if data.one_rate else set()
    # A tree needs two leaves' worth of rows in every fold, and something to split.
    if len(data.x) < FEWEST_ROWS_FOR_TREES or not np.ptp(data.x, axis=0).any():
        unusable |= {BOOSTED, BOOSTED_LINEAR}
    usable = [family for family in MODELS[model] if family not in unusable]
    return usable or [LINEAR]


def ensemble_weights(losses: Floats, rng: np.random.Generator, blocks: Ints | None = None) -> Floats:
    """Weights of learners from their losses per tuple (C, T): pseudo-BMA weights, halfway towards equal ones (Eq. 44).

    Learners whose mean loss clearly exceeds the least one have no share of the equal half. Blocks are resampled whole.
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
    """Every tuple judged once; blocks stay whole."""
    tuples = len(data.observed)
    blocks = np.arange(tuples) if data.blocks is None else np.unique(data.blocks, return_inverse=True)[1]
    units = int(blocks.max()) + 1
    if units == 1:  # nothing else can judge it
        return [Split(np.arange(tuples), np.arange(tuples))]
    fold = rng.permutation(np.arange(units) % number)[blocks]
    return [Split(np.flatnonzero(fold != f), np.flatnonzero(fold == f)) for f in np.unique(fold)]


def _best(family: str, scores: dict[Setting, _OutOfFold], judging: TableData, spread: float) -> _Learner:
    objective = judging.objective(spread)
    losses = {s: -objective.log_prob(z.members) for s, z in scores.items() if s.family == family}
    setting = min(losses, key=lambda s: np.average(losses[s], weights=judging.weights))
    members, pool = scores[setting]
    if family != SOFT:
        return _Learner(setting, NO_LINE, members, losses[setting], pool)
    # Blurred labels make scores too small: a line through the counts mends that.
    line = oriented_line(members, objective)
    z = line.scores(members[:, None])
    return _Learner(setting, line, z, -objective.log_prob(z), line.scores(pool[:, None]))


def _facts(share: float, learner: _Learner) -> dict[str, Any]:
    setting = learner.setting
    facts = {"learner": setting.family, "weight": float(share), "nll": float(learner.losses.mean())}
    if setting.trees is None:
        return {**facts, "penalty": setting.penalty}
    return {**facts, "leaves": setting.trees.leaves, "stages": setting.stages}


def _average(data: TableData, weighted: Sequence[tuple[float, _Fit, LinearModel]]) -> TableScorer:
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
    """For every setting the scores of judged members and of the pool, of which every fold's fit scores a share."""
    pool = np.empty((0, data.x.shape[1])) if data.unlabeled is None else data.unlabeled
    x, members = np.concatenate([data.x, pool]), len(data.x)
    scores = {setting: np.full(len(x), np.nan) for setting in settings}
    for number, split in enumerate(splits):
        rows = np.concatenate([data.rows(split.judged), np.arange(members + number, len(x), len(splits))])
        judged = x[rows]
        standardised = data.standardisation(judged)
        for setting, fit in _fits(data.subset(split.training), data, settings, spread):
            scores[setting][rows] = fit.scores(judged, standardised)
    kept = data.rows(np.concatenate([split.judged for split in splits]))
    return {setting: _OutOfFold(z[kept], z[members:]) for setting, z in scores.items()}


def cross_fitted_spread(data: TableData, splits: Sequence[Split]) -> float:
    """The spread of tuples' intercepts beyond what linear fits say of unseen tuples (Eq. 46)."""
    if data.observed.some is not None and not data.one_rate:
        return _presence_spread(data, splits)
    setting = Setting(LINEAR, START_PENALTY)

    def scores_under(spread: float) -> Floats:
        return _out_of_fold(data, [setting], splits, spread)[setting].members

    return spread_of(data.subset(np.sort(np.concatenate([split.judged for split in splits]))), scores_under)


def _presence_spread(data: TableData, splits: Sequence[Split]) -> float:
    """The same of tuples of which is only known whether any member is positive.

    They have no counts whose scatter could be looked at. A spread makes slopes smaller, so that every spread is judged
    with the penalty that suits it.
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


def _tree_kinds(data: TableData, rows: int) -> tuple[TreeSettings, ...]:
    """The kinds of trees that fits to so many rows choose among."""
    if data.observed.some is not None:
        return (PRESENCE_TREES,)
    small = (SMALL_TREES,) if rows < ROWS_FOR_SMALL_TREES else ()
    return small if rows < ROWS_FOR_LARGE_TREES else (*small, LARGE_TREES)


def _settings(families: Sequence[str], kinds: Sequence[TreeSettings], *, one_rate: bool) -> Iterator[Setting]:
    for family in families:
        if family == SOFT:
            yield Setting(family, SOFT_PENALTY)
        elif family == LINEAR:
            yield from (Setting(family, penalty) for penalty in (ONE_RATE_PENALTIES if one_rate else PENALTIES))
        else:
            start = ONE_RATE_START_PENALTY if one_rate else START_PENALTY
            yield from (Setting(family, start, kind, stages) for kind in kinds for stages in STAGES)


def linear_path(
    data: TableData, standardise: Standardisation, penalties: Sequence[float], spread: float
) -> dict[float, LinearModel]:
    """Linear fits by penalty. Of random groups they shrink to 0, of natural ones to recalibrated soft labels.

    Members of a natural group resemble each other: m/n is then nearly as telling of a member as the likelihood, and
    less apt to follow single tuples. Where no count is known there is no m/n, and they shrink to 0.
    """
    x, objective = standardise(data.x), data.objective(spread)
    if data.one_rate:
        # At weights of 0 the gradient is 0: after a penalty that leaves nothing, the path would have no orientation.
        path, model = {}, start_model(data, x, standardise)
        for penalty in sorted({min(PENALTIES), *penalties}):
            path[penalty] = model = count_fit(x, objective, penalty, model)
        return path
    if spread == 0 or data.observed.some is not None:
        return dict(count_path(x, objective, penalties, start_model(data, x, standardise)))
    soft = recalibrated(soft_label_fit(x, objective, SOFT_PENALTY), x, objective)
    return dict(count_path(x, objective, penalties, soft, soft.weight))


def _fits(
    data: TableData, everything: TableData, settings: Sequence[Setting], spread: float
) -> Iterator[tuple[Setting, _Fit]]:
    """Fits of these settings to `data`, standardised as `everything`; what several of them share is computed once."""
    x = everything.standardisation(data.x)
    objective = data.objective(spread)
    penalties = {s.penalty for s in settings if s.family != SOFT}
    path = linear_path(data, everything.standardisation, sorted(penalties), spread) if penalties else {}
    for setting in settings:
        if setting.family == SOFT:
            yield setting, _Fit(soft_label_fit(x, objective, setting.penalty))
        elif setting.family == LINEAR:
            yield setting, _Fit(path[setting.penalty])
    boosted = [s for s in settings if s.trees is not None]
    for family, kind in dict.fromkeys((s.family, s.trees) for s in boosted):
        assert kind is not None
        same = [s for s in boosted if (s.family, s.trees) == (family, kind)]
        base = _constant(data, spread) if family == BOOSTED else path[same[0].penalty]
        trees = boost(data.x, objective, base.scores(x), max(s.stages for s in same), kind)
        for setting in same:
            yield setting, _Fit(base, trees, setting.stages)


def _constant(data: TableData, spread: float) -> LinearModel:
    """The log-odds of the rate of the tuples; under a spread "some" is more probable, or less, than at the rate."""
    constant = constant_model(data.x.shape[1], data.rate)
    if spread == 0 or data.observed.some is None:
        return constant
    fitted = count_fit(np.zeros((len(data.x), 1)), data.objective(spread), 0.0, constant_model(1, data.rate))
    return LinearModel(constant.weight, fitted.bias)
