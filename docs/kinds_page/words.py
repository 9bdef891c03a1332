"""Numbers, tables and verdicts of docs/kinds-of-counts.md."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from benchmarks.kinds.store import Results

COMMAND = "python -m benchmarks.kinds_of_counts --only"
LABELS, LINEAR_LABELS, DEFAULT = "labels: boosting", "labels: logistic regression", "default (auto)"
DATA = ("adult", "magic")
# How far a goal may be missed by.
NEAR_BEST = 0.005


def number(value: float, digits: int = 3) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def verdicts(stated: Iterable[tuple[str, bool]]) -> str:
    return "".join(f"- {'Held' if holds else '**Not held**'}: {what}\n" for what, holds in stated)


def draws(results: Results, study: str, value: str, rows: Sequence[str] = (), data: Sequence[str] = ()) -> str:
    """How many draws the cells of a study, or of some of its rows or data sets, have: 2, or 1 to 5."""
    numbers = {
        len(found)
        for name in data or results.names(study, "data")
        for row in rows or results.names(study, "row")
        if (found := results.values(study, name, row, value))
    }
    return f"{min(numbers, default=0)}" if len(numbers) < 2 else f"{min(numbers)} to {max(numbers)}"


def with_error(values: Sequence[float]) -> str:
    if not values:
        return "–"
    mean = sum(values) / len(values)
    if len(values) < 2:
        return number(mean)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    return f"{number(mean)} ± {number(math.sqrt(variance / len(values)))}"
