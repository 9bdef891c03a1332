"""evaluate: runs meet the hidden labels; tidy rows, groups over seeds, comparisons, calibration, learning curves."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

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
from ntmp_cli.artifacts.layout import (
    COMPARISONS,
    CURVES,
    HELDOUT_LABELS,
    HISTORY,
    RANKINGS,
    RELIABILITY,
    ROWS,
    RUNS,
    SUMMARY,
    TEMPERATURES,
    TEST_LABELS,
)
from ntmp_cli.artifacts.oracle import read_oracle
from ntmp_cli.artifacts.scores import read_all_scores
from ntmp_cli.config import EvaluateConfig
from ntmp_cli.errors import ArtifactError, UsageError, did_you_mean
from ntmp_cli.evaluation.calibration import (
    Temperature,
    brier_parts,
    equal_width_bins,
    temperature_by_labels,
)
from ntmp_cli.evaluation.comparisons import compare
from ntmp_cli.evaluation.metrics import (
    Scored,
    Temperatures,
    accuracy_curve,
    evaluate_metrics,
    metrics,
    refuse_nan,
)
from ntmp_cli.evaluation.rankings import rankings
from ntmp_cli.evaluation.summary import Row, summarise
from ntmp_cli.evaluation.variants import variants
from ntmp_cli.stages.temperature import counts_temperature


def evaluate(config: EvaluateConfig, runs: Sequence[Path], out: Path, *, if_exists: IfExists = "fail") -> Artifact:
    """Score runs on their test labels and publish an evaluation directory."""
    names = list(config.metrics) or metrics.names()
    for name in names:
        metrics.get(name)
    opened = [open_artifact(path, "run") for path in runs]
    _require_test_labels(opened)
    _require_reference(config.reference, opened)
    config_dump = {**config.model_dump(mode="json"), "runs": [_name(run) for run in opened]}
    plan = Plan("evaluation", config_dump, None, tuple(describe_input(run) for run in opened), tuple(runs))
    if kept := kept_output(out, plan, if_exists):
        return kept

    found = _Found()
    for run, group in zip(opened, _groups(opened), strict=True):
        _evaluate_run(run, group, names, found)
    groups = summarise(found.rows)
    ceilings = {run.summary["method"] for run in opened if run.summary["ceiling"]}
    compared = []
    if config.reference is not None:
        compared = compare(found.rows, config.reference, family=config.family, ceilings=ceilings)

    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes(ROWS, json_lines(found.rows), rows=len(found.rows))
        staging.add_bytes("rows.csv", table_csv(found.rows), rows=len(found.rows))
        staging.add_json(SUMMARY, groups, rows=len(groups))
        lines: dict[str, Sequence[Any]] = {
            COMPARISONS: compared,
            RANKINGS: rankings(groups, ceilings),
            CURVES: found.curves,
            TEMPERATURES: found.temperatures,
            RELIABILITY: found.reliability,
            RUNS: found.runs,
        }
        for name, objects in lines.items():
            staging.add_bytes(name, json_lines(objects), rows=len(objects))
        staging.summary = {
            "runs": len(opened),
            "metrics": names,
            "reference": config.reference,
            "family": config.family,
            "methods": sorted({run.summary["method"] for run in opened}),
            "datasets": sorted({run.summary["dataset"] for run in opened}),
        }
    return open_artifact(out)


@dataclass
class _Found:
    """What all runs say, line by line."""

    rows: list[Row] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)
    temperatures: list[dict[str, Any]] = field(default_factory=list)
    reliability: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Opened so far, by the hash of their file."""


