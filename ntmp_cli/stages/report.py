"""report: an evaluation becomes tables, figures, words, and one page that holds them all."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ntmp_cli import __version__
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
from ntmp_cli.artifacts.layout import COMPARISONS, CURVES, PRIOR, RELIABILITY, RUNS, SUMMARY
from ntmp_cli.config import ReportConfig
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.comparisons import Comparison, Entry
from ntmp_cli.evaluation.summary import Cell, SummaryRow, cell_of
from ntmp_cli.reporting.comparison_table import comparison_table
from ntmp_cli.reporting.dots import dots_caption, method_dots
from ntmp_cli.reporting.figures import Curve, Diagram, learning_curves, reliability_diagrams
from ntmp_cli.reporting.grid import metric_grid
from ntmp_cli.reporting.operating import operating_of, operating_words
from ntmp_cli.reporting.overview import DEFAULT_METRICS as OVERVIEW_METRICS
from ntmp_cli.reporting.overview import Overview, overview_table
from ntmp_cli.reporting.page import Page, PageFigure, PageRun, PageTable, render_page
from ntmp_cli.reporting.paper import Ours, beside_the_paper
from ntmp_cli.reporting.prior_curves import metrics_against_prior
from ntmp_cli.reporting.rendering import Table, escape_markdown, to_csv, to_latex, to_markdown
from ntmp_cli.reporting.tables import results_table
from ntmp_cli.reporting.verdict import upper_bound, verdict
from ntmp_cli.reporting.words import comparison_words, study_words, window_words

PAGE = "index.html"
CHART = "methods"
COMPARISON_TABLE = "comparisons"
DEFAULT_METRICS = ("accuracy", "ap", "auroc", "macro_f1")
# The columns of the paper's main table and of its small one. Temperatures by counts stand in where labels are unknown.
MAIN_METRICS = ("ap", "auroc", "ece_scaled_labels", "brier_scaled_labels")
MAIN_METRICS_WITHOUT_LABELS = ("ap", "auroc", "ece_scaled_counts", "brier_scaled_counts")
SMALL_METRICS = ("ap", "best_f1", "auroc")


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation holds, read once; those of earlier versions lack comparisons or runs."""

    artifact: Artifact
    groups: list[SummaryRow]
    comparisons: list[Comparison]
    runs: list[dict[str, Any]]

    @property
    def reference(self) -> str | None:
        return cast(str | None, self.artifact.summary["reference"])


