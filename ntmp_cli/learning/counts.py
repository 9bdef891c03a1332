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

from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

# Products of at most this many nats stay above the smallest double (e^-708), with room to spare.
_SAFE_NATS = 600.0
_REMEMBERED = 64
# Tables of a block of tuples stay below this size.
_TABLE_BYTES = 64 * 2**20


def count_log_prob(scores: Tensor, sizes: Tensor, counts: Tensor, flip_rate: float = 0.0) -> Tensor:
    """log P(recorded count | scores) of every tuple; differentiable in the scores.

    `scores` holds the instances of all tuples in a row. With `flip_rate` > 0 the recorded count is the true one with
    probability 1 − flip_rate and off by one otherwise (at 0 and n the only neighbour), summed over the true count.
    """
    return RecordedCounts(sizes.cpu().numpy(), counts.cpu().numpy(), flip_rate).log_prob(scores)


def count_posterior(scores: Tensor, sizes: Tensor, counts: Tensor, flip_rate: float = 0.0) -> Tensor:
    """P(y_i=1 | scores, recorded count) of every instance, in a row."""
    return RecordedCounts(sizes.cpu().numpy(), counts.cpu().numpy(), flip_rate).posterior(scores)


@dataclass(frozen=True)
class _OneLength:
    """Tuples of one length: where they and their instances stand (n, T), which are mirrored, and what they reach.

    `target` is P(recorded count | true count k) for k = 0 … as (k, T); tuples stand last, so that every operation runs
    along contiguous memory. `members` is None where all tuples have this length, `signs` where none is mirrored.
    """

    n: int
    which: Tensor
    members: Tensor | None
    signs: Tensor | None
    target: Tensor

    def on(self, device: torch.device) -> _OneLength:
        members, signs = (None if each is None else each.to(device) for each in (self.members, self.signs))
        return _OneLength(self.n, self.which.to(device), members, signs, self.target.to(device))


