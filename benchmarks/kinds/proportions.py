"""Label proportions: Adult and MAGIC in bags, by the protocol of Scott and Zhang (2020)."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from benchmarks.kinds.store import NETWORK_CODE, ROOT, TABLE_CODE, Cell, Study
from benchmarks.table_data import (
    ADULT_ROWS,
    BAGS,
    MAGIC_ROWS,
    MAGIC_TRAINING,
    STANDARD,
    Floats,
    Ints,
    Task,
    as_numbers,
    task,
)
from benchmarks.table_rows import labels_boosting, labels_logistic, naive, ours, ours_with_pool

NAME = "proportions"
RANGES = ("low", "high")
DRAWS = 5
PEER = "benchmarks/kinds/llp_learn_peer.py"
PEER_BAGS = (8, 128)
HERE = ("benchmarks/kinds/proportions.py", "benchmarks/table_data.py")
LABELS, LABELS_LINEAR, NAIVE, DEFAULT = "labels: boosting", "labels: logistic regression", "naive", "default (auto)"


def llp_learn(task: Task, kind: str) -> Floats | None:
    """A classifier of llp-learn, in its own environment; None where there is none."""
    if (python := os.environ.get("LLP_LEARN_PYTHON")) is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, scores = Path(folder) / "task.npz", Path(folder) / "scores.npy"
        np.savez(given, x=task.x, ids=task.ids, counts=task.counts, sizes=task.sizes, test_x=task.test_x)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}  # a line per epoch
        subprocess.run([python, ROOT / PEER, kind, given, scores], check=True, **quiet)
        return np.load(scores)


class Row(NamedTuple):
    learn: Callable[..., Floats | None]
    settings: Mapping[str, object] = MappingProxyType({})
    code: tuple[str, ...] = ()
    draws: int = DRAWS


ROWS = {
    LABELS: Row(labels_boosting),
    LABELS_LINEAR: Row(labels_logistic),
    NAIVE: Row(naive),
    DEFAULT: Row(ours, {}, TABLE_CODE),
    "linear": Row(ours, {"model": "linear"}, TABLE_CODE),
    "mlp": Row(ours_with_pool, {"model": "mlp"}, NETWORK_CODE),
    "trees": Row(ours, {"model": "trees"}, TABLE_CODE),
    "llp-bagce": Row(ours_with_pool, {"model": "mlp", "method": "llp-bagce"}, NETWORK_CODE, 2),
    "llp-learn: DLLP": Row(llp_learn, {"kind": "dllp"}, (PEER,), 2),
    "llp-learn: EM": Row(llp_learn, {"kind": "em"}, (PEER,), 2),
    "llp-learn: MixBag": Row(llp_learn, {"kind": "mixbag"}, (PEER,), 2),
}


def name_of(data: str, size: int, side: str) -> str:
    return f"{data}-{size}-{side}"


def cells(quick: bool) -> Iterator[Cell]:
    if quick:
        yield from (Cell(NAME, name_of("magic", 8, "low"), row, 0) for row in (LABELS, NAIVE, DEFAULT))
        return
    for draw in range(DRAWS):
        for side in RANGES:
            for data in STANDARD:
                for size in BAGS:
                    for row, how in ROWS.items():
                        peer = row.startswith("llp-learn")
                        if draw < how.draws and not (peer and size not in PEER_BAGS):
                            yield Cell(NAME, name_of(data, size, side), row, draw)


def measure(cell: Cell) -> dict[str, float] | None:
    data, size, side = cell.data.split("-")
    drawn = task(f"{data}-{size}", cell.draw) if side == "low" else upper_task(data, int(size), cell.draw)
    row = ROWS[cell.row]
    scores = row.learn(drawn, **row.settings)
    return None if scores is None else {"auroc": roc_auc_score(drawn.test_y, scores)}


def upper_task(name: str, size: int, seed: int) -> Task:
    """Bags with proportions uniform in [½, 1]; those in [0, ½] are of table_data.py."""
    rng = np.random.default_rng([seed, 8])
    frame = pd.read_parquet(Path(os.environ["NTMP_DATA"]) / "standard" / f"{name}.parquet")
    y = frame["label"].to_numpy(int)
    x = as_numbers(frame.drop(columns=["label", "split"], errors="ignore"))
    if name == "adult":
        is_training = (frame["split"] == "train").to_numpy()
        training, test = np.flatnonzero(is_training), np.flatnonzero(~is_training)
    else:
        order = rng.permutation(len(x))
        training, test = order[:MAGIC_TRAINING], order[MAGIC_TRAINING:]
    bags = (ADULT_ROWS if name == "adult" else MAGIC_ROWS) // size
    positives = np.rint(rng.uniform(0.5, 1, bags) * size).astype(int)
    members = filled(training, y, positives, size, rng)
    return Task(x[members], y[members], np.full(bags, size), x[test], y[test])


def filled(rows: Ints, y: Ints, positives: Ints, size: int, rng: np.random.Generator) -> Ints:
    """Rows bag by bag, of each class without replacement; shuffled anew when a class is used up."""
    needed = {1: positives, 0: size - positives}
    taken = {}
    for label, numbers in needed.items():
        own = rows[y[rows] == label]
        rounds = [rng.permutation(own) for _ in range(int(numbers.sum()) // len(own) + 1)]
        taken[label] = np.split(np.concatenate(rounds)[: numbers.sum()], np.cumsum(numbers)[:-1])
    return np.concatenate([part for pair in zip(taken[1], taken[0], strict=True) for part in pair])


STUDY = Study(NAME, cells, measure, lambda cell: (*HERE, *ROWS[cell.row].code))
