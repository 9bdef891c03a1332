"""Metrics against scikit-learn, and `ntmp evaluate` against reading its scores."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn import metrics as sk

from benchmarks.timing import Ratio, take_turns
from ntmp_cli.artifacts import open_artifact
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import EvaluateConfig, MakeTuplesConfig, TrainConfig
from ntmp_cli.evaluation.metrics import Scored, evaluate_metrics
from ntmp_cli.stages.evaluate import evaluate
from ntmp_cli.stages.make_tuples import make_tuples
from ntmp_cli.stages.train import TrainOptions, train

CPU = TrainOptions(device="cpu")
RUNS, SCORES = 100, 10_000
SEEDS = 5
CELLS, METHODS = 12, 5


def ratios() -> Iterator[Ratio]:
    yield _metrics()
    yield _evaluate()


def _metrics() -> Ratio:
    rng = np.random.default_rng(0)
    labels = rng.random((RUNS, SCORES)) < 0.4
    scores = labels + rng.normal(0, 1.5, labels.shape)

    def ours() -> list[list[float]]:
        scored_sets = (Scored(y, z, 0.4) for y, z in zip(labels, scores, strict=True))
        return [list(evaluate_metrics(scored, ["ap", "auroc", "best_f1"]).values()) for scored in scored_sets]

    def scikit_learn() -> list[list[float]]:
        return [
            [float(sk.average_precision_score(y, z)), float(sk.roc_auc_score(y, z)), _best_f1(y, z)]
            for y, z in zip(labels, scores, strict=True)
        ]

    assert np.allclose(ours(), scikit_learn(), rtol=0, atol=1e-12), "both compute the same"
    what = f"AP, AUROC and Best-F1 of {RUNS} runs with {SCORES:,} scores, against scikit-learn"
    return Ratio(what, *take_turns(ours, scikit_learn, 5), round(1 / 3, 3))


def _best_f1(labels: np.ndarray, scores: np.ndarray) -> float:
    precision, recall, _ = sk.precision_recall_curve(labels, scores)
    return float(np.max(2 * precision * recall / np.maximum(precision + recall, 1e-300)))


def _evaluate() -> Ratio:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        runs = list(_runs(folder))

        def ours() -> None:
            evaluate(EvaluateConfig(reference="method-0"), runs, folder / "evaluation", if_exists="overwrite")

        def reading() -> None:
            for run in runs:
                read_scores(open_artifact(run, "run"))

        what = f"evaluate, {len(runs)} runs on digits, all metrics and comparisons, against reading their scores"
        return Ratio(what, *take_turns(ours, reading, 5), 5.0)


def _runs(folder: Path) -> Iterator[Path]:
    """One training per seed, carried over to other cells and methods by name: files and their sizes are real."""
    for seed in range(SEEDS):
        tuples, original = folder / f"tuples-{seed}", folder / f"original-{seed}"
        make_tuples(MakeTuplesConfig(prior=0.5, seed=seed), tuples)
        train(TrainConfig(prior=0.5, seed=seed, model="linear", method="ure", epochs=30), tuples, original, CPU)
        manifest = json.loads((original / "manifest.json").read_bytes())
        for cell in range(CELLS):
            for method in range(METHODS):
                run = folder / f"run-{cell}-{method}-{seed}"
                shutil.copytree(original, run)
                prior = (cell + 1) / (CELLS + 1)
                named = {"method": f"method-{method}", "prior": prior, "trained_prior": prior}
                renamed = {**manifest, "summary": {**manifest["summary"], **named}}
                (run / "manifest.json").write_text(json.dumps(renamed), encoding="ascii")
                yield run
