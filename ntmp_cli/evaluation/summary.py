"""Rows of single runs to groups over seeds: mean, spread, confidence interval and range of each metric."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypedDict

from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.resampling import Limits, intervals_by_size


class RowLabels(TypedDict):
    """Labels of a row: the setting that runs share if they differ only in their seed, and the metric."""

    dataset: str
    tuples: str
    n: int | None
    m: int | None
    prior: float
    method: str
    is_oracle: bool
    """Whether the method sees true labels: then it is an upper bound, never ranked or compared."""
    variant: str
    metric: str


class Row(RowLabels):
    """One metric of one run; the value is None (or nan) where the metric is undefined."""

    seed: int
    tuples_seed: int | None
    value: float | None
    run: str


class SummaryRow(RowLabels):
    """A group over its seeds; `undefined` of the `seeds` have no value and are left out of the rest.

    The limits are those of the 95 % bootstrap interval of the mean, by percentiles and BCa; None for one seed.
    """

    seeds: int
    undefined: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    ci_low: float | None
    ci_high: float | None
    bca_low: float | None
    bca_high: float | None


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


def t_interval(row: SummaryRow, *, level: float = 0.95) -> tuple[float, float] | None:
    """Student's t interval of the mean over seeds; None for one seed.

    It is the one to show for few seeds: the percentile bootstrap of three values runs from the smallest to the largest
    and covers the mean of a continuous symmetric distribution in 75 % of studies, not in 95. Limits are cut off at 0,
    and at 1 where the metric cannot exceed it.
    """
    from scipy.special import stdtrit

    seeds = row["seeds"] - row["undefined"]
    mean, std = row["mean"], row["std"]
    if seeds < 2 or mean is None or std is None:
        return None
    margin = float(stdtrit(seeds - 1, (1 + level) / 2)) * std / math.sqrt(seeds)
    highest = math.inf if facts_of(row["metric"]).unit == "number" else 1.0
    return max(0.0, mean - margin), min(highest, mean + margin)


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
        # New tuples or a new training: either is another repetition.
        repetition = row["seed"], row.get("tuples_seed")
        if repetition in seeds:
            raise _duplicate(seeds[repetition], row)
        seeds[repetition] = row
    # By seed, so that the order in which runs are given changes no digit of what is resampled.
    members = [
        [seeds[key] for key in sorted(seeds, key=lambda repetition: (repetition[0], repetition[1] or 0))]
        for seeds in groups.values()
    ]
    values = [[value for row in rows if (value := defined(row["value"])) is not None] for rows in members]
    limits = intervals_by_size(values)
    summaries = [_summary(*group) for group in zip(members, values, limits, strict=True)]
    return sorted(summaries, key=lambda group: (*_sort_key(group), metric_order[group["metric"]]))


def _summary(rows: Sequence[Row], values: Sequence[float], limits: Limits) -> SummaryRow:
    """Mean, and standard deviation with S−1 in the denominator: √(Σ(vₛ−v̄)²/(S−1)); None for one seed.

    `statistics` sums exactly, so the order in which runs are given changes no digit.
    """
    return {
        **_labels_of(rows[0]),
        "seeds": len(rows),
        "undefined": len(rows) - len(values),
        "mean": statistics.fmean(values) if values else None,
        "std": statistics.stdev(values) if len(values) > 1 else None,
        "min": min(values, default=None),
        "max": max(values, default=None),
        "ci_low": limits.low,
        "ci_high": limits.high,
        "bca_low": limits.bca_low,
        "bca_high": limits.bca_high,
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