def _evaluate_run(run: Artifact, group: dict[str, Any], names: Sequence[str], found: _Found) -> None:
    scored, scores, fits = _scored(run, run.summary["prior"], found)
    name, seeds = _name(run), {"seed": run.manifest.seed, "tuples_seed": run.summary["tuples_seed"]}
    found.rows += [
        cast(Row, {**group, **seeds, "metric": metric, "value": _or_none(value), "run": name})
        for metric, value in evaluate_metrics(scored, names).items()
    ]
    mark = {**group, "seed": run.manifest.seed, "run": name}
    found.temperatures += [
        {
            **mark,
            "by": by,
            "temperature": _or_none(fit.value),
            "fit": fit.fit,
            "heldout_nll": _or_none(fit.nll),
            "heldout_nll_unscaled": _or_none(fit.nll_at_one),
        }
        for by, fit in fits.items()
    ]
    found.runs.append({**mark, **_lineage(run)})
    found.reliability += [{**mark, **diagram} for diagram in _reliability(scored)]
    history, traced = read_json_lines(run, HISTORY), scores["trace_epochs"].tolist()
    accuracy = accuracy_curve(scored.labels, scores["trace"]) if len(scores["trace"]) else np.empty(0)
    found.curves.append(
        {
            **mark,
            "epochs": [record["epoch"] for record in history],
            "loss": [record["loss"] for record in history],
            "heldout_risk": [record["heldout_risk"] for record in history],
            "accuracy": [[epoch, value] for epoch, value in zip(traced, accuracy.tolist(), strict=True)],
        }
    )


def _lineage(run: Artifact) -> dict[str, Any]:
    """What a report says about a run: settings, where it came from, what it was trained on."""
    manifest, facts = run.manifest, run.summary
    names = ("ceiling", "mean_rate", "task", "tuples_seed", "tuples_config", "model", "encoder", "parameters", "epochs")
    return {
        "sha256": run.sha256,
        "inputs": list(manifest.inputs),
        "package_version": manifest.package_version,
        "config": manifest.config,
        **{name: facts.get(name) for name in (*names, "selected_epoch")},
    }


# Calibration ---------------------------------------------------------------------------------------


def _temperatures(run: Artifact, scores: dict[str, NDArray[Any]], found: _Found) -> dict[str, Temperature]:
    """Fitted on held-out data: to the labels of U, which has the prior of deployment, and to the counts of tuples."""
    if "heldout_tuples" not in scores:
        nothing = Temperature(math.nan, "no held-out data")
        return {"labels": nothing, "counts": nothing}
    outside = scores["heldout_unlabeled"].astype(np.float64)
    refuse_nan(outside)
    by_counts = counts_temperature(run, scores)
    if not run.has(HELDOUT_LABELS):
        return {"labels": Temperature(math.nan, "no labels"), "counts": by_counts}
    labels = _labels(run, HELDOUT_LABELS, found)
    if len(labels) != len(outside):
        raise ArtifactError(f"{run.path}: {len(outside)} held-out scores but {len(labels)} held-out labels")
    return {"labels": temperature_by_labels(outside, labels), "counts": by_counts}


def _labels(run: Artifact, name: str, found: _Found) -> NDArray[np.bool_]:
    """Runs on the same tuples carry the same labels: every copy is verified, one is opened."""
    run.file(name)
    sha256 = next(entry.sha256 for entry in run.manifest.files if entry.path == name)
    if sha256 not in found.labels:
        found.labels[sha256] = read_oracle(run, name)["labels"].astype(bool)
    return found.labels[sha256]


def _reliability(scored: Scored) -> Iterator[dict[str, Any]]:
    """What a reliability diagram shows, per temperature, on the test split as it is and reweighted to π."""
    for by, forecasts in scored.forecasts.items():
        for weighting, weights in (("as it is", None), ("at prior", scored.weights_at_prior)):
            if forecasts is None or (weighting == "at prior" and weights is None):
                continue
            bins = equal_width_bins(scored.labels, forecasts.p, weights)
            yield {
                "scaling": by or "none",
                "weighting": weighting,
                "mass": bins.mass.tolist(),
                "confidence": [_or_none(value) for value in bins.confidence.tolist()],
                "frequency": [_or_none(value) for value in bins.frequency.tolist()],
                "brier": brier_parts(scored.labels, forecasts.p, weights)._asdict(),
            }


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


# What may be compared ------------------------------------------------------------------------------


def run_metrics(run: Artifact, names: Sequence[str], prior: float) -> dict[str, float | None]:
    """Metrics of a run on its test labels, at a deployment prior; None where one is undefined."""
    scored, _, _ = _scored(run, prior, _Found())
    return {name: _or_none(value) for name, value in evaluate_metrics(scored, names).items()}


