"""Summary rows and comparisons as an evaluation holds them, for tests that change one thing at a time."""

from __future__ import annotations

from typing import Any

from scipy import stats

from ntmp_cli.evaluation.comparisons import Comparison
from ntmp_cli.evaluation.summary import SummaryRow


def group(method: str, mean: float | None, metric: str = "accuracy", **changes: Any) -> SummaryRow:
    n, m = changes.get("n", 3), changes.get("m", 1)
    defaults = {
        **{"dataset": "mnist", "tuples": f"{n}:{m}", "n": n, "m": m, "prior": 0.5, "method": method, "variant": ""},
        **{
            "is_oracle": method == "supervised",
            "metric": metric,
            "seeds": 5,
            "undefined": 0,
            "mean": mean,
            "std": 0.01,
            "min": mean,
            "max": mean,
        },
    }
    return SummaryRow(**_interval({**defaults, **changes}))  # type: ignore[typeddict-item]


def _interval(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the 95 % t interval of its mean, unless it has one."""
    seeds, mean, std = row["seeds"] - row["undefined"], row["mean"], row["std"]
    half = None if seeds < 2 or mean is None or std is None else stats.t.ppf(0.975, seeds - 1) * std / seeds**0.5
    limits = (None, None) if half is None else (max(0.0, mean - half), min(1.0, mean + half))
    return {"ci_low": limits[0], "ci_high": limits[1], **row}


def comparison(**changes: Any) -> Comparison:
    """Twelve pairs, all won by `ours`, significantly."""
    defaults = {
        **{"scope": "cell", "dataset": "mnist", "tuples": "3:1", "n": 3, "m": 1, "prior": 0.5, "metric": "accuracy"},
        **{"method": "ours", "variant": "", "reference": "theirs", "reference_variant": "", "cells": 1, "pairs": 12},
        **{"missing": [], "wins": 12, "ties": 0, "losses": 0, "difference": 0.05, "difference_low": 0.04},
        **{"difference_high": 0.06, "p": 0.0005},
        **{"p_exact": True, "smallest_p": 0.0005, "family": "metric", "family_size": 4, "p_holm": 0.002},
        **{"smallest_p_holm": 0.002, "cliff": 0.8, "cliff_low": 0.6, "cliff_high": 0.9, "cliff_word": "large"},
        **{"cliff_all_pairs": 0.7, "cliff_all_pairs_low": 0.5, "cliff_all_pairs_high": 0.8},
    }
    defaults["reference_is_oracle"] = changes.get("reference") == "supervised"
    return Comparison(**{**defaults, **changes})  # type: ignore[typeddict-item]
