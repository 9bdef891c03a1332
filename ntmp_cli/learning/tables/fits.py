"""Settings of the learners for tables, and their fits: linear models and boosted trees.

Families: logistic regression on soft labels, the linear count likelihood, trees boosted from a constant and from the
linear fit; the last three also with the pool in the likelihood, if its class prior is known (`counting.pooled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import logit

from ntmp_cli.counting.laws import Floats, Ints
from ntmp_cli.counting.objective import ScoreObjective
from ntmp_cli.learning.tables.boosting import TreeSettings, boost
from ntmp_cli.learning.tables.data import Standardisation, TableData
from ntmp_cli.learning.tables.linear import (
    LinearModel,
    constant_model,
    count_fit,
    count_path,
    recalibrated,
    soft_label_fit,
)
from ntmp_cli.learning.tables.starts import start_model
from ntmp_cli.learning.tables.trees import Trees

PENALTIES = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
# Penalty of the linear fit that trees start from: strong, so that only clear effects remain.
START_PENALTY = 30.0
# Penalties for tuples of one rate: strong ones lead to a constant, where their likelihood is flat.
ONE_RATE_PENALTIES = (1.0, 3.0, 10.0)
ONE_RATE_START_PENALTY = 3.0
SOFT_PENALTY = 1.0
STAGES = (25, 50, 100, 150, 200, 300, 400)
SMALL_TREES = TreeSettings(leaves=4, rows_per_leaf=20, l2=5.0)
FEWEST_ROWS_FOR_TREES = 100
LARGE_TREES = TreeSettings(leaves=16, rows_per_leaf=20, l2=20.0, rate=0.1)
# If only "some" or "none" is known of tuples, the scores of most members have little curvature: with leaves of many
# rows, or a strong l2, they would hardly move.
PRESENCE_TREES = TreeSettings(leaves=8, rows_per_leaf=5, l2=1.0, rate=0.1)
# Candidate spreads for such tuples, each with the best of these penalties: one bit per tuple resolves no more.
PRESENCE_SPREADS = (0.0, 1.0, 2.5, 5.0)
PRESENCE_PENALTIES = (1.0, 3.0, 10.0, 30.0)
# Trees of many leaves are tried from the first number of rows on, trees of few leaves up to the second.
ROWS_FOR_LARGE_TREES, ROWS_FOR_SMALL_TREES = 1200, 4500

SOFT, LINEAR, BOOSTED, BOOSTED_LINEAR = "soft", "linear", "boosted", "boosted-linear"
FAMILIES = (SOFT, LINEAR, BOOSTED, BOOSTED_LINEAR)
# Families by model name.
MODELS = {"auto": FAMILIES, "linear": (LINEAR,), "trees": (BOOSTED, BOOSTED_LINEAR)}
# Families with the pool in their likelihood, by the family without it.
POOLED = {LINEAR: "linear+pool", BOOSTED: "boosted+pool", BOOSTED_LINEAR: "boosted-linear+pool"}
WITHOUT_POOL = {pooled: family for family, pooled in POOLED.items()}


class Setting(NamedTuple):
    """One learner: its family and hyperparameters."""

    family: str
    penalty: float = 0.0
    trees: TreeSettings | None = None
    stages: int = 0

    @property
    def pooled(self) -> bool:
        """Whether the pool is in its likelihood."""
        return self.family in WITHOUT_POOL


class Fit(NamedTuple):
    """The fit of one learner: a linear model of standardised features and, in some families, trees of raw ones."""

    linear: LinearModel
    trees: Trees | None = None
    stages: int = 0

    def scores(self, x: Floats, standardised: Floats) -> Floats:
        scores = self.linear.scores(standardised)
        return scores if self.trees is None else scores + self.trees.scores(x, self.stages)


def tree_kinds(data: TableData, rows: int) -> tuple[TreeSettings, ...]:
    """Candidate tree settings for fits to this many rows."""
    if data.observed.some is not None:
        return (PRESENCE_TREES,)
    small = (SMALL_TREES,) if rows < ROWS_FOR_SMALL_TREES else ()
    return small if rows < ROWS_FOR_LARGE_TREES else (*small, LARGE_TREES)


def settings_of(
    family: str,
    kinds: Sequence[TreeSettings],
    penalties: Sequence[float],
    start_penalty: float,
    *,
    coarse: bool = False,
) -> Iterator[Setting]:
    """All settings of a family; trees start from the linear fit with `start_penalty`, or from a constant.

    Coarse ones are boosted at twice the rate, in half as many stages.
    """
    if coarse:
        kinds, stages_of = [replace(kind, rate=2 * kind.rate) for kind in kinds], [n // 2 for n in STAGES]
    else:
        stages_of = [*STAGES]
    if family == SOFT:
        yield Setting(family, SOFT_PENALTY)
    elif WITHOUT_POOL.get(family, family) == LINEAR:
        yield from (Setting(family, penalty) for penalty in penalties)
    else:
        yield from (Setting(family, start_penalty, kind, stages) for kind in kinds for stages in stages_of)


def linear_path(
    data: TableData, standardise: Standardisation, penalties: Sequence[float], spread: float
) -> dict[float, LinearModel]:
    """Linear fits by penalty. For random groups they shrink to 0, for natural ones to recalibrated soft labels.

    Members of a natural group resemble each other: m/n is then nearly as informative about a member as the likelihood,
    and overfits single tuples less. Without known counts there is no m/n, and fits shrink to 0.
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