def _scored(
    run: Artifact, prior: float, found: _Found
) -> tuple[Scored, dict[str, NDArray[Any]], dict[str, Temperature]]:
    """Test scores beside their labels, all scores, and the temperatures that held-out data ask for."""
    labels, scores = _labels(run, TEST_LABELS, found), read_all_scores(run)
    if len(labels) != len(scores["test"]):
        raise ArtifactError(f"{run.path}: {len(scores['test'])} test scores but {len(labels)} test labels")
    fits = _temperatures(run, scores, found)
    temperatures = Temperatures(*(fit.value for fit in fits.values()))
    return Scored(labels, scores["test"].astype(np.float64), prior, temperatures), scores, fits


def _name(run: Artifact) -> str:
    return run.path.resolve().name


def _groups(runs: Sequence[Artifact]) -> list[dict[str, Any]]:
    """Where each run belongs: cells of equal tuples, whatever the method, and within them variants of a method.

    Runs are compared inside a cell. What the specs do not tell apart (other positive classes, sizes, noise, test
    labels) is added to the name of the tuples, so that runs on different data never share a cell.
    """
    facts = [run.summary for run in runs]
    blocks = [(own["dataset"], own["tuples"], own["prior"]) for own in facts]
    tuples = [
        f"{own['tuples']} [{differing}]" if differing else own["tuples"]
        for own, differing in zip(facts, variants([_tuple_settings(run) for run in runs], blocks), strict=True)
    ]
    groups = [
        {"dataset": own["dataset"], "tuples": name, **{key: own[key] for key in ("n", "m", "prior", "method")}}
        for own, name in zip(facts, tuples, strict=True)
    ]
    _require_same_tuples(runs, groups)
    cells = [tuple(group.values()) for group in groups]
    for group, variant in zip(groups, variants([_train_settings(run) for run in runs], cells), strict=True):
        group["variant"] = variant
    return groups


def _train_settings(run: Artifact) -> dict[str, Any]:
    settings = {key: value for key, value in run.manifest.config.items() if key != "seed"}
    if run.summary.get("prior_estimated"):
        settings["prior"] = "estimated"  # a little different for every seed
    return settings


def _tuple_settings(run: Artifact) -> dict[str, Any]:
    """Every setting that tuples were made with, and the identity of their test labels; not their seed."""
    # How many tuples a shard holds does not change what is learned.
    quiet = {"seed", "shard_size"}
    settings = {key: value for key, value in run.summary["tuples_config"].items() if key not in quiet}
    labels = next(entry.sha256 for entry in run.manifest.files if entry.path == TEST_LABELS)
    # Tuples that were not drawn have no seed: each directory is data of its own.
    own = {} if run.summary["tuples_seed"] is not None else {"directory": _tuples_identity(run)[0][:8]}
    return {**settings, **own, "test": labels[:8]}


def _tuples_identity(run: Artifact) -> tuple[str, str | None]:
    """The manifest of the tuples that a run was trained on, and (from recent versions) their content alone."""
    manifest = next(entry["sha256"] for entry in run.manifest.inputs if entry["kind"] == "tuples")
    return manifest, run.summary.get("tuples_content")


def _require_same_tuples(runs: Sequence[Artifact], groups: Sequence[dict[str, Any]]) -> None:
    """Runs that would be paired, of one cell and one seed of tuples, must have seen the same tuples."""
    first: dict[tuple[Any, ...], Artifact] = {}
    for run, group in zip(runs, groups, strict=True):
        cell = (group["dataset"], group["tuples"], group["prior"], run.summary["tuples_seed"])
        other = first.setdefault(cell, run)
        if not any(ours == theirs for ours, theirs in zip(*map(_tuples_identity, (run, other)), strict=True) if ours):
            raise UsageError(
                f"runs {_name(other)} and {_name(run)} name the same tuples ({cell[0]} {cell[1]}, seed {cell[3]}) but "
                "were trained on different ones",
                hint="Train both on the same directory, or evaluate them apart.",
            )


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


def table_csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
