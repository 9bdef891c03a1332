"""Tuples of which is only known whether any member is positive: trees, the spread, and what fits start from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score
from synthetic import Floats

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recorded import records
from ntmp_cli.learning.tables import fits
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.ensemble import FittedTable, fit_table

TAU = 4.0


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def presence(x: Floats, sizes: list[int], labels: np.ndarray) -> TableData:
    """Tuples recorded as `>=1` or `0`."""
    some = np.add.reduceat(labels, np.cumsum(sizes) - sizes) > 0
    low, high = np.where(some, 1, 0), np.where(some, sizes, 0)
    return TableData(x, CountObservations(sizes, records(low, high)))


def sizes_of(tuples: int) -> list[int]:
    """Short and long tuples in turns."""
    return np.tile([2, 12], tuples // 2).tolist()


def in_tuples(tuples: int, spread: float, seed: int = 0) -> TableData:
    """Log-odds are a line in two features, and an intercept of the tuple beside them."""
    generator, sizes = rng(seed), sizes_of(tuples)
    x = generator.normal(0, 1, (sum(sizes), 4))
    z = 2 * x[:, 0] - x[:, 1] - 2.5 + np.repeat(generator.normal(0, spread, tuples), sizes)
    return presence(x, sizes, generator.binomial(1, expit(z)))


@pytest.fixture(scope="module")
def natural() -> tuple[TableData, FittedTable]:
    data = in_tuples(120, TAU)
    return data, fit_table(data, "linear", rng())


@pytest.mark.slow
def test_a_spread_of_tuples_is_told_by_some_and_none(natural: tuple[TableData, FittedTable]) -> None:
    """Of independent members long tuples would have a positive one far more often than short ones."""
    _, fitted = natural
    assert fitted.spread in fits.PRESENCE_SPREADS[2:]


@pytest.mark.slow
@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [1, 2])
def test_independent_members_have_no_spread(seed: int) -> None:
    assert fit_table(in_tuples(100, 0.0, seed), "linear", rng()).spread == 0


@pytest.mark.slow
def test_fits_under_a_spread_predict_unseen_tuples_better_than_a_constant(
    natural: tuple[TableData, FittedTable],
) -> None:
    data, fitted = natural
    share = float((data.observed.counts["low"] > 0).mean())
    assert fitted.nll < -(share * np.log(share) + (1 - share) * np.log(1 - share))


@pytest.mark.slow
def test_a_constant_under_a_spread_gives_the_share_of_tuples_with_a_positive(
    natural: tuple[TableData, FittedTable],
) -> None:
    data, _ = natural
    objective = data.objective(TAU)
    fitted, at_rate = fits._constant(data, TAU), fits._constant(data, 0.0)
    assert at_rate.bias == pytest.approx(logit(data.rate))
    assert not fitted.weight.any()
    log_prob = [objective.log_prob(model.scores(data.x)).sum() for model in (fitted, at_rate)]
    assert log_prob[0] > log_prob[1] + 1


@pytest.mark.slow
def test_trees_find_few_positive_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of thirty rows is positive, in a window of one feature: fewer than leaves of exact counts must hold."""
    monkeypatch.setattr(fits, "STAGES", (50, 100))
    generator, sizes = rng(3), sizes_of(60)
    x, test_x = generator.normal(0, 1, (sum(sizes), 5)), generator.normal(0, 1, (2000, 5))
    labels, test_labels = (np.abs(rows[:, 0] - 0.8) < 0.06 for rows in (x, test_x))
    assert labels.sum() < fits.SMALL_TREES.rows_per_leaf
    fitted = fit_table(presence(x, sizes, labels.astype(int)), "trees", rng())
    assert {learner["leaves"] for learner in fitted.learners} == {fits.PRESENCE_TREES.leaves}
    assert roc_auc_score(test_labels, fitted.scorer.score(test_x)) > 0.9
