"""Warnings about imported data that may not be what the user intended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ntmp_cli.counting.recorded import are_records, exact_rows, known_counts
from ntmp_cli.data.user.count_cells import LIKE_SHARES, PASS_KIND, look_like_shares
from ntmp_cli.data.user.grouping import Grouped
from ntmp_cli.data.user.reading import ImportedRows

# At least this many zeros, and no other count below this limit, may mean suppressed counts.
FEW_ZEROS = 5
SUPPRESSED_FROM = 3


def warnings_of(imported: ImportedRows) -> Iterator[str]:
    """All warnings about labels, counts and blocks."""
    if imported.labelled:
        yield f"{imported.labelled:,} rows have a label; each becomes a tuple of one row"
    yield from _of_counts(imported.tuples)
    yield from _of_blocks(imported.tuples)


def _of_counts(tuples: Grouped) -> Iterator[str]:
    """Warnings about missing counts, proportions and suppressed counts."""
    if len(tuples.uncounted):
        yield f"groups without a count are not tuples: their {len(tuples.uncounted):,} rows were put into the pool"
    if look_like_shares(np.diff(tuples.offsets), tuples.counts):
        yield f"{LIKE_SHARES}{PASS_KIND.format('proportions')}"
    counts = known_counts(np.diff(tuples.offsets), tuples.counts)[exact_rows(tuples.counts)]
    positive, zeros = np.unique(counts[counts > 0]), int((counts == 0).sum())
    smallest = int(positive[0]) if len(positive) else 0
    # Small counts that are written as `<6` are not suppressed.
    are_written = are_records(tuples.counts) and bool(
        ((tuples.counts["low"] < tuples.counts["high"]) & (tuples.counts["high"] < smallest)).any()
    )
    if len(positive) >= 3 and smallest >= SUPPRESSED_FROM and zeros >= FEW_ZEROS and not are_written:
        yield (
            f"{zeros:,} tuples have count 0 and none has 1 to {smallest - 1}: if small counts were suppressed, "
            f"pass --count-law suppress:{smallest}"
        )


def _of_blocks(tuples: Grouped) -> Iterator[str]:
    if tuples.blocks and len(set(tuples.blocks)) == 1:
        yield f"all tuples are in block '{tuples.blocks[0]}', and blocks are not divided: no tuples are held out"
