"""Which training tuples form which fold. No torch."""

from __future__ import annotations

import numpy as np

from ntmp_cli.errors import UsageError
from ntmp_cli.tuple_source import Integers, TupleSource


def fold_tuples(source: TupleSource, folds: int) -> list[Integers]:
    """Stored positions of the tuples of every fold, ascending: even shares in stored order, or whole blocks."""
    tuples = sum(rows for _, rows in source.tuple_shards())
    blocks = source.blocks()
    if blocks is None:
        return [np.arange(tuples * fold // folds, tuples * (fold + 1) // folds) for fold in range(folds)]
    _, codes, sizes = np.unique(blocks[:tuples], return_inverse=True, return_counts=True)
    if len(sizes) < folds:
        what = "all training tuples are of one block" if len(sizes) == 1 else f"there are {len(sizes)} blocks of tuples"
        raise UsageError(
            f"{source.name}: {what}, and a block is not divided among the {folds} folds",
            hint="Use fewer folds, at least 2 (--folds), or import without --block-column.",
        )
    fold_of_block, loads = np.empty(len(sizes), np.int64), np.zeros(folds, np.int64)
    # The largest blocks first, each to the fold with the fewest tuples, so that folds are of about even size.
    for block in np.argsort(-sizes, kind="stable"):
        fold_of_block[block] = fold = int(loads.argmin())
        loads[fold] += sizes[block]
    return [np.flatnonzero(fold_of_block[codes] == fold) for fold in range(folds)]
