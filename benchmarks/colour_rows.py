"""The paper's eighteen rows on CIFAR-10 and SVHN, a training at a time, into docs/results/colour.yaml.

python -m benchmarks.colour_rows                                       # seed 0 of every cell
python -m benchmarks.colour_rows --seeds 1 2 --priors 0.5
python -m benchmarks.colour_rows --methods supervised --tuples 3:1

The recipe `patches-mlp` trains a small network on frozen patch features. The filters are fitted once per data set,
without labels, on the images of one directory of tuples; every other cell takes its features from there. `convnet`
trains a network on pixels, which first learns the scores of `patches-mlp` on the same tuples. What is in the file is
skipped, and every training is written when it ends: stop the process at any time and start it again. The data sets are
those of NTMP_DATA. `python -m docs.write_colour` then makes the tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ntmp_cli.artifacts.layout import ENCODER_WEIGHTS
from ntmp_cli.config import EvaluateConfig, MakeTuplesConfig, TrainConfig
from ntmp_cli.stages.evaluate import evaluate
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

FILE = Path(__file__).parents[1] / "docs" / "results" / "colour.yaml"
TUPLES = ("3:1", "5:2", "7:2")
PRIORS = (0.2, 0.5, 0.8)
METRICS = ("accuracy", "accuracy_at_prior", "auroc")
# Photographs are seen beside their mirror images; digits need a finer grid of regions.
ENCODERS = {
    "cifar10": "patches:filters=800,components=800,views=2",
    "svhn": "patches:filters=800,grid=3,components=800",
}


@dataclass(frozen=True)
class Recipe:
    """How a cell is trained."""

    settings: Mapping[str, Any]
    on_patches: bool = True
    """On features of patches, not on pixels."""
    teacher: str | None = None
    """The recipe whose run is the first teacher of `count`."""


RECIPES = {
    "patches-mlp": Recipe({"model": "mlp", "epochs": 10}),
    "convnet": Recipe({"model": "convnet", "epochs": 20}, on_patches=False, teacher="patches-mlp"),
}
HEAD = (
    "# A record per training on colour images, by `python -m benchmarks.colour_rows`; docs/write_colour.py reads it.\n"
)


class Key(NamedTuple):
    """Which training: a cell of the paper's table, a seed, a method, by which recipe."""

    data: str
    n: int
    m: int
    prior: float
    seed: int
    method: str
    recipe: str


def load(file: Path) -> dict[Key, dict[str, Any]]:
    """The records that are kept, by training."""
    kept = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else None
    return {Key(*(record[name] for name in Key._fields)): record for record in kept or []}


def save(file: Path, records: Mapping[Key, Mapping[str, Any]]) -> None:
    """Replace the file at once, so that a stopped process leaves a whole one."""
    lines = [
        f"- {yaml.safe_dump(dict(records[key]), default_flow_style=True, sort_keys=False, width=1000)}"
        for key in sorted(records)
    ]
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(".new")
    written.write_text(HEAD + "".join(lines), encoding="utf-8")
    written.replace(file)


def fitted_encoder(data: str, work: Path) -> Path:
    """The weights of the patch filters, fitted on the images of one directory of tuples, whose features stay."""
    source = MakeTuplesConfig(dataset=data, tuples=("3:1",), prior=0.5, seed=0)
    tuples = make_tuples(source, work / "encoder-tuples", data_root=data_root(), if_exists="refresh").path
    config = TrainConfig(method="discriminant", encoder=ENCODERS[data])
    run = train(config, tuples, work / "encoder-run", TrainOptions(if_exists="refresh", features=work))
    return run.path / ENCODER_WEIGHTS


def measure(key: Key, work: Path) -> dict[str, Any]:
    """Train and evaluate one cell; what it leaves on the disk is removed."""
    cell = work / f"{key.n}-{key.m}-{key.prior}-{key.seed}"
    source = MakeTuplesConfig(dataset=key.data, tuples=(f"{key.n}:{key.m}",), prior=key.prior, seed=key.seed)
    tuples = make_tuples(source, cell / "tuples", data_root=data_root(), if_exists="refresh").path
    started = time.process_time()
    run = train_recipe(key, tuples, cell, work)
    seconds = time.process_time() - started
    evaluation = evaluate(EvaluateConfig(metrics=METRICS), [run], cell / f"{key.method}-evaluation")
    values = {row["metric"]: round(float(row["value"]), 6) for row in evaluation.rows}
    shutil.rmtree(cell)
    return {**key._asdict(), **{name: values[name] for name in METRICS}, "seconds": round(seconds)}


def train_recipe(key: Key, tuples: Path, cell: Path, work: Path) -> Path:
    """The run of a recipe, after that of its teacher; features of patches are removed after the training."""
    recipe = RECIPES[key.recipe]
    settings: dict[str, Any] = {"method": key.method, "seed": key.seed, "trace_every": 0, **recipe.settings}
    if recipe.on_patches:
        encoder = {"encoder": ENCODERS[key.data], "encoder_weights": str(fitted_encoder(key.data, work))}
        settings = {**settings, **encoder}
    if recipe.teacher is not None and key.method == "count":
        teacher = train_recipe(key._replace(recipe=recipe.teacher), tuples, cell, work)
        settings = {**settings, "warmup": "teacher", "teacher": str(teacher)}
    kept = set(work.glob("features-*"))
    options = TrainOptions(if_exists="refresh", resume="if-same", features=work)
    run = train(TrainConfig.model_validate(settings), tuples, cell / f"{key.recipe}-{key.method}", options).path
    for features in set(work.glob("features-*")) - kept:
        shutil.rmtree(features)
    return run


def data_root() -> Path | None:
    return Path(os.environ["NTMP_DATA"]) if "NTMP_DATA" in os.environ else None


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    records = load(options.file)
    for seed, prior, tuples, data, method in product(
        options.seeds, options.priors, options.tuples, options.data, options.methods
    ):
        key = Key(data, *map(int, tuples.split(":")), prior, seed, method, options.recipe)
        if key in records:
            continue
        record = measure(key, options.work / data)
        records = {**load(options.file), key: record}
        save(options.file, records)
        print(record, flush=True)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=tuple(RECIPES), default=next(iter(RECIPES)))
    parser.add_argument("--methods", nargs="+", choices=("count", "supervised"), default=["count"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data", nargs="+", choices=tuple(ENCODERS), default=tuple(ENCODERS))
    parser.add_argument("--tuples", nargs="+", choices=TUPLES, default=TUPLES)
    parser.add_argument("--priors", type=float, nargs="+", choices=PRIORS, default=PRIORS)
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--work", type=Path, default=Path("work/colour-rows"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