def report(
    config: ReportConfig,
    evaluation_path: Path,
    out: Path,
    *,
    sweeps: Sequence[Path] = (),
    priors: Sequence[Path] = (),
    if_exists: IfExists = "fail",
) -> Artifact:
    """Publish the tables (Markdown, CSV, LaTeX), figures (SVG, PNG), words and the page of an evaluation."""
    evaluation = open_artifact(evaluation_path, "evaluation")
    extras = [open_artifact(path, "sweep") for path in sweeps] + [open_artifact(path, "prior") for path in priors]
    inputs = tuple(describe_input(each) for each in (evaluation, *extras))
    reads = (evaluation_path, *sweeps, *priors)
    plan = Plan("report", config.model_dump(mode="json", exclude_none=True), None, inputs, reads)
    if kept := kept_output(out, plan, if_exists):
        return kept
    found = _read(evaluation)
    tables = _tables(found, config)
    drawn = {**_figures(found, config), **{name: images for name, images, _ in map(_carried, extras, _names(extras))}}
    metrics = _metrics(evaluation, config)
    headline = verdict(found.groups, metrics[0], found.comparisons)
    setup, *leaders, tested = study_words(found.groups, metrics[0], found.comparisons)
    bound = [text for text in [upper_bound(found.groups, metrics[0])] if text]
    figures = {name: _page_figure(name, images["svg"]) for name, images in drawn.items() if name in CAPTIONS and images}
    shown = dict(tables)
    compared = shown.pop(COMPARISON_TABLE, None)
    page = Page(
        title=config.title,
        verdict=headline,
        # How much was tested is in the caption of the comparisons, where there are any.
        summary=[*bound, setup, *([] if compared else [tested])],
        chart=_chart(found, metrics[0], drawn[CHART]),
        comparisons=compared,
        tables=list(shown.values()),
        figures=[*figures.values(), *(figure for _, _, figure in map(_carried, extras, _names(extras)))],
        runs=[_page_run(run) for run in found.runs],
        lineage=_lineage([evaluation, *extras]),
        version=__version__,
    )
    with publishing(out, plan, if_exists=if_exists) as staging:
        for name, entry in tables.items():
            staging.add_bytes(f"{name}.md", f"# {escape_markdown(config.title)}\n\n{to_markdown(entry.table)}".encode())
            staging.add_bytes(f"{name}.csv", to_csv(entry.table).encode())
            staging.add_bytes(f"{name}.tex", to_latex(entry.table).encode())
        for name, images in drawn.items():
            for kind, image in images.items():
                staging.add_bytes(f"{name}.{kind}", image)
        words = _markdown_words(config.title, [headline, *bound, setup, *leaders, tested], _words(found, metrics))
        staging.add_bytes("words.md", words.encode())
        staging.add_bytes(PAGE, render_page(page))
        written = [f"{name}.{kind}" for name in tables for kind in ("md", "csv", "tex")]
        written += [f"{name}.{kind}" for name, images in drawn.items() for kind in images]
        staging.summary = {"files": sorted([*written, "words.md", PAGE])}
    return open_artifact(out)


def _read(evaluation: Artifact) -> Evaluated:
    def lines(name: str) -> list[dict[str, Any]]:
        return read_json_lines(evaluation, name) if evaluation.has(name) else []

    groups = json.loads(evaluation.file(SUMMARY).read_bytes())
    return Evaluated(evaluation, groups, cast(list[Comparison], lines(COMPARISONS)), lines(RUNS))


# Tables --------------------------------------------------------------------------------------------


def tables_of(evaluation: Artifact, config: ReportConfig) -> list[Table]:
    """The tables of a report, in its order."""
    return [entry.table for entry in _tables(_read(evaluation), config).values()]


def overview_of(evaluation: Artifact, config: ReportConfig | None = None, *, wide: bool = False) -> Overview:
    """The verdict with a table for the terminal; `wide`: with every column of the results table.

    Without `config` it is about the metrics that the evaluation was asked for.
    """
    found = _read(evaluation)
    config = config or ReportConfig(title="Test results", metrics=tuple(evaluation.manifest.config["metrics"]))
    metrics = _metrics(evaluation, config, OVERVIEW_METRICS)
    table = _results(found, config) if wide else overview_table(found.groups, metrics)
    return Overview(verdict(found.groups, metrics[0], found.comparisons), upper_bound(found.groups, metrics[0]), table)


def _metrics(evaluation: Artifact, config: ReportConfig, default: tuple[str, ...] = DEFAULT_METRICS) -> tuple[str, ...]:
    present = evaluation.summary["metrics"]
    chosen = config.metrics or tuple(name for name in default if name in present) or tuple(present)
    for name in chosen:
        if name not in present:
            raise UsageError(
                f"--metric {name}: not in the evaluation {evaluation.path}; {did_you_mean(name, present)}",
                hint="Evaluate the runs again with this metric.",
            )
    return chosen


def _results(found: Evaluated, config: ReportConfig) -> Table:
    return results_table(
        found.groups,
        title=config.title,
        metrics=_metrics(found.artifact, config),
        reference=found.reference,
        comparisons=found.comparisons,
        notes=operating_words([operating_of(run) for run in found.runs]),
    )


