"""Counts with noise added for privacy: Adult in random groups of 20, the law known, estimated and ignored."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks.kinds.store import TABLE_CODE, Cell, Study
from benchmarks.table_data import ADULT_ROWS, Floats, Ints, Task, as_numbers

NAME = "noise"
SIZE, DRAWS = 20, 2
LAWS = (
    "exact",
    "gaussian:1",
    "gaussian:2",
    "gaussian:4",
    "gaussian:8",
    "geometric:1",
    "geometric:0.5",
    "geometric:0.25",
)
KNOWN, AUTO, IGNORED = "law known", "auto", "law ignored"
HERE = ("benchmarks/kinds/noise.py", "benchmarks/table_data.py", "ntmp_cli/python")


def cells(quick: bool) -> Iterator[Cell]:
    laws = LAWS[:2] if quick else LAWS
    for draw in range(1 if quick else DRAWS):
        for law in laws:
            for row in (KNOWN,) if law == "exact" else (KNOWN, AUTO, IGNORED):
                yield Cell(NAME, law, row, draw)


def measure(cell: Cell) -> dict[str, float]:
    """AUROC of the test rows; where a law is estimated also its parameter, NaN where it was refused."""
    from ntmp_cli.classifier import NTMPClassifier
    from ntmp_cli.counting.laws import parse_law
    from ntmp_cli.errors import NotIdentifiableError

    rng = np.random.default_rng([cell.draw, 9])
    task, law = random_groups(rng), parse_law(cell.data)
    recorded = np.asarray(law.sample(task.counts, task.sizes, rng), dtype=np.float64)
    name = cell.data.partition(":")[0]
    given = {KNOWN: cell.data, AUTO: f"{name}:auto", IGNORED: "exact"}[cell.row]
    if cell.row == IGNORED:
        recorded = np.clip(np.rint(recorded), 0, SIZE)
    model = NTMPClassifier(count_law=given)
    try:
        model.fit(task.x, task.ids, recorded)
    except NotIdentifiableError:
        return {"refused": 1.0}
    scores = model.decision_function(task.test_x)
    values = {"auroc": roc_auc_score(task.test_y, scores), "log_loss": log_loss(task.test_y, scores)}
    if cell.row == AUTO:
        (low, high) = next(iter(model.count_law_intervals_.values()))
        values |= {"estimate": float(model.count_law_.partition(":")[2]), "low": low, "high": high}
    return values


def log_loss(y: Ints, scores: Floats) -> float:
    """Mean −log P(label): the price of probabilities that are too sure or too unsure."""
    return float(np.logaddexp(0, np.where(y == 1, -scores, scores)).mean())


def random_groups(rng: np.random.Generator) -> Task:
    frame = pd.read_parquet(Path(os.environ["NTMP_DATA"]) / "standard" / "adult.parquet")
    y = frame["label"].to_numpy(int)
    x = as_numbers(frame.drop(columns=["label", "split"]))
    is_training = (frame["split"] == "train").to_numpy()
    groups = ADULT_ROWS // SIZE
    rows = rng.permutation(np.flatnonzero(is_training))[: groups * SIZE]
    return Task(x[rows], y[rows], np.full(groups, SIZE), x[~is_training], y[~is_training])


STUDY = Study(NAME, cells, measure, lambda _: (*HERE, *TABLE_CODE))
