"""An epoch of `count` beside one of torchmil's Trainer with its attention model: the same encoder, instances, batches.

Both see 20,000 tuples of three and an unlabeled pool of MNIST's size, on one thread; torchmil gets the pool as bags of
three, because its model learns to tell bags apart. Needs `pip install 'ntmp[bench]'`.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.epoch import make_job
from benchmarks.fake_data import images
from benchmarks.timing import Ratio, take_turns
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.data.specs import parse_spec
from ntmp_cli.learning.loop import Job, train_epochs
from ntmp_cli.learning.models import build_network
from ntmp_cli.learning.results import TrainingResult
from ntmp_cli.stages.make_tuples import tuples_from_labelled
from ntmp_cli.vision import torchvision_module

BATCH = 1024


def ratios() -> Iterator[Ratio]:
    torchvision_module()  # torchmil imports it through torchmetrics
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory() as folder:
            data = images("fake-mnist", 60_000, 100, (1, 28, 28))
            config = MakeTuplesConfig(prior=0.5, heldout_share=0.0)
            tuples = tuples_from_labelled(config, [parse_spec("3:1")], data, Path(folder) / "tuples")
            settings = TrainConfig(prior=0.5, epochs=10_000, trace_every=0, select="last", batch_size=BATCH)
            epochs = train_epochs(make_job(tuples, settings), TrainingResult())
            peer = _torchmil_epoch(make_job(tuples, settings))
            what = "epoch of count, mlp on data of MNIST's size, against torchmil's Trainer, one thread"
            yield Ratio(what, *take_turns(lambda: next(epochs), peer, 3), 0.5)
    finally:
        torch.set_num_threads(before)


class _Encoder(nn.Module):
    """The hidden layers of our mlp on bags: (bags, 3, 784) to (bags, 3, 300)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*list(build_network("mlp", (784,)).children())[1:-1])

    def forward(self, bags: Tensor) -> Tensor:
        features: Tensor = self.layers(bags.flatten(0, -2))
        return features.reshape(*bags.shape[:-1], -1)


def _torchmil_epoch(job: Job) -> Any:
    models, utils = importlib.import_module("torchmil.models"), importlib.import_module("torchmil.utils")
    tensordict = importlib.import_module("tensordict")
    window = job.data.shares[0]._window(job.data.shares[0].groups(1, 1)[0])
    x = (window.x * job.model.factor).flatten(1)
    bags = x[: len(x) // 3 * 3].view(-1, 3, x.shape[1])
    labels = (torch.arange(len(bags)) < len(window.sizes)).long()
    dataset = [
        tensordict.TensorDict({"X": bag, "Y": label, "mask": torch.ones(3, dtype=torch.bool)})
        for bag, label in zip(bags, labels, strict=True)
    ]
    collate = importlib.import_module("torchmil.data").collate_fn
    loader = torch.utils.data.DataLoader(dataset, batch_size=BATCH // 3, shuffle=True, collate_fn=collate)
    model = models.ABMIL(
        in_shape=(784,), att_dim=128, feat_ext=_Encoder().eval()
    )  # it tries one instance, which BatchNorm refuses in training
    trainer = utils.Trainer(
        model,
        torch.optim.Adam(model.parameters(), 1e-3),
        device="cpu",
        disable_pbar=True,
        verbose=False,
    )
    return lambda: trainer.train(max_epochs=1, train_dataloader=loader)
