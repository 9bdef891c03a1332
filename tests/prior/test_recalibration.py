from __future__ import annotations

import numpy as np
import pytest
import torch

from ntmp_cli.learning.counts import count_log_prob
from ntmp_cli.learning.recalibration import Line, line_derivatives, looks_mirrored, recalibrate


def test_the_line_that_distorted_true_log_odds_is_undone(simulate) -> None:
    data = simulate(5, 2, 0.5, tuples=6000, a=0.5, b=0.8)
    line = recalibrate(data.scores, data.sizes, data.counts)
    assert line.slope == pytest.approx(1 / 0.5, rel=0.04)
    assert line.intercept == pytest.approx(-0.8 / 0.5, abs=0.08)


def test_no_line_of_a_grid_makes_the_counts_more_probable(simulate) -> None:
    data = simulate(3, 1, 0.5, tuples=300)
    line = recalibrate(data.scores, data.sizes, data.counts)
    z, n, m = (torch.from_numpy(x) for x in (data.scores, data.sizes, data.counts))
    for a in np.linspace(0.3, 3, 28):
        for b in np.linspace(-2, 2, 21):
            assert float(-count_log_prob(a * z + b, n, m).mean()) > line.nll - 1e-7


def test_scores_that_are_no_numbers_have_no_line() -> None:
    assert np.isnan(recalibrate(np.array([0.0, np.nan, 1.0]), np.array([3]), np.array([1])).nll)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_derivatives_of_every_tuple_equal_those_of_automatic_differentiation(noise: float) -> None:
    rng = np.random.default_rng(5)
    sizes, counts = np.array([3, 5, 2, 4]), np.array([1, 2, 2, 0])
    z, line = rng.normal(0, 2, sizes.sum()), Line(0.8, -0.3, 0.0)
    first, second = line_derivatives(z, sizes, counts, line, noise)
    pieces = np.split(z, np.cumsum(sizes)[:-1])
    for t, piece in enumerate(pieces):
        scores, n, m = torch.from_numpy(piece), torch.tensor([sizes[t]]), torch.tensor([counts[t]])

        def value(point: torch.Tensor, scores=scores, n=n, m=m) -> torch.Tensor:
            return count_log_prob(point[0] * scores + point[1], n, m, noise).sum()

        at = torch.tensor([line.slope, line.intercept], dtype=torch.float64)
        gradient = torch.autograd.functional.jacobian(value, at)
        step = 1e-5
        hessian = np.stack(
            [
                (torch.autograd.functional.jacobian(value, at + step * e) - gradient).numpy() / step
                for e in torch.eye(2, dtype=torch.float64)
            ]
        )
        assert first[t] == pytest.approx(gradient.numpy(), abs=1e-9)
        assert second[t] == pytest.approx([hessian[0, 0], hessian[0, 1], hessian[1, 1]], abs=1e-3)


def test_mirrored_scores_are_recognised(simulate) -> None:
    data = simulate(3, 1, 0.5, tuples=200)
    assert not looks_mirrored(data.scores, data.sizes, data.counts)
    assert looks_mirrored(-data.scores, data.sizes, data.counts)
