"""Tuples by what is known of their counts: strata with a size, a rate, and whether that rate is known (Eq. 110).

Exact counts form a stratum per (n, m). Under noise of mean zero the rate of all tuples of one size is known, as the
mean of what was recorded; single counts are not. Counts that are off by one keep their strata, each with the true
count that is expected behind the recorded one. A range, a rounded or a suppressed count has an expected rate only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.counting.large import LARGE
from ntmp_cli.counting.laws import Exact, Floats, Ints, NoiseLaw, OffByOne, parse_law
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.recorded import Counts, are_records, as_records, as_text, known_counts, laws_of


class CountStratum(NamedTuple):
    """Tuples of n members with the same information about their count."""

    n: int
    m: int | float
    """The exact count, the mean of unbiased records, or the expected count given a range or an uncertain record."""
    tuples: int
    counts: str
    """What was recorded: `2`, `1-3`, or a law such as `gaussian:17`."""
    known: bool
    """Whether m/n is an unbiased estimate of the stratum's rate."""


class CountKnowledge(NamedTuple):
    """Facts about the strata of tuples whose counts are not all exact."""

    counts: tuple[str, ...]
    known: tuple[bool, ...]
    symmetric: bool
    """Whether all would be the same with the classes exchanged."""
    one_rate: bool
    """Whether all tuples may have one rate."""


def strata_of(sizes: Ints, counts: Counts) -> list[CountStratum]:
    """All strata, by size and count."""
    if not are_records(counts):
        pairs, numbers = np.unique(np.stack([sizes, counts]), axis=1, return_counts=True)
        return [CountStratum(int(n), int(m), int(k), str(m), True) for n, m, k in zip(*pairs, numbers, strict=True)]
    likely = CountObservations(sizes, counts).likely  # refuses counts that their law cannot give
    texts, behind = stratum_texts(counts), _behind_off_by_one(sizes, counts)
    unbiased = np.where(np.isnan(behind), known_counts(sizes, counts), behind)
    keys, codes = np.unique(np.rec.fromarrays([sizes, texts]), return_inverse=True)
    strata = []
    for code, (n, text) in enumerate(keys.tolist()):
        which = np.flatnonzero(codes.reshape(-1) == code)
        known = bool(np.isfinite(unbiased[which]).all())
        mean = float(np.clip((unbiased if known else likely)[which].mean(), 0, n))
        is_count = text.decode().isdigit()
        strata.append(CountStratum(int(n), int(mean) if is_count else mean, len(which), text.decode(), known))
    return sorted(strata, key=lambda row: (row.n, row.m, row.counts))


def numbers_behind(seen: Floats, law: NoiseLaw) -> Floats:
    """How many tuples have a true count of 0 … n, from how many have each recorded one (Eq. 100).

    Least squares under the noise, with no number below 0.
    """
    from scipy.optimize import nnls

    solved: Floats = nnls(law.matrix(len(seen) - 1), seen)[0]
    numbers: Floats = solved * (seen.sum() / solved.sum())
    return numbers


def expected_behind(seen: Floats, law: NoiseLaw) -> Floats:
    """E[true count | recorded count] for recorded counts 0 … n, given how often each was recorded.

    If `numbers_behind` excludes a recorded count, all true counts that the noise allows are taken as equally probable.
    """
    matrix = law.matrix(len(seen) - 1)
    joint = matrix * numbers_behind(seen, law)
    joint = np.where(joint.sum(axis=1, keepdims=True) > 1e-9 * seen.sum(), joint, matrix)
    expected: Floats = joint @ np.arange(len(seen)) / joint.sum(axis=1)
    return expected


def _behind_off_by_one(sizes: Ints, counts: Counts) -> Floats:
    """(T,) the true count that is expected of tuples whose recorded one may be off by one; NaN of all others.

    Of large tuples the recorded one: neighbouring counts are about equally probable there.
    """
    expected = np.full(len(sizes), np.nan)
    for law, which in laws_of(counts):
        if not isinstance(law, OffByOne):
            continue
        points = which[(counts["low"][which] == counts["high"][which]) & (sizes[which] <= LARGE)]
        for n in np.unique(sizes[points]).tolist():
            at = points[sizes[points] == n]
            recorded = counts["low"][at].astype(np.int64)
            expected[at] = expected_behind(np.bincount(recorded, minlength=n + 1).astype(np.float64), law)[recorded]
    return expected


def knowledge_of(strata: list[CountStratum], sizes: Ints, counts: Counts) -> CountKnowledge | None:
    """Facts about counts that are not all exact; None if all are exact."""
    if not are_records(counts):
        return None
    observed = CountObservations(sizes, counts)
    return CountKnowledge(
        tuple(row.counts for row in strata), tuple(row.known for row in strata), observed.symmetric, observed.one_rate
    )


def stratum_texts(counts: Counts) -> NDArray[np.bytes_]:
    """(T,) what tuples of one stratum share: the count or range, or the law where it adds noise of mean zero."""
    rows = as_records(counts)
    distinct, codes = np.unique(rows, return_inverse=True)
    texts = [_text(row).encode() for row in distinct]
    return np.array(texts, dtype="S96")[codes.reshape(-1)]


def _text(row: np.void) -> str:
    law = parse_law(row["law"].decode())
    is_noise = not isinstance(law, Exact | OffByOne) and law.unbiased(np.zeros(1), np.ones(1, np.int64)) is not None
    return str(row["law"].decode()) if is_noise and row["low"] == row["high"] else as_text(row)


def stratum_counts(sizes: Ints, counts: Counts, strata: dict[tuple[int, str], float]) -> Floats:
    """(T,) the count m of every tuple's stratum, NaN where the stratum has none: what the risk needs of a tuple."""
    if not are_records(counts):
        return np.asarray(counts, dtype=np.float64)
    keys = zip(sizes.tolist(), stratum_texts(counts).tolist(), strict=True)
    return np.array([strata.get((n, text.decode()), np.nan) for n, text in keys])
