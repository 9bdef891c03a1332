"""Positives and a pool: tuples 1:1 (single rows that are positive) beside unlabeled rows of Adult and MAGIC."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.kinds.store import NETWORK_CODE, TABLE_CODE, Cell, Study
from benchmarks.table_data import STANDARD, Floats, Ints, task

NAME = "positives"
DRAWS = 3
POSITIVES, POOL = 500, 3000
HERE = ("benchmarks/kinds/positives.py", "benchmarks/table_data.py")


@dataclass(frozen=True)
class Drawn:
    positives: Floats
    pool: Floats
    pool_y: Ints
    test_x: Floats
    test_y: Ints

    @property
    def prior(self) -> float:
        return float(self.pool_y.mean())


def ours(drawn: Drawn, **settings: object) -> Floats:
    """`NTMPClassifier` with tuples 1:1, the pool and its prior; features standardised for the networks."""
    from ntmp_cli.classifier import NTMPClassifier

    standardise = StandardScaler().fit(np.concatenate([drawn.positives, drawn.pool]))
    x, pool, test = (standardise.transform(part) for part in (drawn.positives, drawn.pool, drawn.test_x))
    model = NTMPClassifier(**settings)
    model.fit(x, np.arange(len(x)), np.ones(len(x), int), unlabeled=pool, prior=drawn.prior)
    return model.decision_function(test)


def pulearn(drawn: Drawn, name: str, estimator: str) -> Floats | None:
    """A classifier of pulearn around one of scikit-learn; None where it is not installed."""
    if (folder := os.environ.get("PULEARN")) is None:
        return None
    if folder not in sys.path:
        sys.path.append(folder)
    inner: Any = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)),
        "boosting": HistGradientBoostingClassifier(random_state=0),
    }[estimator]
    extra = {"prior": drawn.prior} if name == "NNPUClassifier" else {"estimator": inner}
    model = getattr(importlib.import_module("pulearn"), name)(**extra, random_state=0)
    x, test_x = np.concatenate([drawn.positives, drawn.pool]), drawn.test_x
    if name == "NNPUClassifier":
        standardise = StandardScaler().fit(x)
        x, test_x = standardise.transform(x), standardise.transform(test_x)
    model.fit(x, np.repeat([1, -1], [len(drawn.positives), len(drawn.pool)]))
    return model.predict_proba(test_x)[:, 1]


def labels(drawn: Drawn) -> Floats:
    """Boosting on the labels of positives and pool: the upper bound."""
    x, y = np.concatenate([drawn.positives, drawn.pool]), np.concatenate([np.ones(POSITIVES, int), drawn.pool_y])
    return HistGradientBoostingClassifier(random_state=0).fit(x, y).decision_function(drawn.test_x)


class Row(NamedTuple):
    learn: Callable[..., Floats | None]
    settings: Mapping[str, object] = MappingProxyType({})
    code: tuple[str, ...] = ()


ROWS = {
    "labels: boosting": Row(labels),
    "`count`, default (auto)": Row(ours, {}, TABLE_CODE),
    "`count`, linear": Row(ours, {"model": "linear"}, TABLE_CODE),
    "`count`, trees": Row(ours, {"model": "trees"}, TABLE_CODE),
    "`ure`, mlp": Row(ours, {"method": "ure", "model": "mlp"}, NETWORK_CODE),
    "`ure` clamped, mlp": Row(ours, {"method": "ure", "model": "mlp", "clamp": "abs"}, NETWORK_CODE),
    "`ure`, linear": Row(ours, {"method": "ure", "model": "linear"}, NETWORK_CODE),
    "`discriminant`": Row(ours, {"method": "discriminant"}, NETWORK_CODE),
    "pulearn: Elkan and Noto, logistic regression": Row(
        pulearn, {"name": "ElkanotoPuClassifier", "estimator": "logistic regression"}
    ),
    "pulearn: Elkan and Noto, boosting": Row(pulearn, {"name": "ElkanotoPuClassifier", "estimator": "boosting"}),
    "pulearn: bagging, boosting": Row(pulearn, {"name": "BaggingPuClassifier", "estimator": "boosting"}),
    "pulearn: nnPU, linear": Row(pulearn, {"name": "NNPUClassifier", "estimator": "boosting"}),
}


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for data in STANDARD[:1] if quick else STANDARD:
            for row in ROWS:
                yield Cell(NAME, data, row, draw)


def measure(cell: Cell) -> dict[str, float] | None:
    source = task(f"{cell.data}-8", cell.draw)
    order = np.random.default_rng([cell.draw, 17]).permutation(len(source.x))
    y = source.y[order]
    chosen = order[np.flatnonzero(y == 1)[:POSITIVES]]
    rest = order[~np.isin(order, chosen)][:POOL]
    drawn = Drawn(source.x[chosen], source.x[rest], source.y[rest], source.test_x, source.test_y)
    row = ROWS[cell.row]
    scores = row.learn(drawn, **row.settings)
    return None if scores is None else {"auroc": roc_auc_score(drawn.test_y, scores)}


STUDY = Study(NAME, cells, measure, lambda cell: (*HERE, *ROWS[cell.row].code))
