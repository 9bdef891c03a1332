"""Rows of one metric with its spread and interval, and the table of them."""

from __future__ import annotations

from typing import Any

from ntmp_cli.evaluation.summary import SummaryRow
from ntmp_cli.reporting.rendering import Table
from ntmp_cli.reporting.results_table import results_table


def group(method: str, mean: float | None, metric: str = "accuracy", **changes: Any) -> SummaryRow:
    defaults = {
        "dataset": "digits",
        "tuples": "3:1",
        "n": 3,
        "m": 1,
        "prior": 0.5,
        "method": method,
        "is_oracle": method == "supervised",
        "variant": "",
        "metric": metric,
        "seeds": 5,
        "undefined": 5 if mean is None else 0,
        "mean": mean,
        "std": None if mean is None else 0.0031,
        "min": mean,
        "max": mean,
        "ci_low": None if mean is None else mean - 0.01,
        "ci_high": None if mean is None else mean + 0.01,
    }
    return SummaryRow(**{**defaults, **changes})  # type: ignore[typeddict-item]


def table(*rows: SummaryRow, **options: Any) -> Table:
    return results_table(rows, **{"title": "Results", **options})