class RecordedCounts:
    """Sizes and counts of some tuples, made ready once for any number of scores.

    In training the same composition of a batch comes again and again, and this preparation costs more than the tables.
    """

    def __init__(self, sizes: NDArray[np.int64], counts: NDArray[np.int64], flip_rate: float = 0.0) -> None:
        self.tuples, self.instances = len(sizes), int(sizes.sum())
        self.owner = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes))
        starts = np.cumsum(sizes) - sizes
        lengths = np.unique(sizes).tolist()
        self.groups = [_one_length(n, sizes, counts, starts, flip_rate, only=len(lengths) == 1) for n in lengths]
        self._elsewhere: dict[torch.device, RecordedCounts] = {}

    def on(self, device: torch.device) -> RecordedCounts:
        """The same on another device, where it is copied to once."""
        if device == self.owner.device:
            return self
        if device not in self._elsewhere:
            twin = self._elsewhere[device] = copy(self)
            twin.owner, twin.groups = self.owner.to(device), [group.on(device) for group in self.groups]
        return self._elsewhere[device]

    def log_prob(self, scores: Tensor) -> Tensor:
        """log P(recorded count | scores) of every tuple, differentiable in the scores."""
        found: Tensor = _LogProb.apply(scores, self)  # type: ignore[no-untyped-call]
        return found

    def posterior(self, scores: Tensor) -> Tensor:
        """P(y_i=1 | scores, recorded count) of every instance, in a row."""
        return self.sweep(scores.detach())[1]

    def sweep(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability per tuple and posterior per instance, in double."""
        device = scores.device
        if device.type == "mps":  # Apple's GPUs have no doubles
            found = self.sweep(scores.cpu())
            return found[0].float().to(device), found[1].float().to(device)
        if device != self.owner.device:
            return self.on(device).sweep(scores)
        log_prob = torch.empty(self.tuples, dtype=torch.float64, device=device)
        posterior = torch.empty(self.instances, dtype=torch.float64, device=device)
        for group in self.groups:
            if group.members is None:
                z = torch.empty((group.n, self.tuples), dtype=torch.float64, device=device)
                z.copy_(scores.reshape(self.tuples, group.n).T)
            else:
                z = scores[group.members].double()
            signs = group.signs
            found = _blocks(z if signs is None else z * signs, group.target)
            own = found[1] if signs is None else torch.where(signs < 0, 1 - found[1], found[1])
            if group.members is None:
                return found[0], own.T.reshape(-1)
            log_prob[group.which] = found[0]
            posterior[group.members] = own
        return log_prob, posterior


class RememberedCounts:
    """`RecordedCounts` of the compositions of a batch, of which fixed (n, m) have few."""

    def __init__(self, flip_rate: float) -> None:
        self._flip_rate = flip_rate
        self._found: dict[tuple[bytes, bytes], RecordedCounts] = {}

    def of(self, sizes: NDArray[np.int64], counts: NDArray[np.int64]) -> RecordedCounts:
        composition = sizes.tobytes(), counts.tobytes()
        if composition not in self._found:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[composition] = RecordedCounts(sizes, counts, self._flip_rate)
        return self._found[composition]


def _one_length(
    n: int,
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    starts: NDArray[np.int64],
    flip_rate: float,
    *,
    only: bool,
) -> _OneLength:
    which = np.flatnonzero(sizes == n)
    own = counts[which]
    mirrored = own * 2 > n
    own = np.where(mirrored, n - own, own)
    width = min(n, int(own.max()) + (flip_rate > 0)) + 1
    signs = torch.from_numpy(np.where(mirrored, -1.0, 1.0)) if mirrored.any() else None
    members = None if only else torch.from_numpy(starts[which] + np.arange(n)[:, None])
    return _OneLength(n, torch.from_numpy(which), members, signs, torch.from_numpy(_target(own, n, width, flip_rate)))


def _target(counts: NDArray[np.int64], n: int, width: int, flip_rate: float) -> NDArray[np.float64]:
    """P(recorded count | true count k) for k = 0 … width−1, one column per tuple."""
    k = np.arange(width)[:, None]
    distance = np.abs(k - counts)
    exact: NDArray[np.float64] = (distance == 0).astype(np.float64)
    if flip_rate == 0:
        return exact
    # From 0 and from n there is only one neighbour to flip to.
    one_way = (k == 0) | (k == n)
    noisy: NDArray[np.float64] = (1 - flip_rate) * exact + flip_rate * np.where(one_way, 1.0, 0.5) * (distance == 1)
    return noisy


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, recorded: RecordedCounts) -> Tensor:
        log_prob, posterior = recorded.sweep(scores)
        ctx.save_for_backward(posterior.sub_(scores.to(posterior.dtype).sigmoid()), recorded.owner.to(scores.device))
        return log_prob.to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        slope, owner = ctx.saved_tensors
        return (grad.to(slope.dtype)[owner] * slope).to(grad.dtype), None


def _blocks(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Tuples of one length n, in blocks whose tables fit; z is (n, T)."""
    block = max(1, _TABLE_BYTES // (8 * (len(z) + 1) * len(target)))
    if z.shape[1] <= block:
        return _tables(z, target)
    pairs = zip(torch.split(z, block, 1), torch.split(target, block, 1), strict=True)
    parts = [_tables(some.contiguous(), reached.contiguous()) for some, reached in pairs]
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts], 1)


def _tables(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    n = len(z)
    # A bound that costs one pass is enough for almost all; where it is not, the sum itself is asked.
    bounded = n * (float(torch.linalg.vector_norm(z, torch.inf)) + 0.7) < _SAFE_NATS
    if bounded or float(z.abs().sum(0).max()) + 0.7 * n < _SAFE_NATS:
        return _linear_tables(z, target)
    return _log_tables(z, target)


def _linear_tables(z: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Prefix and suffix sums of products of odds r = e^z; one fused operation per step. Shapes (n, T) and (k, T).

    E_i[k] = Σ over k of the first i of Π r (elementary symmetric), B_i[k] = Σ over what the rest can add to reach the
    target. P(target) = B_0[0] Π σ(−z), and the share of it with y_i = 1 is r_i Σ_k E_i[k] B_{i+1}[k+1] / B_0[0].
    """
    odds = z.exp()
    most = len(target) - 1
    prefixes = z.new_empty((len(z), max(1, most), z.shape[1]))
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
    back, spare = target.clone(), target.clone()
    joint = torch.zeros_like(z)
    for i in reversed(range(len(z))):
        rows = min(i + 1, most)
        if rows == 1:
            joint[i] = back[1]
        elif rows > 1:
            torch.sum(prefixes[i, :rows] * back[1 : rows + 1], 0, out=joint[i])
        torch.addcmul(back[:rows], back[1 : rows + 1], odds[i], out=spare[:rows])
        back, spare = spare, back
    return back[0].log() - odds.log1p().sum(0), joint.mul_(odds).div_(back[0])


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
