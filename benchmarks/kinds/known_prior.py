"""Tuples of one rate and a pool of another whose prior is known, the paper's setting: rows of Adult and MAGIC."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score

from benchmarks.kinds.store import TABLE_CODE, Cell, Study
from benchmarks.table_data import MAGIC_TRAINING, STANDARD, Floats, Ints, as_numbers

NAME = "known_prior"
DRAWS = 2
TUPLES, POOL = 1000, 3000
# n, m and the prior of the pool.
DESIGNS = {"3:1, pool at .6": (3, 1, 0.6), "5:2, pool at .7": (5, 2, 0.7)}
LABELS, ALONE, BOTH = "labels: boosting", "default (auto), tuples alone", "default (auto), tuples and pool"
HERE = ("benchmarks/kinds/known_prior.py", "benchmarks/table_data.py")


@dataclass(frozen=True)
class Drawn:
    """Rows of tuples in a row, of the pool, and of the test."""

    x: Floats
    y: Ints
    pool: Floats
    pool_y: Ints
    test_x: Floats
    test_y: Ints


def drawn(name: str, n: int, m: int, prior: float, draw: int) -> Drawn:
    """Positives and negatives of tuples and pool, each row once."""
    rng = np.random.default_rng([draw, 46])
    frame = pd.read_parquet(Path(os.environ["NTMP_DATA"]) / "standard" / f"{name}.parquet")
    x, y = as_numbers(frame.drop(columns=["label", "split"], errors="ignore")), frame["label"].to_numpy(int)
    if name == "adult":
        is_training = (frame["split"] == "train").to_numpy()
        training, test = rng.permutation(np.flatnonzero(is_training)), np.flatnonzero(~is_training)
    else:
        order = rng.permutation(len(x))
        training, test = order[:MAGIC_TRAINING], order[MAGIC_TRAINING:]
    yes, no = (training[y[training] == label] for label in (1, 0))
    of_pool = round(prior * POOL)
    pool = rng.permutation(np.concatenate([yes[:of_pool], no[: POOL - of_pool]]))
    yes, no = yes[of_pool:], no[POOL - of_pool :]
    tuples = min(TUPLES, len(yes) // m, len(no) // (n - m))
    members = np.hstack([yes[: tuples * m].reshape(tuples, m), no[: tuples * (n - m)].reshape(tuples, n - m)])
    rows = rng.permuted(members, axis=1).ravel()
    return Drawn(x[rows], y[rows], x[pool], y[pool], x[test], y[test])


def measure(cell: Cell) -> dict[str, float]:
    from ntmp_cli.classifier import NTMPClassifier

    name, _, design = cell.data.partition(" ")
    n, m, prior = DESIGNS[design]
    rows = drawn(name, n, m, prior, cell.draw)
    if cell.row == LABELS:
        x, y = np.concatenate([rows.x, rows.pool]), np.concatenate([rows.y, rows.pool_y])
        scores = HistGradientBoostingClassifier(random_state=0).fit(x, y).decision_function(rows.test_x)
    else:
        tuples = len(rows.x) // n
        more = {"unlabeled": rows.pool, "prior": prior} if cell.row == BOTH else {}
        model = NTMPClassifier().fit(rows.x, np.repeat(np.arange(tuples), n), np.full(tuples, m), **more)
        scores = model.decision_function(rows.test_x)
    return {"auroc": roc_auc_score(rows.test_y, scores)}


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for data in STANDARD[:1] if quick else STANDARD:
            for design in [*DESIGNS][:1] if quick else DESIGNS:
                for row in (LABELS, ALONE, BOTH):
                    yield Cell(NAME, f"{data} {design}", row, draw)


STUDY = Study(NAME, cells, measure, lambda cell: HERE if cell.row == LABELS else (*HERE, *TABLE_CODE))
