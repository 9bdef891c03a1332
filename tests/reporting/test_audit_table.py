"""The table of an audit has the counts first that are most probably wrong."""

from __future__ import annotations

import numpy as np
import pytest

from ntmp_cli.reporting.audit import tuples_csv


@pytest.mark.parametrize(
    ("wrong", "ratio", "order"),
    [
        ([0.0, 0.0, 0.0], [0.1, 3.0, 0.5], [2, 3, 1]),  # none is called wrong: the likelihood ratio decides
        ([0.2, 0.0, 0.9], [2.0, 0.1, 9.0], [3, 1, 2]),
        ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0], [1, 2, 3]),
    ],
)
def test_the_most_suspicious_counts_come_first(wrong: list[float], ratio: list[float], order: list[int]) -> None:
    rows = {"tuple": np.array([1, 2, 3]), "wrong": np.array(wrong), "ratio": np.array(ratio)}
    head, *lines = tuples_csv(rows).decode().splitlines()
    assert head == "tuple,wrong,ratio"
    assert [int(line.split(",")[0]) for line in lines] == order