def fits(
    data: TableData, everything: TableData, settings: Sequence[Setting], spread: float, pool: Ints | None = None
) -> Iterator[tuple[Setting, Fit]]:
    """Fits of these settings to `data`, standardised as `everything`; what several of them share is computed once.

    Those of pooled families learn from the rows `pool` of the pool as well.
    """
    x = everything.standardisation(data.x)
    alone, pooled = ([s for s in settings if s.pooled == which] for which in (False, True))
    penalties = {s.penalty for s in settings if s.family != SOFT}
    path: dict[float, LinearModel] = {}
    if penalties and (alone or not data.one_class):  # a fold may be of one class although the data are not
        path = linear_path(data, everything.standardisation, sorted(penalties), spread)
    objective = data.objective(spread)
    for setting in alone:
        if setting.family == SOFT:
            yield setting, Fit(soft_label_fit(x, objective, setting.penalty))
    yield from _likelihood_fits(Rows(data.x, x, objective), alone, path, _constant(data, spread))
    if pooled:
        assert pool is not None, "pooled families have a pool"
        yield from _pooled_fits(data, everything, pooled, path, pool)


class Rows(NamedTuple):
    """Rows of a table, raw and standardised, and the objective of their scores."""

    raw: Floats
    standardised: Floats
    objective: ScoreObjective


def _likelihood_fits(
    rows: Rows, settings: Sequence[Setting], path: dict[float, LinearModel], constant: LinearModel
) -> Iterator[tuple[Setting, Fit]]:
    """Linear fits of the path, and trees boosted from them or from a constant."""
    for setting in settings:
        if setting.family in (LINEAR, POOLED[LINEAR]):
            yield setting, Fit(path[setting.penalty])
    boosted = [s for s in settings if s.trees is not None]
    for family, kind in dict.fromkeys((s.family, s.trees) for s in boosted):
        assert kind is not None
        same = [s for s in boosted if (s.family, s.trees) == (family, kind)]
        base = constant if family in (BOOSTED, POOLED[BOOSTED]) else path[same[0].penalty]
        trees = boost(rows.raw, rows.objective, base.scores(rows.standardised), max(s.stages for s in same), kind)
        for setting in same:
            yield setting, Fit(base, trees, setting.stages)


def _pooled_fits(
    data: TableData,
    everything: TableData,
    settings: Sequence[Setting],
    path: dict[float, LinearModel],
    pool: Ints,
) -> Iterator[tuple[Setting, Fit]]:
    """Fits to tuples and pool rows (Eq. 46b), moved from the rate of both to that of all tuples (Eq. 7).

    Linear ones start at the fit to the tuples alone; if all of those are of one class, at a constant.
    """
    assert data.unlabeled is not None
    raw = np.concatenate([data.x, data.unlabeled[pool]])
    x, objective = everything.standardisation(raw), data.pooled_objective(len(pool))
    constant = constant_model(x.shape[1], objective.rate)
    penalties = sorted({s.penalty for s in settings if s.family != POOLED[BOOSTED]})
    if data.one_class:
        pooled_path = dict(count_path(x, objective, penalties, constant))
    else:
        back = constant.bias - float(logit(data.weighted_rate))
        pooled_path = {p: count_fit(x, objective, p, path[p].moved(back)) for p in penalties}
    shift = float(logit(everything.weighted_rate)) - constant.bias
    for setting, fit in _likelihood_fits(Rows(raw, x, objective), settings, pooled_path, constant):
        yield setting, fit._replace(linear=fit.linear.moved(shift))


def _constant(data: TableData, spread: float) -> LinearModel:
    """The log-odds of the rate of the tuples; refitted under a spread, which changes the probability of "some"."""
    constant = constant_model(data.x.shape[1], data.rate)
    if spread == 0 or data.observed.some is None:
        return constant
    fitted = count_fit(np.zeros((len(data.x), 1)), data.objective(spread), 0.0, constant_model(1, data.rate))
    return LinearModel(constant.weight, fitted.bias)
