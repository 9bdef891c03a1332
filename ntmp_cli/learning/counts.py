"""The exact probability of a tuple's count (SPEC section 4), its gradient and its posterior.

For scores z_i = logit P(y_i=1|x_i) of a tuple, the count Σy is Poisson-binomial. A table over instances and counts
gives its probability; the same table walked backwards gives P(y_i=1 | z, m), and with it the gradient in closed form,

    ∂ log P(m|z) / ∂z_i = P(y_i=1 | z, m) − σ(z_i),

so that one forward–backward sweep replaces a graph of n·m nodes. All terms are positive, so sums lose no digits; where
products could underflow (scores far from 0 in long tuples) the table is kept in logarithms. Everything is computed in
double precision, whatever the scores are.

Tuples are ragged: those of one length form a dense table (T, n), a tuple with more positives than negatives is mirrored
(z→−z, m→n−m), and the cost is O(n·min(m, n−m)) per tuple.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

# Products of at most this many nats stay above the smallest double (e^-708), with room to spare.
_SAFE_NATS = 600.0
# Tables of a block of tuples stay below this size.
_TABLE_BYTES = 64 * 2**20


def count_log_prob(scores: Tensor, sizes: Tensor, counts: Tensor, flip_rate: float = 0.0) -> Tensor:
    """log P(recorded count | scores) of every tuple; differentiable in the scores.

    `scores` holds the instances of all tuples in a row. With `flip_rate` > 0 the recorded count is the true one with
    probability 1 − flip_rate and off by one otherwise (at 0 and n the only neighbour), summed over the true count.
    """
    log_prob: Tensor = _CountLogProb.apply(scores, sizes, counts, flip_rate)  # type: ignore[no-untyped-call]
    return log_prob


def count_posterior(scores: Tensor, sizes: Tensor, counts: Tensor, flip_rate: float = 0.0) -> Tensor:
    """P(y_i=1 | scores, recorded count) of every instance, in a row."""
    return _sweep(scores.detach(), sizes, counts, flip_rate)[1]


class _CountLogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, sizes: Tensor, counts: Tensor, flip_rate: float) -> Tensor:
        log_prob, posterior = _sweep(scores, sizes, counts, flip_rate)
        ctx.save_for_backward(posterior - scores.to(posterior.dtype).sigmoid(), sizes)
        return log_prob.to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        slope, sizes = ctx.saved_tensors
        return (grad.to(slope.dtype).repeat_interleave(sizes) * slope).to(grad.dtype), None, None, None


def _sweep(scores: Tensor, sizes: Tensor, counts: Tensor, flip_rate: float) -> tuple[Tensor, Tensor]:
    """Log-probability per tuple and posterior per instance, in double."""
    if scores.device.type == "mps":  # Apple's GPUs have no doubles
        found = _sweep(scores.cpu(), sizes.cpu(), counts.cpu(), flip_rate)
        return found[0].float().to(scores.device), found[1].float().to(scores.device)
    z = scores.double()
    lengths: list[int] = torch.unique(sizes).tolist()
    if len(lengths) == 1:
        log_prob, posterior = _dense(z.view(-1, lengths[0]), counts, flip_rate)
        return log_prob, posterior.reshape(-1)
    log_prob = z.new_empty(len(sizes))
    posterior = torch.empty_like(z)
    starts = sizes.cumsum(0) - sizes
    for n in lengths:
        which = (sizes == n).nonzero().squeeze(1)
        index = starts[which, None] + torch.arange(n, device=z.device)
        log_prob[which], posterior[index] = _dense(z[index], counts[which], flip_rate)
    return log_prob, posterior


def _dense(z: Tensor, counts: Tensor, flip_rate: float) -> tuple[Tensor, Tensor]:
    """Tuples of one length n, in blocks whose tables fit."""
    n = z.shape[1]
    mirrored = counts * 2 > n
    z = torch.where(mirrored[:, None], -z, z)
    counts = torch.where(mirrored, n - counts, counts)
    width = min(n, int(counts.max()) + (flip_rate > 0)) + 1
    block = max(1, _TABLE_BYTES // (8 * (n + 1) * width))
    parts = [
        _tables(some_z, _target(some_counts, n, width, flip_rate))
        for some_z, some_counts in zip(torch.split(z, block), torch.split(counts, block), strict=True)
    ]
    log_prob = torch.cat([part[0] for part in parts])
    posterior = torch.cat([part[1] for part in parts])
    return log_prob, torch.where(mirrored[:, None], 1 - posterior, posterior)


def _target(counts: Tensor, n: int, width: int, flip_rate: float) -> Tensor:
    """P(recorded count | true count k) for k = 0 … width−1, one row per tuple."""
    k = torch.arange(width, device=counts.device)
    distance = (k - counts[:, None]).abs()
    exact = (distance == 0).double()
    if flip_rate == 0:
        return exact
    # From 0 and from n there is only one neighbour to flip to.
    one_way = (k == 0) | (k == n)
    return (1 - flip_rate) * exact + flip_rate * torch.where(one_way, 1.0, 0.5).double() * (distance == 1)


def _tables(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    nats = z.abs().sum(1).max() + 0.7 * z.shape[1]
    tables = _linear_tables if nats < _SAFE_NATS else _log_tables
    # Tuples last: every operation then runs along contiguous memory.
    log_prob, posterior = tables(z.T.contiguous(), target.T.contiguous())
    return log_prob, posterior.T


def _linear_tables(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Prefix and suffix sums of products of odds r = e^z; one fused operation per step. Shapes (n, T) and (k, T).

    E_i[k] = Σ over k of the first i of Π r (elementary symmetric), B_i[k] = Σ over what the rest can add to reach the
    target. P(target) = B_0[0] Π σ(−z), and the share of it with y_i = 1 is r_i Σ_k E_i[k] B_{i+1}[k+1] / B_0[0].
    """
    odds = z.exp()
    most = len(target) - 1
    prefixes = z.new_empty((len(z), max(1, most), target.shape[1]))
    prefixes[:, 0] = 1
    for i in range(len(z) - 1):
        # Among the first i instances there are at most i positives, and the largest count is never continued.
        rows = min(i, most - 1)
        if rows < most - 1:
            torch.mul(prefixes[i, rows], odds[i], out=prefixes[i + 1, rows + 1])
        if rows > 0:
            before = prefixes[i]
            torch.addcmul(before[1 : rows + 1], before[:rows], odds[i], out=prefixes[i + 1, 1 : rows + 1])
    # Two buffers in turn; the last row, the target of the largest count, is the same in all suffixes.
    back, spare = target, target.clone()
    joint = torch.zeros_like(z)
    for i in reversed(range(len(z))):
        rows = min(i + 1, most)
        if most > 0:
            torch.sum(prefixes[i, :rows] * back[1 : rows + 1], 0, out=joint[i])
        torch.addcmul(back[:rows], back[1 : rows + 1], odds[i], out=spare[:rows])
        back, spare = spare, back
    return back[0].log() + logsigmoid(-z).sum(0), odds * joint / back[0]


def _log_tables(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """The same tables in logarithms, −inf where a count cannot be."""
    log_p, log_q = logsigmoid(z), logsigmoid(-z)
    prefixes = z.new_full((len(z), *target.shape), -torch.inf)
    prefixes[0, 0] = 0
    for i in range(len(z) - 1):
        torch.add(prefixes[i], log_q[i], out=prefixes[i + 1])
        prefixes[i + 1, 1:] = torch.logaddexp(prefixes[i + 1, 1:], prefixes[i, :-1] + log_p[i])
    back = target.log()
    joint = torch.empty_like(z)
    for i in reversed(range(len(z))):
        step = back[1:] + log_p[i]
        joint[i] = torch.logsumexp(prefixes[i, :-1] + step, 0)
        back = back + log_q[i]
        back[:-1] = torch.logaddexp(back[:-1], step)
    return back[0], (joint - back[0]).exp()
