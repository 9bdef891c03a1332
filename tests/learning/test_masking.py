"""Features masked for the student, not for its teacher."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from ntmp_cli.learning.masking import apply_mask, sample_mask
from ntmp_cli.learning.models import build_scorer
from ntmp_cli.randomness import stream


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.8])
def test_each_feature_is_masked_with_the_given_probability(rate: float) -> None:
    mask = sample_mask((1500, 1500), rate, stream(0, "hidden"))
    assert mask.shape == (1500, 1500)
    assert binomtest(int(mask.sum()), mask.numel(), rate).pvalue > 1e-3
    # Independently: the counts of every feature and of every instance scatter as binomial ones do. The variance of
    # 1500 of them has a relative standard error of √(2/1499) = 0.037.
    for axis in (0, 1):
        counts = mask.sum(axis).double()
        assert float(counts.var()) == pytest.approx(1500 * rate * (1 - rate), rel=4 * 0.037)


def test_a_pixel_is_masked_in_all_its_channels() -> None:
    mask = sample_mask((6, 3, 8, 8), 0.5, stream(0, "hidden"))
    assert mask.shape == (6, 1, 8, 8)
    masked = apply_mask(torch.ones(6, 3, 8, 8), mask, torch.zeros(3, 1, 1))
    assert torch.equal(masked[:, 0], masked[:, 2])
    assert torch.equal(masked[:, 0] == 0, mask[:, 0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_only_the_last_instances_lose_features_and_the_input_stays_as_it_was(dtype: torch.dtype) -> None:
    x = torch.arange(1, 29).reshape(7, 4).to(dtype)
    before = x.clone()
    mask = torch.tensor([[True, False, False, True], [False, False, True, False]])
    masked = apply_mask(x, mask, torch.tensor([-1.0, -2, -3, -4]))
    assert torch.equal(x, before)
    assert torch.equal(masked[:5], x[:5].float())
    assert masked[5:].tolist() == [[-1, 22, 23, -4], [25, 26, -3, 28]]


def test_the_network_sees_nothing_but_zeros_of_an_instance_that_is_masked() -> None:
    factor, shift = np.array([2, 0.5, 1], dtype=np.float32), np.array([3, -1, 0], dtype=np.float32)
    model = build_scorer("linear", (3,), factor, shift, 0)
    masked = apply_mask(torch.randn(4, 3), torch.ones(4, 3, dtype=torch.bool), model.blank)
    assert torch.equal(model.inputs(masked), torch.zeros(4, 3))