def _tables(found: Evaluated, config: ReportConfig) -> dict[str, PageTable]:
    title, present = config.title, found.artifact.summary["metrics"]
    notes = operating_words([operating_of(run) for run in found.runs])
    grid = "accuracy" if "accuracy" in present else _metrics(found.artifact, config)[0]
    made = {
        "results": ("Results", _results(found, config)),
        f"{grid}-grid": (
            f"By prior, data set and method: {grid}",
            metric_grid(found.groups, grid, title=title, notes=notes),
        ),
    }
    known = {row["metric"] for row in found.groups if row["mean"] is not None}
    wanted = MAIN_METRICS if MAIN_METRICS[2] in known else MAIN_METRICS_WITHOUT_LABELS
    if main := [name for name in wanted if name in known]:
        made["main-results"] = (
            "Ranking and calibration, with intervals",
            results_table(
                found.groups,
                title=title,
                metrics=main,
                reference=found.reference,
                comparisons=found.comparisons,
                intervals=True,
                notes=notes,
            ),
        )
    if small := [name for name in SMALL_METRICS if name in known]:
        made["small-comparison"] = ("Small comparison", results_table(found.groups, title=title, metrics=small))
    if config.compare == "paper":
        made["beside-the-paper"] = ("Beside the paper", beside_the_paper(found.groups, _ours(found), title=title))
    if compared := comparison_table(found.comparisons, _metrics(found.artifact, config), title=title):
        made[COMPARISON_TABLE] = (f"Compared with {found.reference}", compared)
    return {name: PageTable(name, heading, table) for name, (heading, table) in made.items()}


def _ours(found: Evaluated) -> dict[tuple[Cell, Entry], Ours]:
    """Gap (mean over runs) and encoder of every line of the evaluation."""
    members: dict[tuple[Cell, Entry], list[dict[str, Any]]] = {}
    for run in found.runs:
        key = cell_of(cast(SummaryRow, run)), Entry(run["method"], run["variant"])
        members.setdefault(key, []).append(run)
    return {
        key: Ours(sum(operating_of(run).gap for run in runs) / len(runs), any(run["encoder"] for run in runs))
        for key, runs in members.items()
    }


# Words ---------------------------------------------------------------------------------------------


def _words(found: Evaluated, metrics: Sequence[str]) -> dict[str, list[str]]:
    """A paragraph per comparison: all cells together first, then cell by cell, metric after metric."""
    groups: dict[str, list[str]] = {}
    ours = [own for own in found.comparisons if own["metric"] in metrics]
    for own in sorted(ours, key=lambda own: (own["scope"] != "overall", metrics.index(own["metric"]))):
        heading = (
            "All cells together"
            if own["scope"] == "overall"
            else f"{own['dataset']} {own['tuples']} at π = {own['prior']:g}"
        )
        groups.setdefault(heading, []).append(comparison_words(own))
    return groups


def _markdown_words(title: str, summary: Sequence[str], words: Mapping[str, Sequence[str]]) -> str:
    parts = [f"# {escape_markdown(title)}", " ".join(map(escape_markdown, summary))]
    for heading, paragraphs in words.items():
        parts += [f"## {escape_markdown(heading)}", *map(escape_markdown, paragraphs)]
    return "\n\n".join(parts) + "\n"


# Figures -------------------------------------------------------------------------------------------

# Heading and caption of what is drawn here.
CAPTIONS = {
    "learning-curves": (
        "Learning curves",
        "Training objective, held-out objective (label-free) and test accuracy by epoch. Lines: means over seeds; "
        "bands: one standard deviation to either side.",
    ),
    "metrics-against-prior": (
        "Metrics against the prior of U",
        "Means over seeds, bands of one standard deviation to either side.",
    ),
    "reliability": (
        "Reliability",
        "Share of positives against predicted probability, the test split reweighted to the prior, in 15 bins pooled "
        "over seeds. Area of a point: share of instances; on the diagonal probabilities are what they say.",
    ),
}


