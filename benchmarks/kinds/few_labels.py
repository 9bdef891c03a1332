"""How many labels are worth how many tuples: random tuples of 8 rows of Adult and MAGIC, beside labelled rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.kinds.store import TABLE_CODE, Cell, Study
from benchmarks.table_data import ADULT_ROWS, MAGIC_ROWS, STANDARD, Floats, Ints, task

NAME = "few_labels"
SIZE, DRAWS = 8, 3
TUPLES, LABELS = (0, 25, 50, 100, 200, 400, 800), (0, 20, 100, 400)
ROWS = {"adult": ADULT_ROWS, "magic": MAGIC_ROWS}
HERE = ("benchmarks/kinds/few_labels.py", "benchmarks/table_data.py", "ntmp_cli/python")


def row_of(labels: int) -> str:
    return f"{labels} labels"


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for data in STANDARD[:1] if quick else STANDARD:
            for tuples in TUPLES[:2] if quick else TUPLES:
                for labels in LABELS[:2] if quick else LABELS:
                    if (tuples or labels) and tuples * SIZE + labels <= ROWS[data]:
                        yield Cell(NAME, f"{data}-{tuples}", row_of(labels), draw)


def measure(cell: Cell) -> dict[str, float]:
    """AUROC of the test rows; without tuples by logistic regression on the labelled rows."""
    from ntmp_cli.classifier import NTMPClassifier

    data, tuples, labels = *cell.data.split("-"), int(cell.row.split()[0])
    drawn = task(f"{data}-{SIZE}", cell.draw)
    # The bags of the protocol have varied proportions; random groups of their rows are what users count.
    order = np.random.default_rng([cell.draw, 13]).permutation(len(drawn.x))
    grouped, single = order[: int(tuples) * SIZE], order[len(order) - labels :]
    if not int(tuples):
        scores = _logistic(drawn.x[single], drawn.y[single], drawn.test_x)
        return {"auroc": roc_auc_score(drawn.test_y, scores)}
    x, y = np.concatenate([drawn.x[grouped], drawn.x[single]]), drawn.y[grouped]
    ids = [*np.repeat(np.arange(int(tuples)), SIZE).tolist(), *[None] * labels]
    known = np.full(len(x), np.nan)
    known[len(grouped) :] = drawn.y[single]
    counts = dict(enumerate(y.reshape(-1, SIZE).sum(axis=1).tolist()))
    model = NTMPClassifier().fit(x, ids, counts, labels=known if labels else None)
    return {"auroc": roc_auc_score(drawn.test_y, model.decision_function(drawn.test_x))}


def _logistic(x: Floats, y: Ints, test_x: Floats) -> Floats:
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=5000)).fit(x, y).decision_function(test_x)


STUDY = Study(NAME, cells, measure, lambda _: (*HERE, *TABLE_CODE))
