from __future__ import annotations

import numpy as np
import pytest
from paired_runs import OURS, THEIRS, rows, study
from scipy import stats

from ntmp_cli.evaluation.rankings import friedman_p, rankings
from ntmp_cli.evaluation.summary import summarise


def test_ranks_are_of_means_per_cell_and_lower_is_better_where_it_is() -> None:
    by_method = {(ranking["metric"], ranking["method"]): ranking for ranking in rankings(summarise(study()))}
    assert [by_method["ap", method]["mean_rank"] for method in ("count", "ure", "uu")] == [1, 2, 3]
    assert [by_method["fpr", method]["mean_rank"] for method in ("count", "ure", "uu")] == [3, 2, 1]
    count = by_method["ap", "count"]
    assert (count["best"], count["cells"], by_method["ap", "uu"]["best"]) == (4, 4, 0)


def test_only_cells_with_every_method_are_ranked() -> None:
    runs = [r for r in study() if not (r["method"] == "uu" and r["dataset"] == "mnist")]
    assert {ranking["cells"] for ranking in rankings(summarise(runs))} == {2}
    assert rankings(summarise(rows("count", OURS))) == []
    summary = summarise({**row, "is_oracle": row["method"] == "uu"} for row in study())
    assert {ranking["method"] for ranking in rankings(summary)} == {"count", "ure"}


def test_friedman_agrees_with_scipy_with_ties() -> None:
    rng = np.random.default_rng(2)
    values = rng.integers(0, 4, (9, 4)).astype(float)
    ranks = np.array([stats.rankdata(row) for row in values])
    assert friedman_p(ranks) == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    assert friedman_p(np.full((5, 3), 2.0)) is None
    assert friedman_p(ranks[:1]) is None
    # Two cells and two methods are the fewest: two wins of two are (2 − 0)²/2 = 2 of χ² with one degree of freedom.
    assert friedman_p(np.array([[1.0, 2.0], [1.0, 2.0]])) == pytest.approx(stats.chi2.sf(2, 1))
    assert friedman_p(np.array([[1.0], [1.0], [1.0]])) is None


def test_an_undefined_friedman_test_says_why() -> None:
    one_cell = rankings(summarise(rows("count", OURS) + rows("uu", THEIRS)))
    assert [ranking["friedman_p"] for ranking in one_cell] == [None, None]
    assert {ranking["friedman_undefined"] for ranking in one_cell} == {
        "all methods are in one cell only, and the test compares ranks over cells"
    }
    tied = [row for prior in (0.2, 0.8) for method in ("count", "uu") for row in rows(method, OURS, prior=prior)]
    assert {ranking["friedman_undefined"] for ranking in rankings(summarise(tied))} == {"the methods tie in every cell"}


def test_two_methods_have_a_friedman_test() -> None:
    """scipy refuses two; of two methods the statistic is (wins − losses)²/cells: 9 to 0 in nine cells is 9."""
    priors = [0.1 * k for k in range(1, 10)]
    runs = [row for p in priors for name, v in (("count", 0.9), ("uu", 0.8)) for row in rows(name, [v] * 2, prior=p)]
    ranked = rankings(summarise(runs))
    assert [ranking["friedman_p"] for ranking in ranked] == [pytest.approx(stats.chi2.sf(9, 1))] * 2
    assert {ranking["friedman_undefined"] for ranking in ranked} == {None}
