"""Label proportions on images: FashionMNIST in bags of 16 and 128, odd classes as positives, one network for all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.kinds.image_data import images
from benchmarks.kinds.proportions import filled
from benchmarks.kinds.store import NETWORK_CODE, Cell, Study
from benchmarks.table_data import Floats, Task
from benchmarks.table_rows import labels_logistic, naive, ours_with_pool

NAME = "images"
BAGS, ROWS, DRAWS = (16, 128), 8192, 5
HERE = ("benchmarks/kinds/images.py", "benchmarks/kinds/image_data.py")
LABELS = "labels: the same network"


def labels_network(task: Task) -> Floats:
    """The same network with a label per row: tuples of one row, a pool of the same rows."""
    return ours_with_pool(Task(task.x, task.y, np.ones(len(task.x), int), task.test_x, task.test_y), model="mlp")


LEARNERS = {
    LABELS: labels_network,
    "labels: logistic regression": labels_logistic,
    "naive": naive,
    "mlp": lambda task: ours_with_pool(task, model="mlp"),
    "llp-bagce": lambda task: ours_with_pool(task, model="mlp", method="llp-bagce"),
    "llp-js": lambda task: ours_with_pool(task, model="mlp", method="llp-js"),
}


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for size in BAGS[:1] if quick else BAGS:
            for row in ("naive", "mlp") if quick else LEARNERS:
                yield Cell(NAME, f"fashion-{size}", row, draw)


def measure(cell: Cell) -> dict[str, float]:
    """AUROC of the test images; proportions are uniform in [0, ½]."""
    x, labels, test_x, test_labels = images("FashionMNIST")
    y, size = labels % 2, int(cell.data.partition("-")[2])
    rng = np.random.default_rng([cell.draw, 19])
    positives = np.rint(rng.uniform(0, 0.5, ROWS // size) * size).astype(int)
    rows = filled(rng.permutation(len(x)), y, positives, size, rng)
    task = Task(x[rows], y[rows], np.full(len(positives), size), test_x, test_labels % 2)
    return {"auroc": roc_auc_score(task.test_y, LEARNERS[cell.row](task))}


STUDY = Study(NAME, cells, measure, lambda _: (*HERE, *NETWORK_CODE))
