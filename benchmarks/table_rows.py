"""Rows of docs/tables.md: learners from labels, soft labels and counts, with their AUROC on test rows.

A result is kept in the user's cache folder under a hash of the code, without comments and docstrings, and of the
settings that it depends on, and is computed again only if that changes. The row of llp-learn is measured where
LLP_LEARN_PYTHON names the Python of its environment, see llp_learn_peer.py.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import table_data
from benchmarks.code_hash import code_alone, code_hash
from benchmarks.table_data import Task

Floats = NDArray[np.float64]

ROOT = Path(__file__).resolve().parents[1]
# Not in the working tree: results outlive it, and several trees share them.
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "ntmp-benchmarks" / "tables"
# Code that decides what a learner for tables answers; networks depend on all of `learning`.
TABLE_CODE = ("ntmp_cli/learning/tables", "ntmp_cli/counting")
NETWORK_CODE = ("ntmp_cli/learning", "ntmp_cli/counting")
PEER = "benchmarks/llp_learn_peer.py"
LOGISTIC, BOOSTING, NAIVE, DEFAULT = "labels: logistic regression", "labels: boosting", "naive", "default (auto)"
TOLD = "labels: columns that counts tell"
TREES, NETWORKS = "trees", ("mlp", "mlp (30 epochs)")


def labels_logistic(task: Task) -> Floats:
    return _logistic().fit(task.x, task.y).decision_function(task.test_x)


def labels_told_by_counts(task: Task) -> Floats:
    """The same without columns that no count can tell: those whose values are the same in every group, in some order.

    Counts are sums over the members of a group, so they say nothing about which of its members is which.
    """
    groups = np.split(np.argsort(task.ids, kind="stable"), np.cumsum(task.sizes)[:-1])
    values = [np.sort(task.x[members], axis=0) for members in groups]
    alike = np.array([len({value[:, column].tobytes() for value in values}) == 1 for column in range(task.x.shape[1])])
    told = ~alike if len({*task.sizes.tolist()}) == 1 and not alike.all() else np.ones_like(alike)
    return _logistic().fit(task.x[:, told], task.y).decision_function(task.test_x[:, told])


def labels_boosting(task: Task) -> Floats:
    return HistGradientBoostingClassifier(random_state=0).fit(task.x, task.y).decision_function(task.test_x)


def naive(task: Task) -> Floats:
    """Logistic regression with m/n as the soft label of every member: each row once as positive, once as negative."""
    share = (task.counts / task.sizes)[task.ids]
    twice, labels = np.concatenate([task.x, task.x]), np.repeat([1, 0], len(task.x))
    weights = np.concatenate([share, 1 - share])
    model = _logistic().fit(twice, labels, logisticregression__sample_weight=weights)
    return model.decision_function(task.test_x)


def ours(task: Task, **settings: object) -> Floats:
    """`NTMPClassifier` with tuples alone."""
    from ntmp_cli.classifier import NTMPClassifier

    return NTMPClassifier(**settings).fit(task.x, task.ids, task.counts[task.ids]).decision_function(task.test_x)


def ours_with_pool(task: Task, **settings: object) -> Floats:
    """The same for learners that need a pool: the members of the tuples are it, and their rate is the prior."""
    from ntmp_cli.classifier import NTMPClassifier

    model = NTMPClassifier(**settings)
    model.fit(task.x, task.ids, task.counts[task.ids], unlabeled=task.x, prior=float(task.y.mean()))
    return model.decision_function(task.test_x)


def llp_learn(task: Task, script: str) -> Floats | None:
    """The peer, in its own environment; None where there is none."""
    if (python := os.environ.get("LLP_LEARN_PYTHON")) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, scores = Path(folder) / "task.npz", Path(folder) / "scores.npy"
        np.savez(given, x=task.x, ids=task.ids, counts=task.counts, sizes=task.sizes, test_x=task.test_x)
        subprocess.run([python, ROOT / script, given, scores], check=True)
        return np.load(scores)


class Row(NamedTuple):
    """A learner with its settings, and the code that its results depend on."""

    learn: Callable[..., Floats | None]
    settings: Mapping[str, object] = MappingProxyType({})
    code: tuple[str, ...] = ()


ROWS = {
    LOGISTIC: Row(labels_logistic),
    BOOSTING: Row(labels_boosting),
    TOLD: Row(labels_told_by_counts),
    NAIVE: Row(naive),
    DEFAULT: Row(ours, {}, TABLE_CODE),
    "linear": Row(ours, {"model": "linear"}, TABLE_CODE),
    TREES: Row(ours, {"model": "trees"}, TABLE_CODE),
    "EM: HistGradientBoosting": Row(ours, {"model": "sklearn:ensemble.HistGradientBoostingClassifier"}, TABLE_CODE),
    "discriminant": Row(ours_with_pool, {"method": "discriminant"}, NETWORK_CODE),
    NETWORKS[0]: Row(ours_with_pool, {"model": "mlp"}, NETWORK_CODE),
    NETWORKS[1]: Row(ours_with_pool, {"model": "mlp", "epochs": 30}, NETWORK_CODE),
    "llp-learn: EM": Row(llp_learn, {"script": PEER}, (PEER,)),
}


def _logistic() -> object:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000))


class Result(NamedTuple):
    """AUROC of the test rows, and the CPU seconds that learning and scoring took; NaN where not measured."""

    auroc: float
    seconds: float


NOT_MEASURED = Result(float("nan"), float("nan"))
Results = dict[tuple[str, str], list[Result]]
"""By data set and row, one result per seed."""


def measure(names: Iterable[str], seeds: Iterable[int], rows: Iterable[str], *, cached_only: bool = False) -> Results:
    """Every row on every data set; what the cache holds is not computed again, or nothing else is taken."""
    results: Results = {}
    for name in names:
        for seed in seeds:
            for row in rows:
                results.setdefault((name, row), []).append(_result(name, seed, row, cached_only))
        line = ", ".join(f"{row} {number(mean(results[name, row]))}" for row in rows)
        print(f"{name}: {line}", flush=True)
    return results


def _result(name: str, seed: int, row: str, cached_only: bool) -> Result:
    file = CACHE / f"{_key(name, seed, ROWS[row])}.json"
    if file.exists():
        return Result(**json.loads(file.read_text()))
    if cached_only:
        return NOT_MEASURED
    task = table_data.task(name, seed)
    started = sum(os.times()[:4])  # of this process and of those that it waited for
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of constant features, and of settings that a method does not use
        scores = ROWS[row].learn(task, **ROWS[row].settings)
    if scores is None:
        return NOT_MEASURED
    result = Result(float(roc_auc_score(task.test_y, scores)), sum(os.times()[:4]) - started)
    CACHE.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result._asdict()))
    return result


def _key(name: str, seed: int, row: Row) -> str:
    known_by = [name, seed, code_alone(inspect.getsource(row.learn)), dict(row.settings), _digest(row.code)]
    return hashlib.sha256(json.dumps(known_by).encode()).hexdigest()[:32]


@cache
def _digest(paths: tuple[str, ...]) -> str:
    """Hash of the code in these files and folders, and of the data sets' code."""
    return code_hash([Path(table_data.__file__), *(ROOT / path for path in paths)])


def number(value: float, digits: int = 3) -> str:
    return "–" if np.isnan(value) else f"{value:.{digits}f}"


def mean(results: Sequence[Result]) -> float:
    return float(np.mean([result.auroc for result in results])) if results else float("nan")


def overall(results: Results, row: str, names: list[str]) -> float:
    return float(np.mean([mean(results[name, row]) for name in names])) if names else float("nan")
