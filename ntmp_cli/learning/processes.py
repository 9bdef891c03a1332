"""Several processes that train one network (torchrun), and the single process of every other training.

Every rank scores its share of a batch. The scores, a few thousand numbers, are all-gathered, so that each rank has the
objective of the full batch: partial means are over all ranks before any clamp, tuples are never cut, and a method need
not know that it is distributed. Each rank sends gradients back through its local scores only; their sum over ranks is
the gradient of one process with the full batch. BatchNorm's statistics are over all ranks.
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
from ntmp_cli.learning.rank_shares import tuples_first, union_of_batches
from ntmp_cli.ranks import number_of_processes

T = TypeVar("T")

# Rank 0 scores held-out and test data and writes while the others wait.
TIMEOUT = timedelta(hours=6)
OTHER_FAILED = "another process of this training failed; see its error message"
# Words in the errors of gloo and NCCL when a peer is gone.
LOST_PEER = ("Connection closed", "Connection reset", "gloo", "NCCL")


class OneProcess:
    """The usual case: one rank, nothing to communicate."""

    rank, size = 0, 1

    def forward(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        """How scores are computed in training."""
        return model

    def all_gather_batch(self, batch: Batch, stop: bool) -> tuple[Batch, bool]:
        """The composition of the full batch, without its instances, and whether any rank is to stop."""
        return batch, stop

    def all_gather(self, scores: Tensor) -> Tensor:
        """Scores of the full batch; gradients flow to the local ones."""
        return scores

    def local_unlabeled(self, rows: Tensor) -> Tensor:
        """This rank's rows, from rows for the unlabeled instances of the full batch."""
        return rows

    def local_instances(self, rows: Tensor) -> Tensor:
        """This rank's rows, from rows for all instances of the full batch, tuples first."""
        return rows

    def broadcast(self, value: T) -> T:
        """The value of rank 0, on every rank."""
        return value

    def first_rank_then_others(self, work: Callable[[], T]) -> T:
        """Work that leaves files behind: done by rank 0, then by the others, which read them."""
        done = work() if self.rank == 0 else None
        self.broadcast("done")
        return work() if done is None else done


class ManyProcesses(OneProcess):
    """One of several processes of a torch.distributed group."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        # Of every rank's share of the batch.
        self._tuple_instances: list[int] = []
        self._unlabeled: list[int] = []

    def forward(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        synchronise_batch_norm(model)
        with warnings.catch_warnings():
            # torch 2.13 gives this switch a new name that torch 2.6 does not know.
            warnings.filterwarnings("ignore", "`broadcast_buffers` is deprecated", FutureWarning)
            wrapped: nn.Module = nn.parallel.DistributedDataParallel(model, broadcast_buffers=False)
        return wrapped

    def all_gather_batch(self, batch: Batch, stop: bool) -> tuple[Batch, bool]:
        targets = None if batch.targets is None else batch.targets.numpy()
        local = (batch.sizes, batch.counts, batch.tuple_instances, batch.unlabeled, targets)
        per_rank: list[Any] = [None] * self.size
        dist.all_gather_object(per_rank, (local, stop))
        no_instances = batch.x[:0]
        shares = [
            Batch(no_instances, sizes, counts, inside, outside, None if t is None else torch.from_numpy(t))
            for (sizes, counts, inside, outside, t), _ in per_rank
        ]
        self._tuple_instances = [share.tuple_instances for share in shares]
        self._unlabeled = [share.unlabeled for share in shares]
        return union_of_batches(shares), any(stops for _, stops in per_rank)

    def all_gather(self, scores: Tensor) -> Tensor:
        lengths = [inside + outside for inside, outside in zip(self._tuple_instances, self._unlabeled, strict=True)]
        padded = scores.new_zeros((max(lengths), *scores.shape[1:]))
        padded[: len(scores)] = scores.detach()
        gathered = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(gathered, padded)
        per_rank = [values[:length] for values, length in zip(gathered, lengths, strict=True)]
        per_rank[self.rank] = scores
        return tuples_first(per_rank, self._tuple_instances)

    def local_unlabeled(self, rows: Tensor) -> Tensor:
        return torch.split(rows, self._unlabeled)[self.rank]

    def local_instances(self, rows: Tensor) -> Tensor:
        inside = torch.split(rows[: sum(self._tuple_instances)], self._tuple_instances)[self.rank]
        return torch.cat([inside, self.local_unlabeled(rows[sum(self._tuple_instances) :])])

    def broadcast(self, value: T) -> T:
        values = [value]
        try:
            dist.broadcast_object_list(values, src=0)
        except RuntimeError:
            raise ArtifactError(OTHER_FAILED) from None
        return values[0]


@contextmanager
def process_group(device: torch.device) -> Iterator[OneProcess]:
    """The processes that torchrun started, or this one alone."""
    if number_of_processes() == 1:
        yield OneProcess()
        return
    # DistributedDataParallel imports this module, whose default arguments keep the group of that moment alive. The
    # threads of a group that is never freed abort the process when the interpreter ends. Imported now, they keep None.
    importlib.import_module("torch.distributed.nn.functional")
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    except (ValueError, RuntimeError) as error:
        raise UsageError(
            f"WORLD_SIZE is {number_of_processes()}, but the processes cannot find each other: {error}",
            hint="Start them with torchrun, or unset WORLD_SIZE.",
        ) from None
    try:
        yield ManyProcesses()
        # No process leaves while another still communicates with it. After an error there is no barrier: the others
        # may wait in another call, which ends as soon as this process closes its connections.
        dist.barrier(device_ids=[device.index] if device.type == "cuda" else None)
    except RuntimeError as error:
        if not any(sign in str(error) for sign in LOST_PEER):
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
    """BatchNorm whose training statistics are over all processes; torch's SyncBatchNorm needs a GPU."""

    def _check_input_dim(self, input: Tensor) -> None:
        pass

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or self.running_mean is None or self.running_var is None:
            return super().forward(input)
        dtype, input = input.dtype, input.float() if input.dtype == torch.bfloat16 else input
        axes, channels = [0, *range(2, input.dim())], input.shape[1]
        view = (1, -1, *[1] * (input.dim() - 2))
        count = input.new_full((1,), input.numel() / channels)
        # Mean first and then the squares about it: in one sum the variance would lose its digits.
        sums = _sum_over_processes(torch.cat([input.sum(axes), count]))
        total = sums[-1]
        mean = sums[:-1] / total
        centred = input - mean.view(view)
        variance = _sum_over_processes(centred.square().sum(axes)) / total
        with torch.no_grad():
            momentum = 0.1 if self.momentum is None else self.momentum
            self.running_mean.lerp_(mean, momentum)
            self.running_var.lerp_(variance * total / (total - 1), momentum)
            if self.num_batches_tracked is not None:
                self.num_batches_tracked += 1
        out = centred * torch.rsqrt(variance + self.eps).view(view)
        return (out * self.weight.view(view) + self.bias.view(view) if self.affine else out).to(dtype)


def synchronise_batch_norm(model: nn.Module) -> None:
    """Turn every BatchNorm into a synchronised one, in place; parameters and statistics stay what they are."""
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.__class__ = SynchronisedBatchNorm
