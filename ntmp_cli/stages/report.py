"""report: an evaluation becomes tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    describe_input,
    kept_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.jsonlines import read_json_lines
from ntmp_cli.artifacts.layout import COMPARISONS, CURVES, RELIABILITY, SUMMARY
from ntmp_cli.config import ReportConfig
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.comparisons import Comparison
from ntmp_cli.reporting.figures import Curve, Diagram, learning_curves, reliability_diagrams
from ntmp_cli.reporting.tables import Table, results_table, to_csv, to_latex, to_markdown


def report(config: ReportConfig, evaluation_path: Path, out: Path, *, if_exists: IfExists = "fail") -> Artifact:
    """Publish tables (Markdown, CSV, LaTeX), learning curves and reliability diagrams of an evaluation."""
    evaluation = open_artifact(evaluation_path, "evaluation")
    plan = Plan("report", config.model_dump(mode="json"), None, (describe_input(evaluation),))
    if kept := kept_output(out, plan, if_exists):
        return kept
    table = table_of(evaluation, config)
    figures = {
        "learning-curves": learning_curves(
            [_curve(row) for row in read_json_lines(evaluation, CURVES)], title=config.title
        ),
        "reliability": reliability_diagrams(_diagrams(evaluation), title=config.title),
    }
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes("results.md", f"# {config.title}\n\n{to_markdown(table)}".encode())
        staging.add_bytes("results.csv", to_csv(table).encode())
        staging.add_bytes("results.tex", to_latex(table).encode())
        for name, images in figures.items():
            for kind, image in images.items():
                staging.add_bytes(f"{name}.{kind}", image)
        drawn = [f"{name}.{kind}" for name, images in figures.items() for kind in images]
        staging.summary = {"files": sorted([*drawn, "results.csv", "results.md", "results.tex"])}
    return open_artifact(out)


def table_of(evaluation: Artifact, config: ReportConfig) -> Table:
    """The results table of an evaluation."""
    present = evaluation.summary["metrics"]
    chosen = config.metrics or tuple(name for name in DEFAULT_METRICS if name in present) or tuple(present)
    for name in chosen:
        if name not in present:
            raise UsageError(
                f"--metric {name}: not in the evaluation {evaluation.path}; {did_you_mean(name, present)}",
                hint="Evaluate the runs again with this metric.",
            )
    groups = json.loads(evaluation.file(SUMMARY).read_bytes())
    # Evaluations of earlier versions have no comparisons.
    compared = read_json_lines(evaluation, COMPARISONS) if evaluation.has(COMPARISONS) else []
    return results_table(
        groups,
        title=config.title,
        metrics=list(chosen),
        reference=evaluation.summary["reference"],
        comparisons=cast(list[Comparison], compared),
    )


DEFAULT_METRICS = ("accuracy", "ap", "auroc", "macro_f1")


def _diagrams(evaluation: Artifact) -> list[Diagram]:
    """At the prior that scores are probabilities at; a test split without both classes cannot be reweighted to it."""
    if not evaluation.has(RELIABILITY):
        return []
    return [
        Diagram(_label(row), _group(row), row["scaling"], row["mass"], row["confidence"], row["frequency"])
        for row in read_json_lines(evaluation, RELIABILITY)
        if row["weighting"] == "at prior"
    ]


def _curve(row: dict[str, Any]) -> Curve:
    return Curve(
        label=_label(row),
        group=_group(row),
        seed=row["seed"],
        epochs=row["epochs"],
        train_loss=row["loss"],
        heldout_risk=row["heldout_risk"],
        accuracy=[(epoch, value) for epoch, value in row["accuracy"]],
    )


def _label(row: dict[str, Any]) -> str:
    return f"{row['method']} ({row['variant']})" if row["variant"] else str(row["method"])


def _group(row: dict[str, Any]) -> str:
    return f"{row['dataset']} {row['tuples']} π={row['prior']:g}"