def _figures(found: Evaluated, config: ReportConfig) -> dict[str, dict[str, bytes]]:
    curves = [_curve(row) for row in read_json_lines(found.artifact, CURVES)]
    return {
        CHART: method_dots(found.groups, _metrics(found.artifact, config)[0]),
        "learning-curves": learning_curves(curves, title=config.title),
        "metrics-against-prior": metrics_against_prior(found.groups, title=config.title),
        "reliability": reliability_diagrams(_diagrams(found.artifact), title=config.title),
    }


def _chart(found: Evaluated, metric: str, images: Mapping[str, bytes]) -> PageFigure | None:
    if not images:
        return None
    return PageFigure(CHART, f"All methods: {metric}", dots_caption(found.groups, metric), images["svg"])


def _page_figure(name: str, svg: bytes) -> PageFigure:
    heading, caption = CAPTIONS[name]
    return PageFigure(name, heading, caption, svg)


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


def _names(artifacts: Sequence[Artifact]) -> list[str]:
    """sweep-1, sweep-2, prior-1 …: the folders' own names may be anything."""
    kinds = [artifact.kind for artifact in artifacts]
    return [f"{kind}-{kinds[: index + 1].count(kind)}" for index, kind in enumerate(kinds)]


def _carried(artifact: Artifact, name: str) -> tuple[str, dict[str, bytes], PageFigure]:
    """The figure of a sweep or of an estimated prior, as it was drawn, and what is to be said about it."""
    images = {kind: artifact.file(f"{artifact.kind}.{kind}").read_bytes() for kind in ("svg", "png")}
    if artifact.kind == "prior":
        estimate = json.loads(artifact.file(PRIOR).read_bytes())
        interval = estimate["ci"]
        sure = "without an interval" if interval is None else f"interval {interval[0]:.4f} to {interval[1]:.4f}"
        caption = (
            f"Class prior {estimate['prior']:.4f} by {estimate['estimator']}, {estimate['confidence']:.0%} {sure}: "
            "densities of scores with the fitted mixture, the tail ratio, the bootstrap."
        )
        return name, images, PageFigure(name, "Estimated class prior", caption, images["svg"], estimate["warnings"])
    facts = artifact.summary
    caption = (
        f"Sweep of {facts['sweep']}: {facts['trained']} of {facts['cells']} trainings, judged by {facts['metric']}."
    )
    lines = [f"{window_words(window)}." for window in facts["windows"]]
    return name, images, PageFigure(name, f"Sweep of {facts['sweep']}", caption, images["svg"], lines)


# Runs ----------------------------------------------------------------------------------------------


def _page_run(run: dict[str, Any]) -> PageRun:
    told = run["config"]["prior"]
    facts = {
        "method": _label(run),
        "model": f"{run['model']}, {run['parameters']:,} parameters",
        "epoch kept": f"{run['selected_epoch']} of {run['epochs']}",
        "mean rate ᾱ": f"{run['mean_rate']:.4f}",
        "prior π": f"{run['prior']:g}" + ("" if told == run["prior"] else f", told {told:.4f}"),
        "strata": ", ".join(f"({n}, {m}) × {count:,}" for n, m, count in operating_of(run).strata) or "not recorded",
        "unlabeled": f"{run['task']['unlabeled']:,}" if run["task"] else "not recorded",
        "written by": f"ntmp {run['package_version']}",
    }
    lineage = {"this run": run["sha256"], **{entry["kind"]: entry["sha256"] for entry in run["inputs"]}}
    about = f"{_label(run)} on {_group(run)}, seed {run['seed']}"
    return PageRun(run["run"], about, facts, run["config"], run["tuples_config"], lineage)


def _lineage(artifacts: Sequence[Artifact]) -> dict[str, str]:
    evaluation, *extras = artifacts
    return {"evaluation": evaluation.sha256} | {
        name: extra.sha256 for name, extra in zip(_names(extras), extras, strict=True)
    }
