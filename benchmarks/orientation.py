"""How often an orientation is wrong where it was called certain (z ≥ 3) and where it was not.

    python -m benchmarks.orientation OUT             # all draws of every setting, one JSON per setting in OUT
    python -m benchmarks.orientation OUT --draws 2   # a quick look
    python -m benchmarks.orientation OUT --only 9 10 # these settings alone

Short trainings of `count` on draws of two Gaussians in ten dimensions: a linear network in most settings, `mlp` (which
memorises its tuples) in some. The labels of the pool are sampled independently, so that its share of positives is not
exactly the prior. One process, one thread. A result that OUT has already is not computed again. OUT/orientation.json
has the shares of every setting; those of settings that were not run now stay as they are.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import argparse
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import NotIdentifiableError
from ntmp_cli.learning.orientation_evidence import CERTAIN
from ntmp_cli.tuple_source import ArraySource, HeldoutData

DIM = 10
HELDOUT = 0.1
EPOCHS = 12
# Draws of other settings and other seeds chose what is measured here.
SEED = 20_000


class Setting(NamedTuple):
    """Tuples of n with m positives, a pool at a prior, and classes so many standard deviations apart."""

    n: int
    m: int
    tuples: int
    pool: int
    prior: float
    separation: float
    told: float | None = None
    """The prior that the training is given, where it is not the true one."""
    model: str = "linear"
    draws: int = 25


SETTINGS = {
    "prior at the rate: 3:1, prior 1/3": Setting(3, 1, 300, 600, 1 / 3, 3.0),
    "prior at the rate, weak classes: 3:1, prior 1/3": Setting(3, 1, 300, 600, 1 / 3, 2.0),
    "prior near the rate: 3:1, prior .38": Setting(3, 1, 300, 600, 0.38, 2.0),
    "half positive: 2:1, prior .46, pool 4,000": Setting(2, 1, 600, 4000, 0.46, 3.0),
    "half positive: 2:1, prior .46, pool 1,000": Setting(2, 1, 400, 1000, 0.46, 3.0),
    "half positive, weak classes: 4:2, prior .4": Setting(4, 2, 200, 800, 0.4, 2.0),
    "the paper's: 3:1, prior .5": Setting(3, 1, 300, 600, 0.5, 2.0),
    "wrong prior: 3:1, prior .5, told .2": Setting(3, 1, 300, 600, 0.5, 3.0, told=0.2),
    "rare positives, few: 50:1, prior .05": Setting(50, 1, 30, 600, 0.05, 4.0),
    "rare positives: 50:1, prior .05": Setting(50, 1, 60, 2000, 0.05, 4.0, draws=15),
    "mlp, prior at the rate: 3:1, prior 1/3": Setting(3, 1, 300, 600, 1 / 3, 3.0, model="mlp", draws=10),
    "mlp, half positive: 2:1, prior .46": Setting(2, 1, 400, 1000, 0.46, 3.0, model="mlp", draws=10),
    "mlp, rare positives: 50:1, prior .05": Setting(50, 1, 30, 600, 0.05, 4.0, model="mlp", draws=10),
}


def drawn(setting: Setting, seed: int) -> tuple[ArraySource, NDArray[np.float32], NDArray[np.int64]]:
    """Tuples with an i.i.d. pool, a tenth of both held out, and 4,000 labelled instances, half of them positive."""
    rng = np.random.default_rng([SEED, seed])
    n, m, tuples, pool = setting[:4]

    def instances(y: NDArray[np.int64]) -> NDArray[np.float32]:
        x = rng.standard_normal((len(y), DIM))
        x[:, 0] += setting.separation * (y - 0.5)
        return x.astype(np.float32)

    inside = instances(rng.permuted(np.tile(np.arange(n) < m, (tuples, 1)), axis=1).ravel().astype(np.int64))
    outside = instances((rng.random(pool) < setting.prior).astype(np.int64))
    sizes, counts = np.full(tuples, n), np.full(tuples, m)
    held, held_pool = round(tuples * HELDOUT), round(pool * HELDOUT)
    heldout = HeldoutData(inside[: held * n], sizes[:held], counts[:held], outside[:held_pool])
    test = np.arange(4000) % 2
    source = ArraySource(inside[held * n :], sizes[held:], counts[held:], outside[held_pool:], heldout)
    return source, instances(test), test


def trained(setting: Setting, seed: int) -> dict[str, Any]:
    """How one training ended: refused, or with a z and the AUROC of labelled instances."""
    from ntmp_cli.learning.oriented_training import train_oriented
    from ntmp_cli.learning.trainer import Training

    source, x, y = drawn(setting, seed)
    rate = 1e-3 if setting.model == "mlp" else 0.05
    shared = {"model": setting.model, "lr": rate, "epochs": EPOCHS, "seed": seed, "trace_every": 0}
    config = TrainConfig.model_validate({"prior": setting.told or setting.prior, **shared})
    started = time.perf_counter()
    try:
        done = train_oriented(Training(config, source))
    except NotIdentifiableError as error:
        return {"seed": seed, "refused": error.message}
    auroc = float(roc_auc_score(y, done.scorer.score(x)))
    return {"seed": seed, "z": done.orientation_z, "auroc": auroc, "seconds": round(time.perf_counter() - started, 1)}


def share(wrong: int, of: int) -> dict[str, Any]:
    """A share with its exact binomial interval."""
    if not of:
        return {"wrong": 0, "of": 0, "share": None, "interval": None}
    low, high = binomtest(wrong, of).proportion_ci()
    return {"wrong": wrong, "of": of, "share": wrong / of, "interval": [float(low), float(high)]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    kept = [row for row in rows if "z" in row]
    certain = [row for row in kept if row["z"] >= CERTAIN]
    uncertain = [row for row in kept if row["z"] < CERTAIN]
    return {
        "trainings": len(rows),
        "refused": len(rows) - len(kept),
        "certain": share(sum(row["auroc"] < 0.5 for row in certain), len(certain)),
        "uncertain": share(sum(row["auroc"] < 0.5 for row in uncertain), len(uncertain)),
        "median_auroc": float(np.median([row["auroc"] for row in kept])) if kept else None,
        "lowest_auroc": min((row["auroc"] for row in kept), default=None),
    }


def together(page: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Over all settings."""
    kinds = {
        kind: share(*(sum(one[kind][key] for one in page.values()) for key in ("wrong", "of")))
        for kind in ("certain", "uncertain")
    }
    return {**{key: sum(one[key] for one in page.values()) for key in ("trainings", "refused")}, **kinds}


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--draws", type=int, help="of every setting; default: as it says")
    parser.add_argument("--only", type=int, nargs="*", default=range(len(SETTINGS)), help="numbers of settings, from 0")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    whole = options.out / "orientation.json"
    page: dict[str, Any] = json.loads(whole.read_text()) if whole.exists() else {}
    page.pop("all", None)
    for number, (name, setting) in enumerate(SETTINGS.items()):
        if number not in options.only:
            continue
        file = options.out / f"{number:02d}.json"
        rows: list[dict[str, Any]] = json.loads(file.read_text())["rows"] if file.exists() else []
        for seed in range(len(rows), options.draws or setting.draws):
            rows.append(trained(setting, seed))
            file.write_text(json.dumps({"name": name, "setting": setting._asdict(), "rows": rows}, indent=1))
        page[name] = summary(rows)
        print(name, json.dumps(page[name]), flush=True)
        ordered = {name: page[name] for name in SETTINGS if name in page}
        whole.write_text(json.dumps({**ordered, "all": together(ordered)}, indent=1) + "\n")
    print("all", json.dumps(together(page)))


if __name__ == "__main__":
    main()
