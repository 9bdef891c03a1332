"""Figures of one run for the report: confusion matrix, histogram of the scores, reliability diagrams."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ntmp_cli.evaluation.calibration import brier_decomposition, equal_mass_bins, equal_width_bins
from ntmp_cli.evaluation.metrics import Scored

HISTOGRAM_BINS = 30
# Share of the scores beyond either end of a histogram; they are counted in its outermost bins.
_BEYOND = 0.005


def decisions_of(scored: Scored) -> dict[str, Any]:
    """Counts of the decision `score > 0`, and a histogram of the scores of each class, whose range includes 0."""
    finite = scored.scores[np.isfinite(scored.scores)]
    low, high = np.quantile(finite, [_BEYOND, 1 - _BEYOND]).tolist() if len(finite) else (0.0, 0.0)
    low, high = min(low, 0.0), max(high, 0.0)
    if not high > low:
        low, high = -1.0, 1.0
    edges = np.linspace(low, high, HISTOGRAM_BINS + 1)
    inside = np.clip(scored.scores, low, high)
    positives, negatives = (np.histogram(inside[chosen], edges)[0] for chosen in (scored.labels, ~scored.labels))
    histogram = {"edges": edges.tolist(), "positives": positives.tolist(), "negatives": negatives.tolist()}
    return {**scored.confusion._asdict(), "histogram": histogram}


def reliability_of(scored: Scored) -> Iterator[dict[str, Any]]:
    """What a reliability diagram shows (Eqs. 70 and 71), per temperature, on the test split as it is and at π."""
    for by, forecasts in scored.forecasts.items():
        for weighting, weights in (("as it is", None), ("at prior", scored.weights_at_prior)):
            if forecasts is None or (weighting == "at prior" and weights is None):
                continue
            bins = equal_width_bins(scored.labels, forecasts.p, weights)
            yield {
                "scaling": by or "none",
                "weighting": weighting,
                "mass": bins.mass.tolist(),
                "confidence": [_or_none(value) for value in bins.confidence.tolist()],
                "frequency": [_or_none(value) for value in bins.frequency.tolist()],
                "equal_mass": {
                    name: values.tolist()
                    for name, values in equal_mass_bins(scored.labels, forecasts.p, weights)._asdict().items()
                },
                "brier": brier_decomposition(scored.labels, forecasts.p, weights)._asdict(),
            }


def warmup_end(history: Sequence[Mapping[str, Any]]) -> int | None:
    """The last epoch whose objective has a warm-up term beside the likelihood; None without a warm-up that ended.

    A term that has no weight is exactly 0. Records of methods without a likelihood have no warm-up.
    """
    last = None
    for record in history:
        if "nll" not in record:
            return None
        terms = [record.get("closed_form", 0.0), *record.get("risk_terms", {}).values()]
        if any(terms):
            last = record["epoch"]
    return None if last is None or last == history[-1]["epoch"] else last


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value
