"""Rows of runs of several methods on the same seeds."""

from __future__ import annotations

from typing import Any

import numpy as np

from ntmp_cli.evaluation.summary import Row


def rows(method: str, values: list[float | None], **changes: Any) -> list[Row]:
    defaults = {"dataset": "digits", "tuples": "3:1", "n": 3, "m": 1, "prior": 0.5, "variant": "", "metric": "ap"}
    defaults["is_oracle"] = False
    return [
        Row(
            **{**defaults, "seed": s, "tuples_seed": s, "method": method, "value": v, "run": f"{method}-{s}", **changes}
        )  # type: ignore[typeddict-item]
        for s, v in enumerate(values)
    ]


OURS, THEIRS = [0.91, 0.93, 0.90, 0.95, 0.92], [0.80, 0.85, 0.91, 0.83, 0.82]


def study() -> list[Row]:
    """Three methods in four cells on two data sets, two metrics."""
    rng = np.random.default_rng(0)
    return [
        row
        for dataset in ("digits", "mnist")
        for prior in (0.2, 0.8)
        for method, level in (("count", 0.9), ("uu", 0.8), ("ure", 0.85))
        for metric in ("ap", "fpr")
        for row in rows(
            method, list(level + 0.03 * rng.standard_normal(5)), dataset=dataset, prior=prior, metric=metric
        )
    ]
