"""Which epoch is kept: the latest that held-out tuples do not clearly call worse than the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ttest_rel
from torch import nn

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.loop import _as_risk, _as_state, _select
from ntmp_cli.learning.method import HeldoutRisk
from ntmp_cli.learning.results import EpochRecord, TrainingResult

LOSSES = arrays(np.float64, st.tuples(st.integers(1, 7), st.integers(2, 12)), elements=st.integers(0, 6).map(float))


def selected(losses: list[HeldoutRisk | None], select: str) -> int:
    config = TrainConfig(prior=0.5, epochs=len(losses), select=select)
    outcome = TrainingResult()
    for epoch, risk in enumerate(losses, start=1):
        _select(outcome, EpochRecord(epoch, {}, None, 0.0, 0), risk, nn.Linear(1, 1), config)
        assert (outcome.selected_epoch > 0) == bool(outcome.weights)
    return outcome.selected_epoch


@given(LOSSES)
def test_the_kept_epoch_is_the_latest_within_a_standard_error_of_the_best(losses: np.ndarray) -> None:
    risks = [HeldoutRisk(float(row.mean()), row) for row in losses]
    means = [risk.value for risk in risks]
    best = int(np.argmin(means))
    near = [best]
    for epoch in range(best + 1, len(losses)):
        more = losses[epoch] - losses[best]
        # The paired t statistic is the difference in standard errors.
        t = 0.0 if not more.any() else ttest_rel(losses[epoch], losses[best]).statistic if np.ptp(more) else np.inf
        near += [epoch] if t <= 1 + 1e-9 else []
        if abs(t - 1) < 1e-9:
            return  # a tie, which rounding decides
    assert selected(list(risks), "one-se") == near[-1] + 1
    assert selected(list(risks), "best") == best + 1
    assert selected(list(risks), "last") == len(losses)


def test_without_losses_of_single_tuples_the_best_is_kept() -> None:
    assert selected([HeldoutRisk(0.3), HeldoutRisk(0.2), HeldoutRisk(0.21)], "one-se") == 2


@pytest.mark.parametrize("select", ["one-se", "best", "last"])
def test_without_heldout_data_the_last_is_kept(select: str) -> None:
    assert selected([None, None, None], select) == 3


@pytest.mark.parametrize("risk", [None, HeldoutRisk(0.5), HeldoutRisk(0.5, np.array([0.25, 0.75]))])
def test_what_is_compared_with_survives_a_checkpoint(risk: HeldoutRisk | None) -> None:
    again = _as_risk(_as_state(risk))
    if risk is None or risk.per_tuple is None:
        assert again == risk
    else:
        assert again is not None
        assert again.value == risk.value
        assert np.array_equal(np.asarray(again.per_tuple), risk.per_tuple)
