"""Where the likelihood starts: soft labels, the pool against the tuples, or moments within tuples."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from synthetic import Labelled, one_rate, table

from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.learning.tables.data import TableData
from ntmp_cli.learning.tables.starts import start_model


def area(drawn: Labelled) -> float:
    """AUROC of test rows under the start."""
    data = drawn.data
    model = start_model(data, data.standardisation(data.x), data.standardisation)
    return float(roc_auc_score(drawn.test_labels, model.scores(data.standardisation(drawn.test_x))))


def test_different_rates_point_to_the_positive_class() -> None:
    assert area(table(np.full(200, 4))) > 0.75


@pytest.mark.parametrize(("m", "prior"), [(1, 0.8), (3, 0.2)])
def test_one_rate_and_a_pool_point_to_the_positive_class(m: int, prior: float) -> None:
    assert area(one_rate(150, 4, m, pool=600, prior=prior)) > 0.9


def test_where_counts_have_no_sign_the_prior_has() -> None:
    """Tuples that are half positive look the same with the classes exchanged."""
    drawn = one_rate(300, 4, 2, pool=600, prior=0.8)
    assert area(drawn) > 0.9
    assert area(replace(drawn, data=replace(drawn.data, prior=0.2))) < 0.1


def test_a_pool_on_the_other_side_outweighs_few_counts() -> None:
    """600 rows of a pool say more about the sign than 150 counts do."""
    drawn = one_rate(150, 4, 1, pool=600, prior=0.8)
    assert area(replace(drawn, data=replace(drawn.data, prior=0.1))) < 0.1


@pytest.mark.parametrize("seed", range(6))
def test_classes_that_a_line_separates_are_not_exchanged(seed: int) -> None:
    """From a very steep start the penalised fit jumped to the mirrored optimum, though it is far less probable."""
    rng = np.random.default_rng(seed)
    y = np.tile([1, 0, 0], 120)
    x = rng.normal(size=(len(y), 4)) + 2.5 * y[:, None]
    data = TableData(x, CountObservations(np.full(120, 3), np.full(120, 1)))
    model = start_model(data, data.standardisation(x), data.standardisation)
    assert roc_auc_score(y, model.scores(data.standardisation(x))) > 0.99


@pytest.mark.parametrize("m", [1, 4])
def test_one_rate_without_pool_uses_moments_within_tuples(m: int) -> None:
    assert area(one_rate(600, 5, m)) > 0.9


def test_a_pool_at_the_rate_of_the_tuples_is_as_none() -> None:
    drawn = one_rate(600, 4, 1)
    with_pool = one_rate(600, 4, 1, pool=100, prior=0.25)
    assert area(drawn) > 0.9
    assert area(with_pool) > 0.9


def test_tuples_without_positives_start_at_a_constant() -> None:
    data = one_rate(30, 4, 0).data
    model = start_model(data, data.standardisation(data.x), data.standardisation)
    assert np.isfinite(model.bias)
    assert np.isfinite(model.weight).all()


@pytest.mark.parametrize("pool", [0, 2000])
def test_one_positive_among_fifty_is_found(pool: int) -> None:
    """Near a slope of 0 the likelihood is flat, and a search that begins there ends there."""
    drawn = one_rate(200, 50, 1, pool=pool, prior=0.05)
    assert area(drawn) > 0.85
