"""Rows of single runs to groups over seeds: mean, spread, confidence interval and range of each metric."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple, NotRequired, TypedDict

from ntmp_cli.errors import DataError, UsageError
from ntmp_cli.evaluation.intervals import metric_interval


class RunSetting(TypedDict):
    """The setting that runs share if they differ only in their seed."""

    dataset: str
    tuples: str
    n: int | None
    m: int | None
    prior: float
    method: str
    is_oracle: bool
    """Whether the method uses true labels: then it is an upper bound, never ranked or compared."""
    variant: str


class RowLabels(RunSetting):
    """Labels of a row: its setting, and the metric."""

    metric: str


class Row(RowLabels):
    """One metric of one run; the value is None (or nan) where the metric is undefined.

    `gap` is Δ_op = |ᾱ − π̂| of the training.
    """

    seed: int
    tuples_seed: int | None
    value: float | None
    run: str
    gap: NotRequired[float | None]


class SummaryRow(RowLabels):
    """A group over its seeds; `undefined` of the `seeds` have no value and are left out of the rest.

    The limits are those of the 95 % t interval of the mean; None for one seed.
    """

    seeds: int
    undefined: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    ci_low: float | None
    ci_high: float | None
    gap: NotRequired[float | None]
    """Mean Δ_op over the runs."""


class DataCell(NamedTuple):
    """The setting in which methods are compared."""

    dataset: str
    tuples: str
    n: int | None
    m: int | None
    prior: float

    def __str__(self) -> str:
        return f"{self.dataset} {self.tuples} π={self.prior:g}"


def cell_of(row: RowLabels) -> DataCell:
    return DataCell(row["dataset"], row["tuples"], row["n"], row["m"], row["prior"])


def cell_order(cell: DataCell) -> tuple[str, float, float, str, float]:
    """Counts as numbers, so that 3:1 comes before 10:1; mixed specs last."""
    n, m = (math.inf if count is None else count for count in (cell.n, cell.m))
    return cell.dataset, n, m, cell.tuples, cell.prior


def defined(value: float | None) -> float | None:
    """None for both spellings of "undefined"."""
    return None if value is None or math.isnan(value) else value


def value_of(row: Row) -> float | None:
    """The value of a row, None where it is undefined.

    An infinite one is refused: it has no mean with others, and no difference to another infinite one.
    """
    value = defined(row["value"])
    if value is not None and math.isinf(value):
        raise DataError(
            f"{row['run']}: {row['metric']} is infinite, so it cannot be averaged or compared with that of other runs",
            hint=f"Leave the run out, or compute other metrics than {row['metric']} (--metric).",
        )
    return value


def summarise(rows: Iterable[Row]) -> list[SummaryRow]:
    """RowLabels rows over seeds.

    Sorted by data set, tuples ((n,m) as numbers, mixed specs last), prior, method and variant; metrics
    come in the order in which they first appear. Two values for one seed of a group are refused:
    averaging them would count that seed twice.
    """
    groups: dict[tuple[object, ...], dict[tuple[int, int | None], Row]] = {}
    metric_order: dict[str, int] = {}
    for row in rows:
        metric_order.setdefault(row["metric"], len(metric_order))
        seeds = groups.setdefault(tuple(_labels_of(row).values()), {})
        # New tuples or a new training are both a new repetition.
        repetition = row["seed"], row.get("tuples_seed")
        if repetition in seeds:
            raise _duplicate(seeds[repetition], row)
        seeds[repetition] = row
    summaries = [_summary(list(seeds.values())) for seeds in groups.values()]
    return sorted(summaries, key=lambda group: (*_sort_key(group), metric_order[group["metric"]]))


def _summary(rows: Sequence[Row]) -> SummaryRow:
    """Mean, and standard deviation with S−1 in the denominator: √(Σ(vₛ−v̄)²/(S−1)); None for one seed.

    `statistics` sums exactly, so the order in which runs are given changes no digit.
    """
    values = [value for row in rows if (value := value_of(row)) is not None]
    interval = metric_interval(rows[0]["metric"], values)
    gaps = [gap for row in rows if (gap := row.get("gap")) is not None]
    return {
        **_labels_of(rows[0]),
        "seeds": len(rows),
        "undefined": len(rows) - len(values),
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "ci_low": interval.low,
        "ci_high": interval.high,
        "gap": statistics.fmean(gaps) if gaps else None,
    }


def _labels_of(row: RowLabels) -> RowLabels:
    return {
        "dataset": row["dataset"],
        "tuples": row["tuples"],
        "n": row["n"],
        "m": row["m"],
        "prior": row["prior"],
        "method": row["method"],
        "is_oracle": row["is_oracle"],
        "variant": row["variant"],
        "metric": row["metric"],
    }


def _sort_key(group: RowLabels) -> tuple[str, float, float, str, float, str, str]:
    return *cell_order(cell_of(group)), group["method"], group["variant"]


def _duplicate(first: Row, second: Row) -> UsageError:
    if first["run"] == second["run"]:
        return UsageError(f"run {first['run']} is given twice", hint="Name each run once.")
    label = f"{first['method']} {first['variant']}".rstrip()
    return UsageError(
        f"runs {first['run']} and {second['run']} are both seed {first['seed']} of {label} on "
        f"{first['dataset']} {first['tuples']} with prior {first['prior']:g}",
        hint="Leave one of the two out: averaging them would count this seed twice.",
    )
