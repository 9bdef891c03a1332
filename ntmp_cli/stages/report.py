"""report: an evaluation becomes tables, figures, words, and one page that holds them all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from ntmp_cli import __version__
from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.evaluations import Evaluation, read_evaluation
from ntmp_cli.artifacts.summaries import PriorSummary, ReportSummary, SweepSummary
from ntmp_cli.config import ReportConfig
from ntmp_cli.errors import UsageError, did_you_mean
from ntmp_cli.evaluation.comparisons import MethodVariant
from ntmp_cli.evaluation.metrics import default_columns
from ntmp_cli.evaluation.summary import DataCell, SummaryRow, cell_of
from ntmp_cli.plugins import plugin_settings, require_plugins
from ntmp_cli.reporting.comparison_table import comparison_table
from ntmp_cli.reporting.dots import dots_caption, method_dots
from ntmp_cli.reporting.figures import Curve, Diagram, learning_curves, reliability_diagrams
from ntmp_cli.reporting.grid import metric_grid
from ntmp_cli.reporting.operating import operating_of, operating_words
from ntmp_cli.reporting.overview import DEFAULT_METRICS as OVERVIEW_METRICS
from ntmp_cli.reporting.overview import Overview, overview_table
from ntmp_cli.reporting.page import Page, PageFigure, PageRun, PageTable, render_page
from ntmp_cli.reporting.paper import RunSetting, beside_the_paper
from ntmp_cli.reporting.prior_curves import metrics_against_prior
from ntmp_cli.reporting.rendering import Table, escape_markdown, to_csv, to_latex, to_markdown
from ntmp_cli.reporting.results_table import results_table
from ntmp_cli.reporting.verdict import upper_bound, verdict
from ntmp_cli.reporting.words import comparison_words, study_words, window_words

PAGE = "index.html"
CHART = "methods"
COMPARISON_TABLE = "comparisons"
# The columns of the paper's main table and of its small one. Temperatures by counts stand in where labels are unknown.
MAIN_METRICS = ("ap", "auroc", "ece_scaled_labels", "brier_scaled_labels")
MAIN_METRICS_WITHOUT_LABELS = ("ap", "auroc", "ece_scaled_counts", "brier_scaled_counts")
SMALL_METRICS = ("ap", "best_f1", "auroc")


def report(
    config: ReportConfig,
    evaluation_path: Path,
    out: Path,
    *,
    sweeps: Sequence[Path] = (),
    priors: Sequence[Path] = (),
    if_exists: IfExists = "fail",
) -> tuple[Artifact[ReportSummary], Evaluation]:
    """Publish the tables (Markdown, CSV, LaTeX), figures (SVG, PNG), words and the page of an evaluation.

    Returns what was published, and the evaluation that it is about.
    """
    source = open_artifact(evaluation_path, "evaluation")
    require_plugins(source.manifest.plugins, str(source.path))
    found = read_evaluation(source)
    extras: list[Artifact[SweepSummary] | Artifact[PriorSummary]] = [open_artifact(path, "sweep") for path in sweeps]
    extras += [open_artifact(path, "prior") for path in priors]
    inputs = tuple(describe_input(each) for each in (source, *extras))
    settings = config.model_dump(mode="json", exclude_none=True) | plugin_settings({"metrics": found.metrics})
    plan = Plan("report", settings, None, inputs, (evaluation_path, *sweeps, *priors))
    if kept := existing_output(out, plan, if_exists):
        return kept, found
    tables = _tables(found, config)
    drawn = {**_figures(found, config), **{name: images for name, images, _ in map(_carried, extras, _names(extras))}}
    metrics = _metrics(found, config)
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
        lineage=_lineage(found.artifact, extras),
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
        staging.summary = ReportSummary(files=tuple(sorted([*written, "words.md", PAGE])))
    return open_artifact(out, "report"), found


# Tables --------------------------------------------------------------------------------------------


def tables_of(evaluation: Evaluation, config: ReportConfig) -> list[Table]:
    """The tables of a report, in its order."""
    return [entry.table for entry in _tables(evaluation, config).values()]


def overview_of(evaluation: Evaluation, config: ReportConfig, *, wide: bool = False) -> Overview:
    """The verdict with a table for the terminal; `wide`: with every column of the results table."""
    metrics = _metrics(evaluation, config, OVERVIEW_METRICS)
    table = _results(evaluation, config) if wide else overview_table(evaluation.groups, metrics)
    headline = verdict(evaluation.groups, metrics[0], evaluation.comparisons)
    return Overview(headline, upper_bound(evaluation.groups, metrics[0]), table)


def _metrics(evaluation: Evaluation, config: ReportConfig, default: tuple[str, ...] = ()) -> tuple[str, ...]:
    present, wanted = evaluation.metrics, default or default_columns()
    chosen = config.metrics or tuple(name for name in wanted if name in present) or present
    for name in chosen:
        if name not in present:
            raise UsageError(
                f"--metric {name}: not in the evaluation {evaluation.artifact.path}; {did_you_mean(name, present)}",
                hint="Evaluate the runs again with this metric.",
            )
    return chosen


def _results(found: Evaluation, config: ReportConfig) -> Table:
    return results_table(
        found.groups,
        title=config.title,
        metrics=_metrics(found, config),
        reference=found.reference,
        comparisons=found.comparisons,
    ).with_notes(operating_words([operating_of(run) for run in found.runs]))


def _tables(found: Evaluation, config: ReportConfig) -> dict[str, PageTable]:
    title, present = config.title, found.metrics
    notes = operating_words([operating_of(run) for run in found.runs])
    grid = "accuracy" if "accuracy" in present else _metrics(found, config)[0]
    made = {
        "results": ("Results", _results(found, config)),
        f"{grid}-grid": (
            f"By prior, data set and method: {grid}",
            metric_grid(found.groups, grid, title=title).with_notes(notes),
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
            ).with_notes(notes),
        )
    if small := [name for name in SMALL_METRICS if name in known]:
        made["small-comparison"] = ("Small comparison", results_table(found.groups, title=title, metrics=small))
    if config.compare == "paper":
        made["beside-the-paper"] = (
            "Beside the paper",
            beside_the_paper(found.groups, _run_settings(found), title=title),
        )
    if compared := comparison_table(found.comparisons, _metrics(found, config), title=title):
        made[COMPARISON_TABLE] = (f"Compared with {found.reference}", compared)
    return {name: PageTable(name, heading, table) for name, (heading, table) in made.items()}


def _run_settings(found: Evaluation) -> dict[tuple[DataCell, MethodVariant], RunSetting]:
    """Gap (mean over runs) and encoder of every line of the evaluation."""
    members: dict[tuple[DataCell, MethodVariant], list[dict[str, Any]]] = {}
    for run in found.runs:
        key = cell_of(cast(SummaryRow, run)), MethodVariant(run["method"], run["variant"])
        members.setdefault(key, []).append(run)
    return {
        key: RunSetting(sum(operating_of(run).gap for run in runs) / len(runs), any(run["encoder"] for run in runs))
        for key, runs in members.items()
    }


# Words ---------------------------------------------------------------------------------------------


def _words(found: Evaluation, metrics: Sequence[str]) -> dict[str, list[str]]:
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


def _figures(found: Evaluation, config: ReportConfig) -> dict[str, dict[str, bytes]]:
    curves = [_curve(row) for row in found.curves]
    return {
        CHART: method_dots(found.groups, _metrics(found, config)[0]),
        "learning-curves": learning_curves(curves, title=config.title),
        "metrics-against-prior": metrics_against_prior(found.groups, title=config.title),
        "reliability": reliability_diagrams(_diagrams(found.reliability), title=config.title),
    }


def _chart(found: Evaluation, metric: str, images: Mapping[str, bytes]) -> PageFigure | None:
    if not images:
        return None
    return PageFigure(CHART, f"All methods: {metric}", dots_caption(found.groups, metric), images["svg"])


def _page_figure(name: str, svg: bytes) -> PageFigure:
    heading, caption = CAPTIONS[name]
    return PageFigure(name, heading, caption, svg)


def _diagrams(rows: Sequence[dict[str, Any]]) -> list[Diagram]:
    """At the prior that scores are probabilities at; a test split without both classes cannot be reweighted to it."""
    return [
        Diagram(_label(row), _group(row), row["scaling"], row["mass"], row["confidence"], row["frequency"])
        for row in rows
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


def _carried(
    artifact: Artifact[SweepSummary] | Artifact[PriorSummary], name: str
) -> tuple[str, dict[str, bytes], PageFigure]:
    """The figure of a sweep or of an estimated prior, as it was plotted, and what is to be said about it."""
    images = {kind: artifact.file(f"{artifact.kind}.{kind}").read_bytes() for kind in ("svg", "png")}
    said = artifact.summary
    if isinstance(said, PriorSummary):
        sure = "without an interval" if said.ci is None else f"interval {said.ci[0]:.4f} to {said.ci[1]:.4f}"
        caption = (
            f"Class prior {said.prior:.4f} by {said.estimator}, {said.confidence:.0%} {sure}: "
            "densities of scores with the fitted mixture, the tail ratio, the bootstrap."
        )
        return name, images, PageFigure(name, "Estimated class prior", caption, images["svg"], said.warnings)
    caption = f"Sweep of {said.sweep}: {said.trained} of {said.cells} trainings, judged by {said.metric}."
    lines = [f"{window_words(window.to_json())}." for window in said.windows]
    return name, images, PageFigure(name, f"Sweep of {said.sweep}", caption, images["svg"], lines)


# Runs ----------------------------------------------------------------------------------------------


def _page_run(run: dict[str, Any]) -> PageRun:
    told = run["trained_prior"]
    facts = {
        "method": _label(run),
        "model": f"{run['model']}, {run['parameters']:,} parameters",
        "epoch kept": f"{run['selected_epoch']} of {run['epochs']}",
        "mean rate ᾱ": f"{run['mean_rate']:.4f}",
        "prior π": f"{run['prior']:g}" + ("" if told == run["prior"] else f", told {told:.4f}"),
        "strata": ", ".join(f"({n}, {m}) × {count:,}" for n, m, count in operating_of(run).strata),
        "unlabeled": f"{run['task']['unlabeled']:,}",
        "written by": f"ntmp {run['package_version']}",
    }
    lineage = {"this run": run["sha256"], **{entry["kind"]: entry["sha256"] for entry in run["inputs"]}}
    about = f"{_label(run)} on {_group(run)}, seed {run['seed']}"
    return PageRun(run["run"], about, facts, run["config"], run["tuples_config"], lineage)


def _lineage(evaluation: Artifact, extras: Sequence[Artifact]) -> dict[str, str]:
    return {"evaluation": evaluation.sha256} | {
        name: extra.sha256 for name, extra in zip(_names(extras), extras, strict=True)
    }
