"""report: an evaluation becomes tables and figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
from ntmp_cli.artifacts.layout import CURVES, SUMMARY
from ntmp_cli.config import ReportConfig
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.reporting.figures import Curve, learning_curves
from ntmp_cli.reporting.tables import Table, results_table, to_csv, to_latex, to_markdown


def report(config: ReportConfig, evaluation_path: Path, out: Path, *, if_exists: IfExists = "fail") -> Artifact:
    """Publish tables (Markdown, CSV, LaTeX) and the learning curves of an evaluation."""
    evaluation = open_artifact(evaluation_path, "evaluation")
    plan = Plan("report", config.model_dump(mode="json"), None, (describe_input(evaluation),))
    if kept := kept_output(out, plan, if_exists):
        return kept
    table = table_of(evaluation, config)
    figures = learning_curves([_curve(row) for row in read_json_lines(evaluation, CURVES)], title=config.title)
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes("results.md", f"# {config.title}\n\n{to_markdown(table)}".encode())
        staging.add_bytes("results.csv", to_csv(table).encode())
        staging.add_bytes("results.tex", to_latex(table).encode())
        for kind, image in figures.items():
            staging.add_bytes(f"learning-curves.{kind}", image)
        staging.summary = {
            "files": [
                "learning-curves.png",
                "learning-curves.svg",
                "results.csv",
                "results.md",
                "results.tex",
            ]
        }
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
    return results_table(groups, title=config.title, metrics=list(chosen), reference=evaluation.summary["reference"])


DEFAULT_METRICS = ("accuracy", "ap", "auroc", "macro_f1")


def _curve(row: dict[str, Any]) -> Curve:
    label = f"{row['method']} ({row['variant']})" if row["variant"] else row["method"]
    return Curve(
        label=label,
        group=f"{row['dataset']} {row['tuples']} π={row['prior']:g}",
        seed=row["seed"],
        epochs=row["epochs"],
        train_loss=row["loss"],
        heldout_risk=row["heldout_risk"],
        accuracy=[(epoch, value) for epoch, value in row["accuracy"]],
    )
