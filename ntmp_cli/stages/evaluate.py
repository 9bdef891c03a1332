"""evaluate: runs meet the hidden test labels; tidy rows, groups over seeds, learning curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    describe_input,
    kept_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.jsonlines import json_lines, read_json_lines
from ntmp_cli.artifacts.layout import CURVES, HISTORY, ROWS, SUMMARY, TEST_LABELS
from ntmp_cli.artifacts.oracle import read_test_labels
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.config import EvaluateConfig
from ntmp_cli.errors import ArtifactError, UsageError, did_you_mean
from ntmp_cli.evaluation.metrics import Scored, accuracy_curve, evaluate_metrics, metrics
from ntmp_cli.evaluation.summary import Row, summarise
from ntmp_cli.evaluation.variants import variants


def evaluate(config: EvaluateConfig, runs: Sequence[Path], out: Path, *, if_exists: IfExists = "fail") -> Artifact:
    """Score runs on their test labels and publish an evaluation directory."""
    names = list(config.metrics) or metrics.names()
    for name in names:
        metrics.get(name)
    opened = [open_artifact(path, "run") for path in runs]
    _require_test_labels(opened)
    _require_reference(config.reference, opened)
    config_dump = {**config.model_dump(mode="json"), "runs": [_name(run) for run in opened]}
    plan = Plan("evaluation", config_dump, None, tuple(describe_input(run) for run in opened))
    if kept := kept_output(out, plan, if_exists):
        return kept

    told_apart = variants([_settings(run) for run in opened], [_cell(run) for run in opened])
    rows: list[Row] = []
    curves: list[dict[str, Any]] = []
    for run, variant in zip(opened, told_apart, strict=True):
        run_rows, curve = _evaluate_run(run, variant, names)
        rows += run_rows
        curves.append(curve)
    groups = summarise(rows)

    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes(ROWS, json_lines(rows), rows=len(rows))
        staging.add_bytes("rows.csv", _csv(rows), rows=len(rows))
        staging.add_json(SUMMARY, groups, rows=len(groups))
        staging.add_bytes(CURVES, json_lines(curves), rows=len(curves))
        staging.summary = {
            "runs": len(opened),
            "metrics": names,
            "reference": config.reference,
            "methods": sorted({run.summary["method"] for run in opened}),
            "datasets": sorted({run.summary["dataset"] for run in opened}),
        }
    return open_artifact(out)


def _evaluate_run(run: Artifact, variant: str, names: Sequence[str]) -> tuple[list[Row], dict[str, Any]]:
    labels = read_test_labels(run)
    scores, trace_epochs, trace = read_scores(run, "test", "trace_epochs", "trace")
    if len(labels) != len(scores):
        raise ArtifactError(f"{run.path}: {len(scores)} test scores but {len(labels)} test labels")
    facts = run.summary
    cell = {key: facts[key] for key in ("dataset", "tuples", "n", "m", "prior", "method")}
    values = evaluate_metrics(Scored(labels, scores.astype(np.float64), facts["prior"]), names)
    rows = [
        {
            **cell,
            "variant": variant,
            "seed": run.manifest.seed,
            "tuples_seed": facts["tuples_seed"],
            "metric": metric,
            "value": None if math.isnan(value) else value,
            "run": _name(run),
        }
        for metric, value in values.items()
    ]
    history = read_json_lines(run, HISTORY)
    accuracy = accuracy_curve(labels, trace) if len(trace) else np.empty(0)
    curve = {
        **cell,
        "variant": variant,
        "seed": run.manifest.seed,
        "run": _name(run),
        "epochs": [record["epoch"] for record in history],
        "loss": [record["loss"] for record in history],
        "heldout_risk": [record["heldout_risk"] for record in history],
        "accuracy": [[int(epoch), float(value)] for epoch, value in zip(trace_epochs, accuracy, strict=True)],
    }
    return cast(list[Row], rows), curve


def _name(run: Artifact) -> str:
    return run.path.resolve().name


def _cell(run: Artifact) -> tuple[Any, ...]:
    """What a table shows of a run: runs that agree here and differ elsewhere must be told apart."""
    return tuple(run.summary[key] for key in ("dataset", "tuples", "prior", "method"))


def _settings(run: Artifact) -> dict[str, Any]:
    """Every setting that could set a run apart, seeds excepted, and the identity of its test labels."""
    train = {key: value for key, value in run.manifest.config.items() if key != "seed"}
    # How many tuples a shard holds, or how much memory is used, does not change what is learned.
    quiet = {"seed", "shard_size"}
    tuples = {f"tuples.{k}": v for k, v in run.summary["tuples_config"].items() if k not in quiet}
    labels = next(entry.sha256 for entry in run.manifest.files if entry.path == TEST_LABELS)
    return {**train, **tuples, "test": labels[:8]}


def _require_test_labels(runs: Sequence[Artifact]) -> None:
    for run in runs:
        if not run.has(TEST_LABELS):
            raise ArtifactError(
                f"{run.path}: has no test labels: its tuples were imported without a labelled test file",
                hint="Import again with `ntmp import-tuples … --test FILE`, a table with a label column.",
            )


def _require_reference(reference: str | None, runs: Sequence[Artifact]) -> None:
    present = {run.summary["method"] for run in runs}
    if reference is not None and reference not in present:
        raise UsageError(f"--reference {reference}: no run of that method; {did_you_mean(reference, present)}")


def _csv(rows: Sequence[Row]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
