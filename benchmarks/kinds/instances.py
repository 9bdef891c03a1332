"""Multiple instances: Musk1, Musk2 and Elephant, ten-fold over bags; a positive bag is `>=1`, a negative one 0."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.polynomial.hermite_e import hermegauss
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from benchmarks.kinds.store import TABLE_CODE, Cell, Study
from benchmarks.table_data import Floats, Ints

NAME = "instances"
DATA = ("musk1", "musk2", "elephant")
FOLDS, DRAWS = 10, 5
HERE = ("benchmarks/kinds/instances.py",)
# Bag accuracies of Ilse, Tomczak and Welling (2018), Table 1.
PUBLISHED = {
    "attention": (0.892, 0.858, 0.868),
    "gated attention": (0.900, 0.863, 0.857),
    "MI-Net with deep supervision": (0.894, 0.874, 0.872),
    "MI-Kernel": (0.880, 0.893, 0.843),
}


@dataclass(frozen=True)
class Bags:
    """Members bag by bag, and whether a bag has a positive one."""

    x: Floats
    sizes: Ints
    labels: Ints

    def subset(self, which: Ints) -> Bags:
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        rows = np.concatenate([np.flatnonzero(owner == bag) for bag in which])
        return Bags(self.x[rows], self.sizes[which], self.labels[which])

    def statistics(self, *names: str) -> Floats:
        """Statistics of every bag's members side by side."""
        parts = np.split(self.x, np.cumsum(self.sizes)[:-1])
        return np.array([np.concatenate([getattr(part, name)(axis=0) for name in names]) for part in parts])

    def with_statistics(self) -> Bags:
        """Members with the mean, the minimum and the maximum of their bag as further columns."""
        of_bags = self.statistics("mean", "min", "max")
        return Bags(np.hstack([self.x, np.repeat(of_bags, self.sizes, axis=0)]), self.sizes, self.labels)


@lru_cache(3)
def read(name: str) -> Bags:
    frame = pd.read_parquet(Path(os.environ["NTMP_DATA"]) / "standard" / f"{name}.parquet")
    frame = frame.sort_values("bag", kind="stable")
    bags = frame.groupby("bag", sort=True)["bag_label"].agg(["size", "first"])
    x = frame.drop(columns=["bag", "bag_label"]).to_numpy(np.float64)
    return Bags(x, bags["size"].to_numpy(int), bags["first"].to_numpy(int))


def ours(training: Bags, test: Bags, **settings: object) -> Floats:
    """P(at least one positive) of every test bag by `NTMPClassifier`, its intercepts of groups included."""
    from ntmp_cli.classifier import NTMPClassifier

    ids = np.repeat(np.arange(len(training.sizes)), training.sizes)
    counts = [">=1" if label else "0" for label in training.labels]
    model = NTMPClassifier(**settings).fit(training.x, ids, counts)
    # Log-odds of a member of any bag are divided by the temperature; those within a bag have its intercept beside them.
    within = model.decision_function(test.x) * model.temperature_
    return 1 - none_positive(within, test.sizes, model.spread_ or 0.0)


def ours_in_context(training: Bags, test: Bags, **settings: object) -> Floats:
    """The same with statistics of the bag as columns: a member is judged by its own features and by its bag."""
    return ours(training.with_statistics(), test.with_statistics(), **settings)


def none_positive(z: Floats, sizes: Ints, spread: float) -> Floats:
    """Π(1 − σ(z + b)) of every bag, the mean over a normal intercept b of this spread."""
    at, weights = hermegauss(31)
    logs = -np.logaddexp(0, z + spread * at[:, None])
    by_bag = np.exp(np.add.reduceat(logs, np.cumsum(sizes) - sizes, axis=1))
    return weights / weights.sum() @ by_bag


def mean_and_max(training: Bags, test: Bags) -> Floats:
    """Logistic regression on the mean and the maximum of every feature of a bag."""
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))
    names = ("mean", "max")
    return model.fit(training.statistics(*names), training.labels).predict_proba(test.statistics(*names))[:, 1]


def min_max_kernel(training: Bags, test: Bags) -> Floats:
    """A support vector machine on the minimum and the maximum of every feature (the statistic kernel of Gärtner 2002).

    Its width and cost are chosen by folds of the training bags.
    """
    grid = {"svc__C": [1.0, 10.0, 100.0], "svc__gamma": [scale / (2 * training.x.shape[1]) for scale in (0.1, 0.3, 1)]}
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    search = GridSearchCV(make_pipeline(StandardScaler(), SVC()), grid, cv=folds)
    names = ("min", "max")
    distance = search.fit(training.statistics(*names), training.labels).decision_function(test.statistics(*names))
    return 1 / (1 + np.exp(-distance))


class Row(NamedTuple):
    learn: Callable[..., Floats]
    settings: Mapping[str, object] = MappingProxyType({})
    code: tuple[str, ...] = ()


ROWS = {
    "default (auto)": Row(ours, {}, TABLE_CODE),
    "linear": Row(ours, {"model": "linear"}, TABLE_CODE),
    "trees": Row(ours, {"model": "trees"}, TABLE_CODE),
    "linear + statistics of the bag": Row(ours_in_context, {"model": "linear"}, TABLE_CODE),
    "default (auto) + statistics of the bag": Row(ours_in_context, {}, TABLE_CODE),
    "bag-level: logistic regression on mean and max": Row(mean_and_max),
    "bag-level: kernel on min and max": Row(min_max_kernel),
}


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for data in DATA[:1] if quick else DATA:
            for row in ROWS:
                yield Cell(NAME, data, row, draw)


def measure(cell: Cell) -> dict[str, float]:
    """Accuracy and AUROC of bags, each judged by a fit without its fold."""
    bags, row = read(cell.data), ROWS[cell.row]
    scores = np.empty(len(bags.labels))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=cell.draw)
    for training, test in folds.split(bags.labels, bags.labels):
        scores[test] = row.learn(bags.subset(training), bags.subset(test), **row.settings)
    accuracy = float(((scores > 0.5) == (bags.labels == 1)).mean())
    return {"accuracy": accuracy, "auroc": roc_auc_score(bags.labels, scores)}


STUDY = Study(NAME, cells, measure, lambda cell: (*HERE, *ROWS[cell.row].code))
