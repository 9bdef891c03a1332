"""Recorded counts as arrays: whole numbers where every count is exact, else records of a range and a law of noise.

Both kinds of array are sliced, indexed and compared alike, so that code that only carries counts along needs to know
nothing of them. Code that calculates with counts takes `CountObservations`, or refuses what is not exact.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntmp_cli.counting.laws import LABEL, Floats, Ints, NoiseLaw, law_text, parse_law

RECORD = np.dtype([("low", "<f8"), ("high", "<f8"), ("law", "S64")])
"""What was recorded of a tuple lies between low and high, which are equal where it is one number."""
EXACT = b"exact"
# Laws under which a count is the true one.
EXACT_LAWS = (EXACT, LABEL.encode())
_NUMBER = r"(-?[0-9.]+(?:e[+-]?[0-9]+)?)"
AS_TEXT = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?(?: \((.+)\))?")
Counts = NDArray[Any]
"""(T,) whole numbers, or records."""


def records(low: ArrayLike, high: ArrayLike, law: ArrayLike | str = "exact") -> Counts:
    """Records, or whole numbers where all counts are exact."""
    ends = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    rows = np.empty(ends[0].shape, RECORD)
    rows["low"], rows["high"], rows["law"] = *ends, law
    return simplest(rows)


def are_records(counts: NDArray[Any]) -> bool:
    return counts.dtype == RECORD


def simplest(counts: Counts) -> Counts:
    """Records of exact counts as whole numbers; all others unchanged."""
    if not are_records(counts) or not all_exact(counts) or (counts["low"] != np.floor(counts["low"])).any():
        return counts
    return np.asarray(counts["low"], dtype=np.int64)


def all_exact(counts: Counts) -> bool:
    """Whether every count is known."""
    return bool(exact_rows(counts).all())


def exact_rows(counts: Counts) -> NDArray[np.bool_]:
    """(T,) which counts are known."""
    if not are_records(counts):
        return np.ones(len(counts), dtype=np.bool_)
    known: NDArray[np.bool_] = np.isin(counts["law"], EXACT_LAWS) & (counts["low"] == counts["high"])
    return known


def as_records(counts: Counts) -> Counts:
    """The same as records, also where all are exact."""
    if are_records(counts):
        return counts
    rows = np.empty(len(counts), RECORD)
    rows["low"], rows["high"], rows["law"] = counts, counts, EXACT
    return rows


def join(parts: Sequence[Counts]) -> Counts:
    """Counts of several arrays in a row."""
    if any(map(are_records, parts)):
        return np.concatenate([as_records(part) for part in parts])
    return np.concatenate(parts)


def with_law(counts: Counts, law: NoiseLaw) -> Counts:
    """The same records under another law of noise; labels stay exact."""
    rows = as_records(counts).copy()
    rows["law"][rows["law"] != LABEL.encode()] = law_text(law)
    return simplest(rows)


def with_parameters(counts: Counts, law: NoiseLaw) -> Counts:
    """The same records, with new parameters for every law of this name. Exact counts stay exact."""
    rows = as_records(counts).copy()
    text = law_text(law).encode()
    name = text.partition(b":")[0]
    rows["law"][[own.partition(b":")[0] == name for own in rows["law"].tolist()]] = text
    return simplest(rows)


def laws_of(counts: Counts) -> list[tuple[NoiseLaw, Ints]]:
    """Every law of noise with the positions of its tuples."""
    texts, codes = np.unique(as_records(counts)["law"], return_inverse=True)
    return [(parse_law(text.decode()), np.flatnonzero(codes == code)) for code, text in enumerate(texts)]


def known_counts(sizes: Ints, counts: Counts) -> Floats:
    """(T,) numbers whose mean is the true count, NaN where the observation has none: ranges, rounded counts."""
    if not are_records(counts):
        return np.asarray(counts, dtype=np.float64)
    known = np.full(len(counts), np.nan)
    for law, which in laws_of(counts):
        points = which[counts["low"][which] == counts["high"][which]]
        unbiased = law.unbiased(counts["low"][points], sizes[points])
        if unbiased is not None:
            known[points] = unbiased
    return known


def as_text(count: Any) -> str:
    """A recorded count in words: 2, 1-3, 12.4 (gaussian:17)."""
    if not isinstance(count, np.void):
        return str(int(count))
    low, high, law = float(count["low"]), float(count["high"]), count["law"].decode()
    # Whole numbers with all their digits: strata are named by this text.
    first, last = (f"{end:.0f}" if end.is_integer() else f"{end:g}" for end in (low, high))
    ends = first if low == high else f"{first}-{last}"
    return ends if law.encode() in EXACT_LAWS else f"{ends} ({law})"


def parse_recorded(text: str) -> tuple[float, float, str] | None:
    """Low, high and law of a recorded count in words (`as_text`); None for other texts, such as a law alone."""
    found = AS_TEXT.fullmatch(text)
    if found is None:
        return None
    low, high, law = found.groups()
    return float(low), float(high or low), law or EXACT.decode()


def with_labels(counts: Counts, positive: NDArray[np.bool_]) -> Counts:
    """Counts of tuples, then labels of single rows, which no law of noise replaces."""
    labels = as_records(positive.astype(np.int64))
    labels["law"] = LABEL
    return simplest(np.concatenate([as_records(counts), labels]))
