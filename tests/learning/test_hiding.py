"""Features hidden from the network that learns, not from its teacher."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from ntmp_cli.learning.hiding import hidden_features, with_hidden
from ntmp_cli.learning.models import build_scorer
from ntmp_cli.randomness import stream


@pytest.mark.parametrize("share", [0.1, 0.3, 0.8])
def test_each_feature_is_hidden_with_the_asked_probability(share: float) -> None:
    hidden = hidden_features((1500, 1500), share, stream(0, "hidden"))
    assert hidden.shape == (1500, 1500)
    assert binomtest(int(hidden.sum()), hidden.numel(), share).pvalue > 1e-3
    # Independently: the counts of every feature and of every instance scatter as binomial ones do. The variance of
    # 1500 of them has a relative standard error of √(2/1499) = 0.037.
    for axis in (0, 1):
        counts = hidden.sum(axis).double()
        assert float(counts.var()) == pytest.approx(1500 * share * (1 - share), rel=4 * 0.037)


def test_a_pixel_is_hidden_in_all_its_channels() -> None:
    hidden = hidden_features((6, 3, 8, 8), 0.5, stream(0, "hidden"))
    assert hidden.shape == (6, 1, 8, 8)
    shown = with_hidden(torch.ones(6, 3, 8, 8), hidden, torch.zeros(3, 1, 1))
    assert torch.equal(shown[:, 0], shown[:, 2])
    assert torch.equal(shown[:, 0] == 0, hidden[:, 0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_only_the_last_instances_lose_features_and_what_was_given_stays_as_it_was(dtype: torch.dtype) -> None:
    x = torch.arange(1, 29).reshape(7, 4).to(dtype)
    before = x.clone()
    hidden = torch.tensor([[True, False, False, True], [False, False, True, False]])
    shown = with_hidden(x, hidden, torch.tensor([-1.0, -2, -3, -4]))
    assert torch.equal(x, before)
    assert torch.equal(shown[:5], x[:5].float())
    assert shown[5:].tolist() == [[-1, 22, 23, -4], [25, 26, -3, 28]]


def test_the_network_sees_nothing_but_zeros_of_an_instance_that_is_hidden() -> None:
    factor, shift = np.array([2, 0.5, 1], dtype=np.float32), np.array([3, -1, 0], dtype=np.float32)
    model = build_scorer("linear", (3,), factor, shift, 0)
    shown = with_hidden(torch.randn(4, 3), torch.ones(4, 3, dtype=torch.bool), model.blank)
    assert torch.equal(model.inputs(shown), torch.zeros(4, 3))
