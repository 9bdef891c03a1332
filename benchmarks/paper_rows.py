"""The accuracy tables of the paper on MNIST and FashionMNIST, a training at a time, into docs/results/paper.yaml.

python -m benchmarks.paper_rows --recipe ours --seeds 0                        # all 18 cells
python -m benchmarks.paper_rows --recipe literal --seeds 0 --tuples 3:1 --priors 0.5 --columns abs relu
python -m benchmarks.paper_rows --recipe literal --columns abs --epochs 1      # of the same trainings, the first epoch

The stages, settings and seeds are those of `ntmp run sample_configs/paper/accuracy-N-M.yaml` (literal) and
`accuracy-N-M-ours.yaml` (ours). What is in the file is skipped, and every training is written when it ends: stop the
process at any time and start it again, an interrupted training goes on from its checkpoint. The data sets are those of
NTMP_DATA. `python -m docs.write_reproduction` then makes the tables.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

from benchmarks.training_store import FOLDER, METRICS, TrainingKey, TrainingStore
from ntmp_cli.config import EvaluateConfig
from ntmp_cli.config.studies import PipelineConfig
from ntmp_cli.errors import NtmpError
from ntmp_cli.learning.method import GradientMethod, methods
from ntmp_cli.settings import load
from ntmp_cli.stages.evaluate import evaluate
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.pipeline import Study, resolve
from ntmp_cli.stages.train import TrainOptions, train, training_epochs

ROOT = Path(__file__).parents[1]
CONFIGS = ROOT / "sample_configs" / "paper"
DATA = ("mnist", "fashion-mnist")
TUPLES = ("3:1", "5:2", "7:2")
PRIORS = (0.2, 0.5, 0.8)
# Where all tuples have one (n, m), these columns are the same objective as another, and the same numbers.
SAME = {"literal": {"uu": "ure"}, "ours": {"uu": "ure", "uucor": "abs"}}


def study_of(recipe: str, tuples: str, data: str, prior: float, seed: int, epochs: int | None = None) -> Study:
    """The file of the table, with one cell and one seed left of it; of its epochs the first `epochs`."""
    name = f"accuracy-{tuples.replace(':', '-')}{'-ours' if recipe == 'ours' else ''}.yaml"
    varied = f"vary.make_tuples={{dataset: [{data}], prior: [{prior}]}}"
    first = [] if epochs is None else [f"train.epochs={epochs}"]
    return resolve(load(PipelineConfig, CONFIGS / name, [f"seeds=[{seed}]", varied, *first]), name)


def name_of(recipe: str, epochs: int | None) -> str:
    """The recipe's name in the file: trainings of fewer epochs have one of their own."""
    return recipe if epochs is None else f"{recipe}-{epochs}"


def measure_cell(study: Study, wanted: Sequence[TrainingKey], store: TrainingStore, file: Path, work: Path) -> None:
    """Train and evaluate the columns of one cell that are missing; the cell's folder is removed at the end."""
    (cell, settings), commit = next(iter(study.tuples.items())), code_version()
    tuples = make_tuples(settings, work / "tuples", data_root=data_root(), if_exists="refresh").path
    for key in wanted:
        started = time.process_time()
        config, out = study.trainings[key.column, cell], work / key.column
        train(config, tuples, out, TrainOptions(if_exists="refresh", resume="if-same", device="cpu"))
        evaluation = evaluate(EvaluateConfig(metrics=METRICS), [out], work / f"{key.column}-evaluation")
        values = {row["metric"]: row["value"] for row in evaluation.rows}
        is_gradient = issubclass(methods.get(config.method), GradientMethod)
        epochs = training_epochs(config, tuples) if is_gradient else None
        store.add(key, values, method=config.method, epochs=epochs, commit=commit)
        store.save(file)
        shown = ", ".join(f"{name} {value:.4f}" for name, value in values.items() if value is not None)
        print(f"{' '.join(map(str, key))}: {shown} ({time.process_time() - started:.0f} s of CPU)", flush=True)
    shutil.rmtree(work)


def data_root() -> Path | None:
    return Path(os.environ["NTMP_DATA"]) if "NTMP_DATA" in os.environ else None


def code_version() -> str:
    """The commit that is measured; a change beside it is said."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "ntmp_cli", "sample_configs/paper")
    return git("rev-parse", "--short=7", "HEAD") + ("-changed" if changed else "")


def main(arguments: Sequence[str] | None = None) -> None:
    options = parsed(arguments)
    store, recipe = TrainingStore.load(options.file), name_of(options.recipe, options.epochs)
    for seed, data, tuples, prior in product(options.seeds, options.data, options.tuples, options.priors):
        n, m = map(int, tuples.split(":"))
        study = study_of(options.recipe, tuples, data, prior, seed, options.epochs)
        columns = options.columns or [name for name in study.config.runs if name not in SAME[options.recipe]]
        if unknown := set(columns) - set(study.config.runs):
            raise SystemExit(f"no such column: {', '.join(sorted(unknown))}; there are {', '.join(study.config.runs)}")
        keys = [TrainingKey(recipe, data, n, m, prior, column, seed) for column in columns]
        if missing := [key for key in keys if key not in store.trainings]:
            folder = f"{recipe}-{data}-{n}-{m}-{prior}-{seed}"
            measure_cell(study, missing, store, options.file, options.work / folder)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=tuple(SAME), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--tuples", nargs="+", choices=TUPLES, default=TUPLES)
    parser.add_argument("--priors", type=float, nargs="+", choices=PRIORS, default=PRIORS)
    parser.add_argument("--columns", nargs="+", help="names of the file's runs; by default all but equal ones")
    parser.add_argument("--epochs", type=int, help="only the first epochs; equal to them if the rate is constant")
    parser.add_argument("--file", type=Path, default=FOLDER / "paper.yaml")
    parser.add_argument("--work", type=Path, default=Path("work/paper-rows"))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    try:
        main()
    except NtmpError as error:  # an interrupted training, or data that are missing
        raise SystemExit(f"error: {error}") from None
