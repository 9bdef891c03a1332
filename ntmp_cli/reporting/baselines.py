"""The value of a constant score on a test split: the baseline of a classifier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple


class Baseline(NamedTuple):
    """The value of a constant score, with its name in a legend and its meaning."""

    name: str
    value: float
    meaning: str


def positive_share(decisions: Mapping[str, Any]) -> float:
    """Share of positives in the test split, from the confusion matrix."""
    tp, fp, fn, tn = (decisions[name] for name in ("tp", "fp", "fn", "tn"))
    return float(tp + fn) / float(tp + fp + fn + tn)


def constant_score(metric: str, decisions: Sequence[Mapping[str, Any]]) -> Baseline | None:
    """The baseline of a metric, the mean over test splits; None where a constant score has no fixed value."""
    if metric not in _BASELINES or not decisions:
        return None
    name, value, meaning = _BASELINES[metric]
    return Baseline(name, sum(value(positive_share(each)) for each in decisions) / len(decisions), meaning)


_Share = Callable[[float], float]
_BASELINES: dict[str, tuple[str, _Share, str]] = {
    "accuracy": ("majority class", lambda share: max(share, 1 - share), "always answering the more frequent class"),
    "auroc": ("constant score", lambda _: 0.5, "one score for all instances"),
    "ap": ("constant score", lambda share: share, "one score for all instances"),
}
