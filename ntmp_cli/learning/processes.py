"""Several processes that train one network (torchrun), and the one that is alone.

Every process scores its own share of a batch. The scores, a few thousand numbers, are gathered, so that each process
has the whole batch's objective: partial means are over all processes before any clamp, tuples are never cut, and a
method need not know that it is distributed. Each process sends gradients back through its own scores only; their sum
over processes is the gradient of one process with the whole batch. BatchNorm's statistics are over all processes.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from ntmp_cli.errors import ArtifactError, UsageError
from ntmp_cli.learning.batches import Batch
from ntmp_cli.learning.parts import in_order, joined
from ntmp_cli.ranks import number_of_processes

T = TypeVar("T")

# Rank 0 scores held-out and test data and writes while the others wait.
PATIENCE = timedelta(hours=6)
OTHER_FAILED = "another process of this training failed; its message says why"
# What gloo and NCCL say when a peer is gone.
LOST = ("Connection closed", "Connection reset", "gloo", "NCCL")


class OneProcess:
    """The usual case: nobody to talk to."""

    rank, size = 0, 1

    def forward(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        """How scores are computed in training."""
        return model

    def whole(self, batch: Batch, stop: bool) -> tuple[Batch, bool]:
        """The batch of all processes without its instances, and whether any process was asked to stop."""
        return batch, stop

    def gather(self, scores: Tensor) -> Tensor:
        """Scores of the whole batch; gradients flow to one's own."""
        return scores

    def own_unlabeled(self, rows: Tensor) -> Tensor:
        """Of rows for the unlabeled instances of the whole batch those of one's own."""
        return rows

    def agree(self, value: T) -> T:
        """What the first process says."""
        return value

    def first_then_all(self, work: Callable[[], T]) -> T:
        """Work that leaves files behind: done by the first process, then by the others, who find them."""
        done = work() if self.rank == 0 else None
        self.agree("done")
        return work() if done is None else done


class ManyProcesses(OneProcess):
    """One of several processes of a torch.distributed group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._lengths: list[int] = []
        self._cuts: list[int] = []

    def forward(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        synchronise_batch_norm(model)
        with warnings.catch_warnings():
            # torch 2.13 gives this switch a new name that torch 2.6 does not know.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            wrapped: nn.Module = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
        return wrapped

    def whole(self, batch: Batch, stop: bool) -> tuple[Batch, bool]:
        targets = None if batch.targets is None else batch.targets.numpy()
        said: list[Any] = [None] * self.size
        dist.all_gather_object(said, (batch.sizes, batch.counts, batch.tuple_instances, batch.unlabeled, targets, stop))
        nothing = batch.x[:0]
        self._cuts = [cut for _, _, cut, *_ in said]
        self._lengths = [cut + rest for _, _, cut, rest, *_ in said]
        shares = [
            Batch(nothing, sizes, counts, cut, rest, None if t is None else torch.from_numpy(t))
            for sizes, counts, cut, rest, t, _ in said
        ]
        return joined(shares), any(s[-1] for s in said)

    def gather(self, scores: Tensor) -> Tensor:
        longest = max(self._lengths)
        padded = scores.new_zeros((longest, *scores.shape[1:]))
        padded[: len(scores)] = scores.detach()
        said = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(said, padded)
        own = [s[:length] for s, length in zip(said, self._lengths, strict=True)]
        own[self.rank] = scores
        return in_order(own, self._cuts)

    def own_unlabeled(self, rows: Tensor) -> Tensor:
        counts = [length - cut for length, cut in zip(self._lengths, self._cuts, strict=True)]
        return torch.split(rows, counts)[self.rank]

    def agree(self, value: T) -> T:
        said = [value]
        try:
            dist.broadcast_object_list(said, src=0)
        except RuntimeError:
            raise ArtifactError(OTHER_FAILED) from None
        return said[0]


@contextmanager
def process_group(device: torch.device) -> Iterator[OneProcess]:
    """The processes that torchrun started, or this one alone."""
    if number_of_processes() == 1:
        yield OneProcess()
        return
    # DistributedDataParallel imports this module, whose default arguments keep the group of that moment for ever. The
    # threads of a group that is never freed abort the process when the interpreter ends. Imported now, they keep None.
    importlib.import_module("torch.distributed.nn.functional")
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"WORLD_SIZE is {number_of_processes()}, but the processes cannot find each other: {error}",
            hint="Start them with torchrun, or unset WORLD_SIZE.",
        ) from None
    try:
        yield ManyProcesses()
        # No process leaves while another still talks to it. After an error there is no barrier: the other processes may
        # wait in another call, which ends as soon as this process closes its connections.
        dist.barrier(device_ids=[device.index] if device.type == "cuda" else None)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in LOST):
            raise
        raise ArtifactError(OTHER_FAILED) from None
    finally:
        dist.destroy_process_group()


class _SumOverProcesses(torch.autograd.Function):
    """x ↦ Σ x over processes; the gradient of the sum is the sum of gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        total = grad.clone()
        dist.all_reduce(total)
        return total


def _sum_over_processes(x: Tensor) -> Tensor:
    total: Tensor = _SumOverProcesses.apply(x)  # type: ignore[no-untyped-call]
    return total


class SynchronisedBatchNorm(_BatchNorm):
    """BatchNorm whose training statistics are over all processes; torch's own needs a GPU."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.running_mean is None or self.running_var is None:
            return super().forward(input)
        asked, input = input.dtype, input.float() if input.dtype == torch.bfloat16 else input
        axes, channels = [0, *range(2, input.dim())], input.shape[1]
        view = (1, -1, *[1] * (input.dim() - 2))
        count = input.new_full((1,), input.numel() / channels)
        # Mean first and then the squares about it: in one sum the variance would lose its digits.
        sums = _sum_over_processes(torch.cat([input.sum(axes), count]))
        total = sums[-1]
        mean = sums[:-1] / total
        away = input - mean.view(view)
        variance = _sum_over_processes(away.square().sum(axes)) / total
        with torch.no_grad():
            share = 0.1 if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance * total / (total - 1), share)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
        out = away * torch.rsqrt(variance + self.eps).view(view)
        return (out * self.weight.view(view) + self.bias.view(view) if self.affine else out).to(asked)


def synchronise_batch_norm(model: nn.Module) -> None:
    """Turn every BatchNorm into a synchronised one, in place; parameters and statistics stay what they are."""
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.__class__ = SynchronisedBatchNorm
