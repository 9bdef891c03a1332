"""Ranks of methods in each cell, their mean over cells, and Friedman's test of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.evaluation.comparisons import MethodVariant, method_variant_of
from ntmp_cli.evaluation.metrics import facts_of
from ntmp_cli.evaluation.ranks import average_ranks
from ntmp_cli.evaluation.significance import DECIMALS
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of


class Ranking(TypedDict):
    """A method's mean rank (1 is best) in one metric over the cells that every ranked method is in.

    `friedman_p` tests whether the methods differ at all; where it is None, `friedman_undefined` says why.
    """

    metric: str
    method: str
    variant: str
    cells: int
    methods: int
    mean_rank: float
    best: int
    friedman_p: float | None
    friedman_undefined: str | None


def rankings(summary: Iterable[SummaryRow]) -> list[Ranking]:
    """Rank methods by their mean over seeds, best mean first in each metric; ties share their mean rank.

    A cell counts where every method of the metric has a defined mean; an oracle is not ranked.
    """
    means: dict[str, dict[DataCell, dict[MethodVariant, float]]] = {}
    for row in summary:
        if not row["is_oracle"] and not facts_of(row["metric"]).descriptive:
            cell = means.setdefault(row["metric"], {}).setdefault(cell_of(row), {})
            if row["mean"] is not None:
                cell[method_variant_of(row)] = row["mean"]
    return [ranking for metric, cells in means.items() for ranking in _of_metric(metric, cells)]


def _of_metric(metric: str, cells: dict[DataCell, dict[MethodVariant, float]]) -> list[Ranking]:
    entries = sorted(set().union(*cells.values()))
    full = [[cell[entry] for entry in entries] for cell in cells.values() if len(cell) == len(entries)]
    if not full or len(entries) < 2:
        return []
    sign = 1 if facts_of(metric).lower_is_better else -1
    ranks = np.apply_along_axis(average_ranks, 1, sign * np.round(full, DECIMALS))
    p = friedman_p(ranks)
    rows: list[Ranking] = [
        {
            "metric": metric,
            "method": entry.method,
            "variant": entry.variant,
            "cells": len(full),
            "methods": len(entries),
            "mean_rank": float(method_ranks.mean()),
            "best": int(np.count_nonzero(method_ranks == ranks.min(axis=1))),
            "friedman_p": p,
            "friedman_undefined": _why_undefined(ranks) if p is None else None,
        }
        for entry, method_ranks in zip(entries, ranks.T, strict=True)
    ]
    return sorted(rows, key=lambda ranking: ranking["mean_rank"])


def friedman_p(ranks: NDArray[np.float64]) -> float | None:
    """Friedman's (1937) test of ranks (cells, methods), with ties: (k−1)·Σ(R̄ⱼ−R̄)²·N² / Σ(r−r̄)² ~ χ² of k−1 (Eq. 78).

    `scipy.stats.friedmanchisquare` refuses two methods, which are the usual study.
    """
    from scipy.special import chdtrc

    cells, methods = ranks.shape
    middle = (methods + 1) / 2
    spread = ((ranks - middle) ** 2).sum()
    if cells < 2 or methods < 2 or spread == 0:
        return None
    between = ((ranks.sum(axis=0) - cells * middle) ** 2).sum()
    return float(chdtrc(methods - 1, (methods - 1) * between / spread))


def _why_undefined(ranks: NDArray[np.float64]) -> str:
    if len(ranks) < 2:
        return "all methods are in one cell only, and the test compares ranks over cells"
    return "the methods tie in every cell"
