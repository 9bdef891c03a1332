"""What `GridSearchCV` and `cross_val_score` need: folds of whole tuples, and a score of counts instead of labels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import check_random_state

from ntmp_cli.counting.laws import count_noise
from ntmp_cli.counting.objective import CountObjective
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.errors import UsageError
from ntmp_cli.python.tuple_rows import Ints, TupleRows, read_tuples

# Probabilities of classifiers that were not trained on counts are kept this far from 0 and 1.
EDGE = 1e-6


class TupleKFold(BaseCrossValidator):  # type: ignore[misc]
    """Folds of whole tuples, at random.

    `split` takes y of `count_labels`. Tuples of one block are never divided: blocks are those of y, or the `groups` of
    scikit-learn's tools. Rows without tuple train in every fold and are tested in none.
    """

    def __init__(self, n_splits: int = 5, random_state: int | np.random.RandomState | None = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:
        """(rows to fit, rows to test) of every fold."""
        if y is None:
            raise UsageError("TupleKFold needs the tuples of the rows", hint="Pass y = count_labels(tuples, counts).")
        known = read_tuples(len(y), y, None, groups)
        tuples = known.groups
        blocks = np.arange(len(tuples)) if known.blocks is None else known.blocks
        number = int(blocks.max()) + 1
        if not 2 <= self.n_splits <= number:
            what = "tuples" if known.blocks is None else "blocks"
            raise UsageError(f"n_splits {self.n_splits}: expected 2 to {number}, the number of {what}")
        folds = check_random_state(self.random_state).permutation(np.arange(number) % self.n_splits)[blocks]
        fold_of_row = np.full(len(y), -1)
        fold_of_row[tuples.rows] = np.repeat(folds, tuples.sizes)
        for fold in range(self.n_splits):
            yield np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)


def count_likelihood_score(estimator: Any, X: Any, y: Any) -> float:
    """Mean log P(count) per tuple of a fitted classifier: greater is better, and no label is needed.

    A scorer of scikit-learn (`scoring=count_likelihood_score`), with y of `count_labels`. The last step of a Pipeline
    may be NTMPClassifier or any classifier with probabilities.
    """
    last = estimator
    while hasattr(last, "steps") or hasattr(last, "best_estimator_"):
        last = last.steps[-1][1] if hasattr(last, "steps") else last.best_estimator_
    known = read_tuples(len(y), y, None, law=getattr(last, "count_law_", "exact"))
    groups: TupleRows = known.groups
    if hasattr(last, "tuple_rate_"):
        z = estimator.decision_function(X)[groups.rows] - last.tuple_shift_
        law, spread = count_noise(last.count_noise_), last.spread_ or 0.0
    else:
        z = logit(np.clip(estimator.predict_proba(X)[groups.rows, 1], EDGE, 1 - EDGE))
        law, spread = count_noise(0.0), 0.0
    observed = CountObservations(groups.sizes, known.counts, law)
    return float(CountObjective(observed, spread).log_prob(z).mean())
