"""Coverage of the intervals of `ntmp predict --by`: real tables, random groups of 3 to 50 rows, linear and trees.

    python benchmarks/group_intervals.py [--seeds 10] [--tables Mroz Wells] > benchmarks/group_intervals.json

For every table and seed a random half of the rows forms training tuples; the other half forms new groups of the same
sizes. The interval is by cross-fitted scores, as of a run on a table: the share of new groups inside it is printed,
with the mean width beside that of all counts.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from table_data import SOURCES, Ints, task

from ntmp_cli.config import TrainConfig
from ntmp_cli.evaluation.group_counts import count_interval, residual_limits
from ntmp_cli.learning.groups import rate_shift
from ntmp_cli.learning.tables.training import train_table
from ntmp_cli.tuple_source import ArraySource

SMALLEST, LARGEST = 3, 50
CONFIDENCE = 0.9
# Of the tables with random groups, those with enough rows for a hundred tuples.
TABLES = ("Mroz", "Wells", "mifem", "Benefits", "CreditCard", "attrition", "mlc_churn", "Default")


def sizes_of(rows: int, rng: np.random.Generator) -> Ints:
    """Sizes of random groups that use up so many rows, but for the last few."""
    sizes: list[int] = []
    while sum(sizes) <= rows - LARGEST:
        sizes.append(int(rng.integers(SMALLEST, LARGEST + 1)))
    return np.array(sizes)


def coverage(name: str, model: str, seed: int) -> tuple[float, float, int]:
    """Share of new groups inside, mean width over that of all counts, and the number of tuples."""
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
    limits = residual_limits(held.tuple_scores - shift, held.sizes, held.counts, spread, CONFIDENCE)
    low, high = count_interval(trained.scorer.score(cells[new_rows]) - shift, new_sizes, spread, limits)
    inside = (low <= true) & (true <= high)
    return float(inside.mean()), float(((high - low + 1) / (new_sizes + 1)).mean()), len(sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--tables", nargs="*", default=list(TABLES), choices=list(SOURCES))
    parser.add_argument("--models", nargs="*", default=["linear", "trees"])
    given = parser.parse_args()
    found: list[dict[str, Any]] = []
    for name in given.tables:
        for model in given.models:
            results = [coverage(name, model, seed) for seed in range(given.seeds)]
            inside, width, tuples = (np.array(column) for column in zip(*results, strict=True))
            error = inside.std(ddof=1) / np.sqrt(len(inside)) if len(inside) > 1 else None
            found.append(
                {
                    "table": name,
                    "model": model,
                    "tuples": float(tuples.mean()),
                    "coverage": float(inside.mean()),
                    "standard_error": None if error is None else float(error),
                    "width": float(width.mean()),
                }
            )
    print(json.dumps({"confidence": CONFIDENCE, "seeds": given.seeds, "results": found}, indent=1))


if __name__ == "__main__":
    main()
