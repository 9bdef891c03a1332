"""evaluate: metrics of runs on their test labels; rows, groups over seeds, comparisons, calibration, curves."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ntmp_cli.artifacts import (
    IfExists,
    Plan,
    RunArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.evaluations import Evaluation, read_evaluation
from ntmp_cli.artifacts.jsonlines import json_lines, table_csv
from ntmp_cli.artifacts.layout import (
    COMPARISONS,
    CURVES,
    HELDOUT_LABELS,
    RANKINGS,
    RELIABILITY,
    ROWS,
    RUNS,
    SUMMARY,
    TEMPERATURES,
    TEST_LABELS,
)
from ntmp_cli.artifacts.oracle import read_labels
from ntmp_cli.artifacts.row_types import read_history
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.summaries import EvaluationSummary, RunSummary
from ntmp_cli.config import EvaluateConfig
from ntmp_cli.counting.recorded import known_counts
from ntmp_cli.errors import ArtifactError, UsageError, did_you_mean
from ntmp_cli.evaluation.calibration import (
    Temperature,
    refuse_nan,
    temperature_by_labels,
)
from ntmp_cli.evaluation.comparisons import (
    Comparison,
    MethodVariant,
    Reference,
    compare,
    default_reference,
    method_variant_of,
    variants,
)
from ntmp_cli.evaluation.diagrams import decisions_of, reliability_of, warmup_end
from ntmp_cli.evaluation.metrics import (
    BAG_METRICS,
    Bags,
    Scored,
    Temperatures,
    accuracy_curve,
    evaluate_metrics,
    metrics,
)
from ntmp_cli.evaluation.rankings import rankings
from ntmp_cli.evaluation.summary import DataCell, Row, cell_of, summarise
from ntmp_cli.evaluation.temperature import counts_temperature
from ntmp_cli.plugins import plugin_settings
from ntmp_cli.progress import long_step

log = logging.getLogger(__name__)


def evaluate(config: EvaluateConfig, runs: Sequence[Path], out: Path, *, if_exists: IfExists = "fail") -> Evaluation:
    """Score runs on their test labels and publish an evaluation directory; its tables are returned."""
    names = list(config.metrics) or metrics.names()
    for name in names:
        metrics.get(name)
    with long_step("opening runs", len(runs), "runs") as advance:
        opened = []
        for path in runs:
            opened.append(open_artifact(path, "run"))
            advance(1)
    _require_test_labels(opened)
    grouped = _groups(opened)
    reference = _reference(config.reference, grouped)
    config_dump = {**config.model_dump(mode="json"), "runs": [_name(run) for run in opened]}
    config_dump |= plugin_settings({"metrics": names})
    plan = Plan("evaluation", config_dump, None, tuple(describe_input(run) for run in opened), tuple(runs))
    if kept := existing_output(out, plan, if_exists):
        return read_evaluation(kept)

    tables = _Tables()
    with long_step("evaluating runs", len(opened), "runs") as advance:
        for run, group in zip(opened, grouped, strict=True):
            _evaluate_run(run, group, names, tables)
            advance(1)
    if not config.metrics:
        names = tables.without_unused_metrics(names)
    with long_step("comparing runs"):
        groups = summarise(tables.rows)
        compared = [] if reference is None else compare(tables.rows, reference, family=config.family)
        ranked = rankings(groups)
    _say_what_is_compared(config.reference, reference, compared, grouped)

    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes(ROWS, json_lines(tables.rows), rows=len(tables.rows))
        staging.add_bytes("rows.csv", table_csv(tables.rows), rows=len(tables.rows))
        staging.add_json(SUMMARY, groups, rows=len(groups))
        lines: dict[str, Sequence[Any]] = {
            COMPARISONS: compared,
            RANKINGS: ranked,
            CURVES: tables.curves,
            TEMPERATURES: tables.temperatures,
            RELIABILITY: tables.reliability,
            RUNS: tables.runs,
        }
        for name, objects in lines.items():
            staging.add_bytes(name, json_lines(objects), rows=len(objects))
        staging.summary = EvaluationSummary(
            runs=len(opened),
            metrics=tuple(names),
            reference=reference,
            family=config.family,
            methods=tuple(sorted({run.summary.method for run in opened})),
            datasets=tuple(sorted({run.summary.dataset for run in opened})),
        )
    published = open_artifact(out, "evaluation")
    return Evaluation(published, tables.rows, groups, compared, ranked, tables.curves, tables.reliability, tables.runs)


@dataclass
class _Tables:
    """The rows of all runs, table by table, and the labels that were opened for them."""

    rows: list[Row] = field(default_factory=list)
    curves: list[dict[str, Any]] = field(default_factory=list)
    temperatures: list[dict[str, Any]] = field(default_factory=list)
    reliability: list[dict[str, Any]] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Opened so far, by the hash of their file."""

    def without_unused_metrics(self, names: Sequence[str]) -> list[str]:
        """The metrics without those of bags where no run scores bags."""
        unused = BAG_METRICS - {row["metric"] for row in self.rows if row["value"] is not None}
        self.rows = [row for row in self.rows if row["metric"] not in unused]
        return [name for name in names if name not in unused]


