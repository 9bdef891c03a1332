"""Terms of a loss with their derivatives by the scores, in closed form.

With them the autograd graph of a step has one node above the network. On small batches, building and traversing a
larger graph costs more than the terms themselves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import binary_cross_entropy_with_logits


def with_slope(scores: Tensor, value: Tensor, slope: Tensor) -> Tensor:
    """`value` as a function of the scores that has this slope."""
    loss: Tensor = _KnownSlope.apply(scores, value, slope)  # type: ignore[no-untyped-call]
    return loss


class _KnownSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return value.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None


def clamped_sigmoid_risk(scores: Tensor, plus: Tensor, minus: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The two terms of the unbiased risk under the sigmoid loss, and the slope of their clamped sum (Eq. 16)."""
    p = scores.sigmoid()
    q = 1 - p
    positive, negative = plus @ q, minus @ p
    return positive, negative, (minus * (negative > 0) - plus * (positive > 0)) * p * q


def membership_nll(scores: Tensor, inside: int, prior: float, rate: float) -> tuple[Tensor, Tensor]:
    """−Σ log P(of a tuple, or of U) of instances whose first `inside` are of tuples, and its slope.

    Where an instance of U is positive with probability p, tuples of rate ᾱ have r(p) = 1 + c (p − π) times the density
    of U, c = (ᾱ − π)/(π(1 − π)). Of N_T tuple instances and N_U of U, P(tuple) is N_T r/(N_T r + N_U); up to a
    constant the loss is −Σ_T log r + Σ log(1 + c (p − π) N_T/(N_T + N_U)).
    """
    contrast = (rate - prior) / (prior * (1 - prior))
    p, q = scores.sigmoid(), (-scores).sigmoid()
    pq, mean = p * q, contrast * inside / len(scores)
    # r(p) as a sum of two terms: 1 + c (p − π) has no digits left where an instance is certainly of the rare class.
    of_tuples = p[:inside] * (rate / prior) + q[:inside] * ((1 - rate) / (1 - prior))
    of_all = 1 + mean * (p - prior)
    slope = mean * pq / of_all
    slope[:inside] -= contrast * pq[:inside] / of_tuples
    return of_all.log().sum() - of_tuples.log().sum(), slope


def confidence_weighted_loss(scores: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy with the teacher's labels, each weighted by its confidence |2σ − 1| (Eq. 31); and its slope."""
    labels, weights = (teacher > 0).to(scores.dtype), (2 * teacher.sigmoid() - 1).abs() / len(scores)
    losses = binary_cross_entropy_with_logits(scores, labels, reduction="none")
    return losses @ weights, (scores.sigmoid() - labels) * weights
