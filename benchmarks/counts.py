"""The count likelihood: against a double loop with autograd, as a share of a step, as an epoch beside `supervised`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import logsigmoid

from benchmarks.epoch import make_job
from benchmarks.fake_data import images
from benchmarks.timing import Ratio, take_turns
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.counting.observations import CountObservations
from ntmp_cli.counting.poisson_binomial import count_gradient
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.learning.callbacks import Callback, Step
from ntmp_cli.learning.count_kernel import CountKernel
from ntmp_cli.learning.loop import make_optimizer, train_epochs
from ntmp_cli.learning.results import TrainingResult
from ntmp_cli.stages.make_tuples import tuples_from_labelled

TUPLES, LENGTH, POSITIVES = 4096, 32, 8


def ratios() -> Iterator[Ratio]:
    yield _against_a_double_loop()
    yield _many_lengths()
    with tempfile.TemporaryDirectory() as folder:
        data = images("fake-mnist", 60_000, 100, (1, 28, 28))
        config = MakeTuplesConfig(prior=0.5, heldout_share=0.0)
        tuples = tuples_from_labelled(config, [parse_spec("3:1")], data, Path(folder) / "tuples")
        settings = {"prior": 0.5, "epochs": 10_000, "trace_every": 0, "select": "last"}
        yield _share_of_a_step()
        early, late, supervised = (
            make_job(tuples, TrainConfig(method=name, **settings)) for name in ("count", "count", "supervised")
        )
        # Of so many epochs the first ones are the warm-up; the second half of training learns from U instead.
        late.method.prepare = lambda batch, progress, prepare=late.method.prepare: prepare(batch, 0.9)
        callbacks = [_Late(), *late.method.callbacks()]
        late.method.callbacks = lambda: callbacks
        for what, job in (("in its warm-up", early), ("in its self-training", late)):
            ours, other = train_epochs(job, TrainingResult()), train_epochs(supervised, TrainingResult())
            seconds = take_turns(lambda ours=ours: next(ours), lambda other=other: next(other), 9)
            yield Ratio(f"epoch of count {what}, mlp on data of MNIST's size, against supervised", *seconds, 1.2)


class _Late(Callback):
    """Tells the callbacks after it that training is nearly done."""

    def on_step(self, step: Step) -> None:
        step.progress = 0.9


def _against_a_double_loop() -> Ratio:
    z = torch.randn(TUPLES, LENGTH, generator=torch.Generator().manual_seed(0)).requires_grad_()
    kernel = CountKernel(CountObservations(np.full(TUPLES, LENGTH), np.full(TUPLES, POSITIVES)))

    def ours() -> None:
        kernel.log_prob(z.view(-1)).mean().backward()

    def loop() -> None:
        _double_loop(z, POSITIVES).mean().backward()

    gap = (kernel.log_prob(z.view(-1)) - _double_loop(z, POSITIVES)).abs().max()
    assert gap < 1e-3, "both compute the same"
    what = f"count log-probability and gradient, {TUPLES:,} tuples of ({LENGTH},{POSITIVES}), against a double loop"
    return Ratio(what, *take_turns(ours, loop, 15), 0.2)


def _many_lengths() -> Ratio:
    """A pass over as many instances, in tuples of 181 lengths and of one."""
    rng = np.random.default_rng(0)

    def work(sizes: NDArray[np.int64]) -> Callable[[], object]:
        observed = CountObservations(sizes, rng.binomial(sizes, 0.4))
        z = rng.normal(-0.5, 1.5, observed.instances)
        return lambda: count_gradient(z, observed)

    many, one = work(rng.permutation(np.arange(20, 201))), work(np.full(181, 110))
    what = "count log-probability and gradient without torch, 19,910 instances in 181 lengths, against one length"
    return Ratio(what, *take_turns(many, one, 45), 2.0)


def _double_loop(z: Tensor, positives: int) -> Tensor:
    """log P(count) by the recursion over (i, k), one tensor operation each."""
    log_p, log_q = logsigmoid(z), logsigmoid(-z)
    table = [z.new_zeros(len(z))] + [z.new_full((len(z),), -1e30)] * positives
    for i in range(z.shape[1]):
        table = [table[0] + log_q[:, i]] + [
            torch.logaddexp(table[k] + log_q[:, i], table[k - 1] + log_p[:, i]) for k in range(1, positives + 1)
        ]
    return table[positives]


def _share_of_a_step() -> Ratio:
    """The likelihood's share of a training step of the mlp on 1,024 instances in tuples of (3,1)."""
    from ntmp_cli.learning.models import build_scorer

    ones, zeros = np.ones(1, dtype=np.float32), np.zeros(1, dtype=np.float32)
    model = build_scorer("mlp", (1, 28, 28), ones.reshape(1, 1, 1), zeros.reshape(1, 1, 1), 0)
    optimizer = make_optimizer(model, TrainConfig(prior=0.5))
    x, kernel = torch.rand(1023, 1, 28, 28), CountKernel(CountObservations(np.full(341, 3), np.ones(341)))
    z = model(x).detach().requires_grad_()

    def likelihood() -> None:
        kernel.log_prob(z).mean().backward()

    def step() -> None:
        loss = -kernel.log_prob(model(x)).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    what = "count likelihood as a share of an mlp step at (3,1)"
    return Ratio(what, *take_turns(_twenty(likelihood), _twenty(step), 9), 0.1)


def _twenty(work: Callable[[], None]) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(20):
            work()

    return repeated
