"""Long tuples of MNIST: how near `count` comes to what as many labels as there are tuples would give.

    NTMP_DATA=… python -m benchmarks.long_tuples              # every setting, three seeds; fills docs/guides/methods.md
    NTMP_DATA=… python -m benchmarks.long_tuples --seeds 0 --only 0
    NTMP_DATA=… python -m benchmarks.long_tuples --batches    # other batches, on another seed and a smaller pool

A tuple of any length tells one number. A tuple of one is a label, so that the references are trainings of `count` as
well: on as many tuples of one, with the pool (pseudo-labels) and without. "All labels" are those of every instance of
tuples and pool (`supervised`). One thread, the default network, ten epochs. Test labels are opened to count mistakes
and for nothing else. Results are kept in benchmarks/long_tuples.json; what it has already is not computed again.
What is measured was chosen on seeds from 10 on.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy is loaded

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import MakeTuplesConfig, TrainConfig
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import train

RESULTS = Path(__file__).with_suffix(".json")
PAGE = Path(__file__).parents[1] / "docs" / "guides" / "methods.md"
BEGIN, END = "<!-- written by python -m benchmarks.long_tuples -->", "<!-- end -->"
SEEDS = (0, 1, 2)
EPOCHS = 10
BATCH_WORDS = (
    "Batches by number of tuples instead of instances, tried on another seed (100 of 100:~.3, a pool of 8,000):"
)


class Setting(NamedTuple):
    """Tuples, how many, the rate of labels in their place, the prior (None: as in the data) and size of the pool."""

    spec: str
    tuples: int
    rate: float
    prior: float | None
    pool: int | None = None


SETTINGS = {
    "100 of 100:~.3": Setting("100:~0.3", 100, 0.3, None),
    "120 of 500:100-300": Setting("500:100-300", 120, 0.4, None),
    "1,200 of 50:25, pool at .3": Setting("50:25", 1200, 0.5, 0.3),
    "3,000 of 20:10, pool at .3": Setting("20:10", 3000, 0.5, 0.3),
}


class Way(NamedTuple):
    """Settings of a training, and whether its tuples are labels of single instances."""

    settings: dict[str, Any]
    labels: bool = False


WAYS = {
    "before": Way({"membership": 0.0}),
    "`count`": Way({}),
    "labels": Way({"method": "count-plain"}, labels=True),  # of tuples of one the likelihood is the cross-entropy
    "labels and pool": Way({"trust": "prior"}, labels=True),
    "all labels": Way({"method": "supervised"}),
}


# Batches by number of tuples. A pool of 8,000 beside 100 tuples of 100 is 180 instances per tuple, so that the default
# of 256 instances has one or two tuples per step.
BATCH_SEED, BATCH_KEY = 10, "batches"
BATCH_SETTING = Setting("100:~0.3", 100, 0.3, None, 8000)
BATCHES = {
    "256 instances (the default)": Way({}),
    "4 tuples": Way({"batch_size": 720}),
    "4 tuples, as many steps": Way({"batch_size": 720, "epochs": 28}),
}


def accuracy(setting: Setting, way: Way, seed: int) -> float:
    """Share of the test split that is classified right."""
    spec = f"1:~{setting.rate}" if way.labels else setting.spec
    sizes = {"num_tuples": setting.tuples, "unlabeled_size": setting.pool}
    data = MakeTuplesConfig(dataset="mnist", tuples=(spec,), prior=setting.prior, seed=seed, **sizes)
    root = os.environ.get("NTMP_DATA")
    with tempfile.TemporaryDirectory() as folder:
        made = make_tuples(data, Path(folder) / "tuples", data_root=None if root is None else Path(root))
        config = TrainConfig.model_validate(
            {"prior": made.summary.prior, "seed": seed, "epochs": EPOCHS, "trace_every": 0, **way.settings}
        )
        train(config, Path(folder) / "tuples", Path(folder) / "run")
        scores = read_scores(open_artifact(Path(folder) / "run", "run"))["test"]
        return float(np.mean((scores > 0) == read_labels(made)))


def table(results: dict[str, dict[str, list[float]]]) -> str:
    """Mean accuracies in percent, one row per setting."""
    rows = [["tuples", "seeds", *WAYS]]
    for name, by_way in results.items():
        seeds = str(min(map(len, by_way.values())))
        rows.append([name, seeds, *(f"{100 * np.mean(by_way[way]):.1f}" if way in by_way else "–" for way in WAYS)])
    header, *body = ("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([header, "|---" + "|---:" * (1 + len(WAYS)) + "|", *body])


def batch_table(results: dict[str, float]) -> str:
    """Accuracy in percent by what a step has."""
    rows = [f"| {name} | {100 * value:.1f} |" for name, value in results.items()]
    return "\n".join(["| a step has | accuracy |", "|---|---:|", *rows])


def fill(page: str, text: str) -> str:
    """The page with the text between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def main(arguments: Sequence[str] | None = None) -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="*", default=SEEDS)
    parser.add_argument("--only", type=int, nargs="*", default=range(len(SETTINGS)), help="numbers of settings, from 0")
    parser.add_argument("--batches", action="store_true", help="Other batches alone.")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    batches: dict[str, float] = stored.pop(BATCH_KEY, {})
    results: dict[str, dict[str, dict[str, float]]] = stored

    def keep() -> None:
        RESULTS.write_text(json.dumps({**results, BATCH_KEY: batches}, indent=1) + "\n")

    for name, way in BATCHES.items() if options.batches else ():
        if name not in batches:
            batches[name] = accuracy(BATCH_SETTING, way, BATCH_SEED)
            print(name, batches[name], flush=True)
            keep()
    for seed in () if options.batches else options.seeds:
        for number, (name, setting) in enumerate(SETTINGS.items()):
            for way in WAYS if number in options.only else ():
                by_seed = results.setdefault(name, {}).setdefault(way, {})
                if str(seed) not in by_seed:
                    by_seed[str(seed)] = accuracy(setting, WAYS[way], seed)
                    print(name, way, seed, by_seed[str(seed)], flush=True)
                    keep()
    ordered = {
        name: {way: list(by_seed.values()) for way, by_seed in results[name].items()}
        for name in SETTINGS
        if name in results
    }
    other = f"\n\n{BATCH_WORDS}\n\n{batch_table(batches)}" if batches else ""
    PAGE.write_text(fill(PAGE.read_text(encoding="utf-8"), table(ordered) + other), encoding="utf-8")


if __name__ == "__main__":
    main()
