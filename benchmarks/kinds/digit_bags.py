"""MNIST bags of 10, "contains a 9": the likelihood of `>=1` and `0` beside torchmil's models, one encoder for all.

All networks have the hidden layers of our mlp, Adam at 1e-3 and the same epochs over the same bags. Ours also passes
over the members as its pool; its prior is the likeliest rate by the share of bags without a 9.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from sklearn.metrics import roc_auc_score

from benchmarks.kinds.image_data import images
from benchmarks.kinds.store import NETWORK_CODE, Cell, Study
from benchmarks.table_data import Floats, Ints

NAME = "digit_bags"
SIZE, BAGS, TEST_BAGS, EPOCHS, BATCH = 10, 1000, 1000, 15, 1000
DRAWS = 3
DATA = {"mnist: a 9": ("MNIST", 9), "fashion: a bag": ("FashionMNIST", 8)}
HERE = ("benchmarks/kinds/digit_bags.py", "benchmarks/kinds/image_data.py")


class Bags(NamedTuple):
    """Members bag by bag; labels of test members judge alone."""

    x: Floats
    some: Ints
    test_x: Floats
    test_y: Ints

    @property
    def test_some(self) -> Ints:
        return self.test_y.reshape(-1, SIZE).max(axis=1)


def ours(bags: Bags, seed: int) -> tuple[Floats, Floats]:
    """Scores of test members and of test bags."""
    from ntmp_cli.classifier import NTMPClassifier

    model = NTMPClassifier(method="count", model="mlp", epochs=EPOCHS, random_state=seed, batch_size=BATCH)
    ids = np.repeat(np.arange(len(bags.some)), SIZE)
    prior = float(1 - (1 - bags.some.mean()) ** (1 / SIZE))
    model.fit(bags.x, ids, [">=1" if some else "0" for some in bags.some], unlabeled=bags.x, prior=prior)
    z = model.decision_function(bags.test_x)
    return z, np.logaddexp(0, z).reshape(-1, SIZE).sum(axis=1)


def torchmil(bags: Bags, seed: int, name: str) -> tuple[Floats, Floats] | None:
    """The same by a model of torchmil; its attention scores the members."""
    try:
        models = importlib.import_module("torchmil.models")
    except ImportError:
        return None
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    encoder = _encoder()
    extra = {"transf_att_dim": 128} if "Transformer" in name else {}
    model = getattr(models, name)(in_shape=(bags.x.shape[1],), feat_ext=encoder.eval(), **extra)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    x = torch.from_numpy(bags.x).float().reshape(-1, SIZE, bags.x.shape[1])
    some, mask = torch.from_numpy(bags.some).float(), torch.ones(BATCH // SIZE, SIZE)
    order = torch.Generator().manual_seed(seed)
    for _ in range(EPOCHS):
        model.train()
        for batch in torch.randperm(len(x), generator=order).split(BATCH // SIZE):
            _, losses = model.compute_loss(some[batch], x[batch], mask[: len(batch)])
            optimizer.zero_grad()
            sum(losses.values()).backward()
            optimizer.step()
    model.eval()
    test = torch.from_numpy(bags.test_x).float().reshape(-1, SIZE, bags.x.shape[1])
    with torch.no_grad():
        of_bags, members = model.predict(test, torch.ones(len(test), SIZE), return_inst_pred=True)
    return members.reshape(-1).double().numpy(), of_bags.double().numpy()


def _encoder() -> Any:
    from torch import Tensor, nn

    from ntmp_cli.learning.models import build_network

    class Encoder(nn.Module):
        """The hidden layers of our mlp on bags: (bags, members, 784) to (bags, members, units)."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(*list(build_network("mlp", (784,)).children())[1:-1])

        def forward(self, bags: Tensor) -> Tensor:
            features: Tensor = self.layers(bags.flatten(0, -2))
            return features.reshape(*bags.shape[:-1], -1)

    return Encoder()


LEARNERS: dict[str, Callable[[Bags, int], tuple[Floats, Floats] | None]] = {
    "`count` of `>=1` and `0`, mlp": ours,
    "torchmil: attention": lambda bags, seed: torchmil(bags, seed, "ABMIL"),
    "torchmil: transformer": lambda bags, seed: torchmil(bags, seed, "TransformerABMIL"),
}


def cells(quick: bool) -> Iterator[Cell]:
    for draw in range(1 if quick else DRAWS):
        for data in list(DATA)[:1] if quick else DATA:
            for row in LEARNERS:
                yield Cell(NAME, data, row, draw)


def measure(cell: Cell) -> dict[str, float] | None:
    """AUROC of test members and of test bags."""
    name, positive = DATA[cell.data]
    x, labels, test_x, test_labels = images(name)
    rng = np.random.default_rng([cell.draw, 23])
    rows, test = rng.permutation(len(x))[: BAGS * SIZE], rng.permutation(len(test_x))[: TEST_BAGS * SIZE]
    some = (labels[rows] == positive).reshape(-1, SIZE).any(axis=1).astype(int)
    bags = Bags(x[rows], some, test_x[test], (test_labels[test] == positive).astype(int))
    found = LEARNERS[cell.row](bags, cell.draw)
    if found is None:
        return None
    members, of_bags = found
    return {
        "instance_auroc": roc_auc_score(bags.test_y, members),
        "bag_auroc": roc_auc_score(bags.test_some, of_bags),
    }


STUDY = Study(NAME, cells, measure, lambda _: (*HERE, *NETWORK_CODE))