def _evaluate_run(run: RunArtifact, group: dict[str, Any], names: Sequence[str], tables: _Tables) -> None:
    scored, scores, fits = _scored(run, run.summary.prior, tables)
    name, seeds = _name(run), {"seed": run.manifest.seed, "tuples_seed": run.summary.tuples_seed}
    gap = abs(run.summary.mean_rate - run.summary.trained_prior)
    tables.rows += [
        cast(Row, {**group, **seeds, "metric": metric, "value": _or_none(value), "run": name, "gap": gap})
        for metric, value in evaluate_metrics(scored, names).items()
    ]
    mark = {**group, "seed": run.manifest.seed, "run": name}
    tables.temperatures += [
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
    tables.runs.append({**mark, **_lineage(run), "decisions": decisions_of(scored)})
    tables.reliability += [{**mark, **diagram} for diagram in reliability_of(scored)]
    history, traced = read_history(run), scores["trace_epochs"].tolist()
    accuracy = accuracy_curve(scored.labels, scores["trace"]) if len(scores["trace"]) else np.empty(0)
    tables.curves.append(
        {
            **mark,
            "epochs": [record["epoch"] for record in history],
            "loss": [record["loss"] for record in history],
            "heldout_risk": [record["heldout_risk"] for record in history],
            "warmup_end": warmup_end(history),
            # Methods without gradient steps have no iterations.
            "iterations": list(itertools.accumulate(r["batches"] - r["skipped"] for r in history if "batches" in r)),
            "accuracy": [[epoch, value] for epoch, value in zip(traced, accuracy.tolist(), strict=True)],
        }
    )


# What a report says about a run, beside its settings and where it came from.
REPORTED = {
    *("is_oracle", "mean_rate", "trained_prior", "task", "tuples_seed", "tuples_config"),
    *("model", "encoder", "parameters", "epochs", "selected_epoch"),
}


def _lineage(run: RunArtifact) -> dict[str, Any]:
    """Facts about a run for a report: settings, lineage, training data."""
    return {
        "sha256": run.sha256,
        "inputs": list(run.manifest.inputs),
        "package_version": run.manifest.package_version,
        "config": run.manifest.config,
        **run.summary.model_dump(mode="json", include=REPORTED),
    }


# Calibration ---------------------------------------------------------------------------------------


def _temperatures(run: RunArtifact, scores: dict[str, NDArray[Any]], tables: _Tables) -> dict[str, Temperature]:
    """Fitted on held-out data: to the labels of U, which has the prior of deployment, and to the counts of tuples."""
    if "heldout_tuples" not in scores:
        nothing = Temperature(math.nan, "no held-out data")
        return {"labels": nothing, "counts": nothing}
    unlabeled = scores["heldout_unlabeled"].astype(np.float64)
    refuse_nan(unlabeled)
    by_counts = counts_temperature(run.summary, scores)
    if not run.has(HELDOUT_LABELS):
        return {"labels": Temperature(math.nan, "no labels"), "counts": by_counts}
    labels = _labels(run, HELDOUT_LABELS, tables)
    if len(labels) != len(unlabeled):
        raise ArtifactError(f"{run.path}: {len(unlabeled)} held-out scores but {len(labels)} held-out labels")
    return {"labels": temperature_by_labels(unlabeled, labels), "counts": by_counts}


def _labels(run: RunArtifact, name: str, tables: _Tables) -> NDArray[np.bool_]:
    """Runs on the same tuples carry the same labels: every copy is verified, one is opened."""
    run.file(name)
    sha256 = run.entry(name).sha256
    if sha256 not in tables.labels:
        tables.labels[sha256] = read_labels(run, name)
    return tables.labels[sha256]


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


# What may be compared ------------------------------------------------------------------------------


def run_metrics(run: RunArtifact, names: Sequence[str], prior: float) -> dict[str, float | None]:
    """Metrics of a run on its test labels, at a deployment prior; None where one is undefined."""
    scored, _, _ = _scored(run, prior, _Tables())
    return {name: _or_none(value) for name, value in evaluate_metrics(scored, names).items()}


def _scored(
    run: RunArtifact, prior: float, tables: _Tables
) -> tuple[Scored, dict[str, NDArray[Any]], dict[str, Temperature]]:
    """Test scores beside their labels, all scores, and the temperatures fitted to held-out data."""
    labels, scores = _labels(run, TEST_LABELS, tables), read_scores(run)
    if len(labels) != len(scores["test"]):
        raise ArtifactError(f"{run.path}: {len(scores['test'])} test scores but {len(labels)} test labels")
    fits = _temperatures(run, scores, tables)
    temperatures = Temperatures(*(fit.value for fit in fits.values()))
    scored = Scored(labels, scores["test"].astype(np.float64), prior, temperatures, _bags(run, scores))
    return scored, scores, fits


def _bags(run: RunArtifact, scores: dict[str, NDArray[Any]]) -> Bags | None:
    """Held-out tuples, at their recorded rates, and bags of U, at the prior; None where they were not scored."""
    if "heldout_bags" not in scores:
        return None
    inside, outside = (scores[name].astype(np.float64) for name in ("heldout_bags", "heldout_unlabeled_bags"))
    refuse_nan(np.concatenate([inside, outside]))
    task, prior = run.summary.task.as_task(), run.summary.trained_prior
    sizes = [*(n * k for n, _, k in task.rated_strata), task.unlabeled]
    mean = float(np.average([*(m / n for n, m, _ in task.rated_strata), prior], weights=sizes))
    rates = known_counts(scores["heldout_sizes"], scores["heldout_counts"]) / scores["heldout_sizes"]
    rated = np.isfinite(rates)
    rates = np.concatenate([rates[rated], np.full(len(outside), prior)])
    return Bags(rates > mean, np.concatenate([inside[rated], outside]))


def _name(run: RunArtifact) -> str:
    return run.path.resolve().name


def _groups(runs: Sequence[RunArtifact]) -> list[dict[str, Any]]:
    """The cell of every run (equal tuples, any method), and its variant of a method.

    Runs are compared inside a cell. Differences that the specs do not show (other positive classes, sizes, noise, test
    labels) are added to the name of the tuples, so that runs on different data never share a cell.
    """
    summaries = [run.summary for run in runs]
    blocks = [(summary.dataset, summary.tuples, summary.prior) for summary in summaries]
    tuples = [
        f"{summary.tuples} [{differing}]" if differing else summary.tuples
        for summary, differing in zip(summaries, variants([_tuple_settings(run) for run in runs], blocks), strict=True)
    ]
    groups = [
        {
            **{"dataset": summary.dataset, "tuples": name, **_single_count(summary)},
            **{"prior": summary.prior, "method": summary.method, "is_oracle": summary.is_oracle},
        }
        for summary, name in zip(summaries, tuples, strict=True)
    ]
    _require_same_tuples(runs, groups)
    cells = [tuple(group.values()) for group in groups]
    for group, variant in zip(groups, variants([_train_settings(run) for run in runs], cells), strict=True):
        group["variant"] = variant
    return groups


def _single_count(summary: RunSummary) -> dict[str, Any]:
    """n and m of tuples that are all alike; the mean of noisy counts is another one for every seed, and no setting."""
    exact = summary.task.knowledge is None
    return {"n": summary.n if exact else None, "m": summary.m if exact else None}


def _train_settings(run: RunArtifact) -> dict[str, Any]:
    settings = {key: value for key, value in run.manifest.config.items() if key not in ("seed", "plugins")}
    for what, origin in run.manifest.plugins.items():
        file, _, sha256 = origin.partition(" sha256:")
        settings[what] = f"{file}@{sha256[:8]}"
    if run.summary.prior_source == "estimated":
        settings["prior"] = "estimated"  # a little different for every seed
    return settings


def _tuple_settings(run: RunArtifact) -> dict[str, Any]:
    """Every setting that tuples were made with, and the identity of their test labels; not their seed."""
    # How many tuples a shard holds does not change what is learned.
    quiet = {"seed", "shard_size"}
    settings = {key: value for key, value in run.summary.tuples_config.items() if key not in quiet}
    # Imported tuples have no seed: no two directories hold the same data.
    identity = {} if run.summary.tuples_seed is not None else {"directory": run.summary.tuples_content[:8]}
    return {**settings, **identity, "test": run.entry(TEST_LABELS).sha256[:8]}


def _require_same_tuples(runs: Sequence[RunArtifact], groups: Sequence[dict[str, Any]]) -> None:
    """Runs that would be paired, of one cell and one seed of tuples, must have seen the same tuples."""
    first: dict[tuple[Any, ...], RunArtifact] = {}
    for run, group in zip(runs, groups, strict=True):
        cell = (group["dataset"], group["tuples"], group["prior"], run.summary.tuples_seed)
        other = first.setdefault(cell, run)
        if run.summary.tuples_content != other.summary.tuples_content:
            raise UsageError(
                f"runs {_name(other)} and {_name(run)} name the same tuples ({cell[0]} {cell[1]}, seed {cell[3]}) but "
                "were trained on different ones",
                hint="Train both on the same directory, or evaluate them apart.",
            )


def _require_test_labels(runs: Sequence[RunArtifact]) -> None:
    for run in runs:
        if not run.has(TEST_LABELS):
            raise ArtifactError(
                f"{run.path}: has no test labels: its tuples were imported without a labelled test file",
                hint="Import again with `ntmp import-tuples … --test FILE`, a table with a label column.",
            )


def _reference(name: str | None, groups: Sequence[dict[str, Any]]) -> str | None:
    """The reference: the named method or variant, else the default."""
    if name is None:
        return default_reference(cast("Sequence[Row]", groups))
    present = {key for entry in _entries(groups) for key in (entry.method, str(entry))}
    if name not in present:
        raise UsageError(f"--reference {name}: no run of that method; {did_you_mean(name, present)}")
    return name


def _entries(groups: Sequence[dict[str, Any]]) -> list[MethodVariant]:
    return [method_variant_of(cast(Row, group)) for group in groups]


# Runs without a reference that a warning names.
SHOWN_ALONE = 5


def _say_what_is_compared(
    given: str | None, reference: str | None, compared: Sequence[Comparison], groups: Sequence[dict[str, Any]]
) -> None:
    """Say which reference was chosen, or why there is nothing to compare."""
    if reference is None:
        return
    if given is None:
        log.info("compared with %s, because no --reference is given", reference)
    chosen, entries = Reference.named(reference, _entries(groups)), dict.fromkeys(_entries(groups))
    own = [str(entry) for entry in entries if chosen.includes(entry)]
    if not compared and len(own) > 1:
        log.warning(
            "--reference %s: nothing to compare, because every run is of that method; name one of its variants: %s",
            reference,
            ", ".join(f"'{name}'" for name in own),
        )
    elif not compared:
        log.warning("--reference %s: nothing to compare, because there is no other method", reference)
    elif not any(comparison["pairs"] for comparison in compared):
        log.warning("--reference %s: nothing to compare, because it has no seed and data in common", reference)
    elif alone := _without_reference(chosen, groups):
        log.warning(
            "--reference %s: it has no run on the data and prior of these, which are not compared: %s",
            reference,
            "; ".join(alone[:SHOWN_ALONE]) + (f" and {len(alone) - SHOWN_ALONE} more" if alone[SHOWN_ALONE:] else ""),
        )


def _without_reference(chosen: Reference, groups: Sequence[dict[str, Any]]) -> list[str]:
    """The variants in cells where the reference has no run, with their cells."""
    cells: dict[DataCell, list[MethodVariant]] = {}
    for group in groups:
        cells.setdefault(cell_of(cast(Row, group)), []).append(method_variant_of(cast(Row, group)))
    alone = {cell: entries for cell, entries in cells.items() if not any(chosen.includes(entry) for entry in entries)}
    return list(dict.fromkeys(f"{entry} ({cell})" for cell, entries in alone.items() for entry in entries))
