"""The count law of `counting.poisson_binomial` (Eqs. 22–25) in torch, for networks and devices.

The preparation is shared.

P(observation | z) by one forward–backward sweep over products of odds e^z, with the gradient in closed form,

    ∂ log P(observation | z) / ∂z_i = P(y_i=1 | z, observation) − σ(z_i),

so that no graph of n·m nodes is kept. All terms are positive, so sums lose no digits; where products could underflow
(scores far from 0 in long tuples) the table is kept in logarithms. Everything is computed in double precision, whatever
the scores are. Tuples of several lengths share tables: a missing member has odds 0, which changes nothing. Tuples of
more than a few hundred members are computed by `counting.large`, on the CPU whatever the device.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import logsigmoid

from ntmp_cli.counting.large import large_tuple
from ntmp_cli.counting.observations import CountGroup, CountObservations
from ntmp_cli.counting.poisson_binomial import large_tuples

# Products of at most this many nats stay well above the smallest double (e^-708).
_SAFE_NATS = 600.0


@dataclass(frozen=True)
class _TensorGroup:
    """A `CountGroup` as tensors; `members` is None where one group holds all tuples, and all of one length."""

    n: int
    which: Tensor
    members: Tensor | None
    target: Tensor

    def on(self, device: torch.device) -> _TensorGroup:
        members = None if self.members is None else self.members.to(device)
        return _TensorGroup(self.n, self.which.to(device), members, self.target.to(device))


class CountKernel:
    """Observations of the counts of tuples, prepared once for any number of scores.

    In training the same batch compositions recur, and this preparation costs more than the tables.
    """

    def __init__(self, observed: CountObservations) -> None:
        self.tuples, self.instances = len(observed), observed.instances
        self.owner = torch.from_numpy(observed.owner)
        self.signs = None if observed.signs is None else torch.from_numpy(observed.signs)
        self.large = [(t, members, likelihood) for t, members, likelihood in large_tuples(observed)]
        dense = observed.one_length and len(observed.groups) == 1
        self.groups = [_tensors(group, dense=dense) for group in observed.groups]
        self._copies: dict[torch.device, CountKernel] = {}

    def on(self, device: torch.device) -> CountKernel:
        """A copy on another device; the copy is made once."""
        if device == self.owner.device:
            return self
        if device not in self._copies:
            twin = self._copies[device] = copy(self)
            twin.owner, twin.groups = self.owner.to(device), [group.on(device) for group in self.groups]
            twin.signs = None if self.signs is None else self.signs.to(device)
        return self._copies[device]

    def log_prob(self, scores: Tensor) -> Tensor:
        """log P(observation | scores) of every tuple, differentiable in the scores."""
        log_prob: Tensor = _LogProb.apply(scores, self)  # type: ignore[no-untyped-call]
        return log_prob

    def posterior(self, scores: Tensor) -> Tensor:
        """P(y_i=1 | scores, observation) of every instance, in a row."""
        return self.sweep(scores.detach())[1]

    def sweep(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Log-probability per tuple and posterior per instance, in double."""
        device = scores.device
        if device.type == "mps":  # Apple's GPUs have no doubles
            log_prob, posterior = self.sweep(scores.cpu())
            return log_prob.float().to(device), posterior.float().to(device)
        if device != self.owner.device:
            return self.on(device).sweep(scores)
        z = scores if self.signs is None else scores * self.signs
        log_prob, posterior = self._dense(z) if self._is_dense else self._padded(z)
        if self.signs is not None:
            posterior = torch.where(self.signs < 0, 1 - posterior, posterior)
        for t, members, likelihood in self.large:
            value, member_posterior = large_tuple(scores[members].detach().cpu().double().numpy(), likelihood)
            log_prob[t] = value
            posterior[members] = torch.from_numpy(member_posterior).to(posterior)
        return log_prob, posterior

    @property
    def _is_dense(self) -> bool:
        return len(self.groups) == 1 and self.groups[0].members is None

    def _dense(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Tuples of one length need no index."""
        (group,) = self.groups
        columns = torch.empty((group.n, self.tuples), dtype=torch.float64, device=z.device)
        columns.copy_(z.reshape(self.tuples, group.n).T)
        log_prob, posterior = _tables(columns, group.target, columns)
        return log_prob, posterior.T.reshape(-1)

    def _padded(self, z: Tensor) -> tuple[Tensor, Tensor]:
        with_missing = torch.cat([z.double(), z.new_full((1,), -torch.inf, dtype=torch.float64)])
        log_prob = torch.empty(self.tuples, dtype=torch.float64, device=z.device)
        posterior = torch.empty(self.instances + 1, dtype=torch.float64, device=z.device)
        for group in self.groups:
            columns = with_missing[group.members]
            sizes = columns.masked_fill(columns == -torch.inf, 0)
            log_prob[group.which], posterior[group.members] = _tables(columns, group.target, sizes)
        return log_prob, posterior[:-1]


def _tensors(group: CountGroup, *, dense: bool) -> _TensorGroup:
    members = None if dense else torch.from_numpy(group.members)
    return _TensorGroup(len(group.members), torch.from_numpy(group.which), members, torch.from_numpy(group.target))


class _LogProb(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, kernel: CountKernel) -> Tensor:
        log_prob, posterior = kernel.sweep(scores)
        ctx.save_for_backward(posterior.sub_(scores.to(posterior.dtype).sigmoid()), kernel.owner.to(scores.device))
        return log_prob.to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        slope, owner = ctx.saved_tensors
        return (grad.to(slope.dtype)[owner] * slope).to(grad.dtype), None


def _tables(z: Tensor, target: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """log P(observation) (T,) and posteriors (n, T); `present` are the scores with 0 for missing members."""
    n = len(z)
    # A bound that needs one pass is enough for almost all tuples; for the others the sum is computed.
    bounded = n * (float(torch.linalg.vector_norm(present, torch.inf)) + 0.7) < _SAFE_NATS
    if bounded or float(present.abs().sum(0).max()) + 0.7 * n < _SAFE_NATS:
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
