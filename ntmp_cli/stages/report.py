"""report: tables, figures and sentences of an evaluation, and one page with all of them."""

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
from ntmp_cli.reporting.baselines import Baseline, constant_score
from ntmp_cli.reporting.comparison_table import comparison_table
from ntmp_cli.reporting.dots import dots_as_text, dots_caption, method_dots
from ntmp_cli.reporting.figures import Curve, Diagram, learning_curves, reliability_diagrams
from ntmp_cli.reporting.grid import metric_grid
from ntmp_cli.reporting.iteration_curves import accuracy_by_iteration
from ntmp_cli.reporting.operating import data_caption, operating_of, operating_words
from ntmp_cli.reporting.overview import DEFAULT_METRICS as OVERVIEW_METRICS
from ntmp_cli.reporting.overview import Overview, overview_table
from ntmp_cli.reporting.page import Page, PageFigure, PageTable, render_page
from ntmp_cli.reporting.paper import RunSetting, beside_the_paper
from ntmp_cli.reporting.prior_curves import metrics_against_prior
from ntmp_cli.reporting.rendering import Table, escape_markdown, to_csv, to_latex, to_markdown
from ntmp_cli.reporting.results_table import results_table
from ntmp_cli.reporting.run_details import group_of, label_of, page_run, run_table
from ntmp_cli.reporting.single_run import single_run, single_run_verdict
from ntmp_cli.reporting.verdict import upper_bound, verdict
from ntmp_cli.reporting.words import comparison_words, study_words, window_words

PAGE = "index.html"
CHART = "methods"
COMPARISON_TABLE = "comparisons"
RUN_TABLE = "all-runs"
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
    evaluation = read_evaluation(source)
    extras: list[Artifact[SweepSummary] | Artifact[PriorSummary]] = [open_artifact(path, "sweep") for path in sweeps]
    extras += [open_artifact(path, "prior") for path in priors]
    inputs = tuple(describe_input(artifact) for artifact in (source, *extras))
    settings = config.model_dump(mode="json", exclude_none=True) | plugin_settings({"metrics": evaluation.metrics})
    plan = Plan("report", settings, None, inputs, (evaluation_path, *sweeps, *priors))
    if kept := existing_output(out, plan, if_exists):
        return kept, evaluation
    tables = _tables(evaluation, config)
    plots = {
        **_figures(evaluation, config),
        **{name: images for name, images, _ in map(_carried, extras, _names(extras))},
    }
    metrics = _metrics(evaluation, config)
    alone = evaluation.runs[0] if len(evaluation.runs) == 1 and "decisions" in evaluation.runs[0] else None
    headline = single_run_verdict(alone) if alone else verdict(evaluation.groups, metrics[0], evaluation.comparisons)
    setup, *leaders, tested = study_words(evaluation.groups, metrics[0], evaluation.comparisons)
    bound = [text for text in [upper_bound(evaluation.groups, metrics[0])] if text]
    figures = {
        name: _page_figure(name, images["svg"], evaluation)
        for name, images in plots.items()
        if name in CAPTIONS and images
    }
    shown = dict(tables)
    compared = shown.pop(COMPARISON_TABLE, None)
    page = Page(
        title=config.title,
        verdict=headline,
        # How much was tested is in the caption of the comparisons, where there are any.
        summary=[*bound, setup, *([] if compared or alone else [tested])],
        single=None if alone is None else single_run(alone, {row["metric"]: row["value"] for row in evaluation.rows}),
        chart=None if alone else _chart(evaluation, metrics[0], plots[CHART]),
        comparisons=compared,
        # For one run, the other figures repeat the first.
        tables=list(shown.values())[: 1 if alone and config.compare is None else None],
        figures=[*figures.values(), *(figure for _, _, figure in map(_carried, extras, _names(extras)))],
        run_table=PageTable(RUN_TABLE, "All runs", run_table(evaluation.runs, evaluation.rows, metrics)),
        runs=[page_run(run) for run in evaluation.runs],
        lineage=_lineage(evaluation.artifact, extras),
        version=__version__,
    )
    with publishing(out, plan, if_exists=if_exists) as staging:
        for name, entry in tables.items():
            staging.add_bytes(f"{name}.md", f"# {escape_markdown(config.title)}\n\n{to_markdown(entry.table)}".encode())
            staging.add_bytes(f"{name}.csv", to_csv(entry.table).encode())
            staging.add_bytes(f"{name}.tex", to_latex(entry.table).encode())
        for name, images in plots.items():
            for kind, image in images.items():
                staging.add_bytes(f"{name}.{kind}", image)
        words = _markdown_words(config.title, [headline, *bound, setup, *leaders, tested], _words(evaluation, metrics))
        staging.add_bytes("words.md", words.encode())
        staging.add_bytes(PAGE, render_page(page))
        written = [f"{name}.{kind}" for name in tables for kind in ("md", "csv", "tex")]
        written += [f"{name}.{kind}" for name, images in plots.items() for kind in images]
        staging.summary = ReportSummary(files=tuple(sorted([*written, "words.md", PAGE])))
    return open_artifact(out, "report"), evaluation


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


def _results(evaluation: Evaluation, config: ReportConfig) -> Table:
    return results_table(
        evaluation.groups,
        title=config.title,
        metrics=_metrics(evaluation, config),
        reference=evaluation.reference,
        comparisons=evaluation.comparisons,
    ).with_notes(operating_words([operating_of(run) for run in evaluation.runs]))


def _tables(evaluation: Evaluation, config: ReportConfig) -> dict[str, PageTable]:
    title, present = config.title, evaluation.metrics
    notes = operating_words([operating_of(run) for run in evaluation.runs])
    grid = "accuracy" if "accuracy" in present else _metrics(evaluation, config)[0]
    made = {
        "results": ("Results", _results(evaluation, config)),
        f"{grid}-grid": (
            f"By prior, data set and method: {grid}",
            metric_grid(evaluation.groups, grid, title=title).with_notes(notes),
        ),
    }
    known = {row["metric"] for row in evaluation.groups if row["mean"] is not None}
    wanted = MAIN_METRICS if MAIN_METRICS[2] in known else MAIN_METRICS_WITHOUT_LABELS
    if main := [name for name in wanted if name in known]:
        made["main-results"] = (
            "Ranking and calibration, with intervals",
            results_table(
                evaluation.groups,
                title=title,
                metrics=main,
                reference=evaluation.reference,
                comparisons=evaluation.comparisons,
                intervals=True,
            ).with_notes(notes),
        )
    if small := [name for name in SMALL_METRICS if name in known]:
        made["small-comparison"] = ("Small comparison", results_table(evaluation.groups, title=title, metrics=small))
    if config.compare == "paper":
        made["beside-the-paper"] = (
            "Beside the paper",
            beside_the_paper(evaluation.groups, _run_settings(evaluation), title=title),
        )
    if compared := comparison_table(evaluation.comparisons, _metrics(evaluation, config), title=title):
        made[COMPARISON_TABLE] = (f"Compared with {evaluation.reference}", compared)
    return {name: PageTable(name, heading, table) for name, (heading, table) in made.items()}


def _run_settings(evaluation: Evaluation) -> dict[tuple[DataCell, MethodVariant], RunSetting]:
    """Gap (mean over runs) and encoder of every line of the evaluation."""
    members: dict[tuple[DataCell, MethodVariant], list[dict[str, Any]]] = {}
    for run in evaluation.runs:
        key = cell_of(cast(SummaryRow, run)), MethodVariant(run["method"], run["variant"])
        members.setdefault(key, []).append(run)
    return {
        key: RunSetting(sum(operating_of(run).gap for run in runs) / len(runs), any(run["encoder"] for run in runs))
        for key, runs in members.items()
    }


# Words ---------------------------------------------------------------------------------------------


def _words(evaluation: Evaluation, metrics: Sequence[str]) -> dict[str, list[str]]:
    """A paragraph per comparison: over all cells first, then cell by cell, metric after metric."""
    groups: dict[str, list[str]] = {}
    chosen = [comparison for comparison in evaluation.comparisons if comparison["metric"] in metrics]
    for comparison in sorted(chosen, key=lambda one: (one["scope"] != "overall", metrics.index(one["metric"]))):
        heading = (
            "All cells together"
            if comparison["scope"] == "overall"
            else f"{comparison['dataset']} {comparison['tuples']} at π = {comparison['prior']:g}"
        )
        groups.setdefault(heading, []).append(comparison_words(comparison))
    return groups


def _markdown_words(title: str, summary: Sequence[str], words: Mapping[str, Sequence[str]]) -> str:
    blocks = [f"# {escape_markdown(title)}", " ".join(map(escape_markdown, summary))]
    for heading, paragraphs in words.items():
        blocks += [f"## {escape_markdown(heading)}", *map(escape_markdown, paragraphs)]
    return "\n\n".join(blocks) + "\n"


# Figures -------------------------------------------------------------------------------------------

# Heading and caption of the figures that are plotted here.
CAPTIONS = {
    "learning-curves": (
        "Learning curves",
        "Training objective, held-out objective (label-free) and test accuracy by epoch. Lines: means over seeds; "
        "bands: one standard deviation to either side.",
    ),
    "accuracy-by-iteration": (
        "Accuracy by training iteration",
        "Test accuracy after every epoch, by steps of the optimiser. Lines: means over seeds; bands: one standard "
        "deviation to either side.",
    ),
    "metrics-against-prior": (
        "Metrics against the prior of U",
        "Means over seeds, bands of one standard deviation to either side.",
    ),
    "reliability": (
        "Reliability",
        "Share of positives against predicted probability, the test split reweighted to the prior. Each of the ten "
        "points holds a tenth of the instances; points are means over seeds. Bars: 95 % Wilson intervals of one test "
        "split. On the diagonal, predicted probabilities equal observed shares.",
    ),
}
# Figures of the paper, whose captions name the data.
FIGURES_OF_DATA = ("accuracy-by-iteration", "metrics-against-prior")
WARMUP = (
    "Dotted line: the end of the warm-up. Until then the training objective contains a warm-up term, whose weight "
    "falls to 0; it decides which class is positive. From then on self-training masks features and its "
    "pseudo-labels have their full weight. The training objective may rise there: it is another objective, not a worse "
    "classifier."
)


def _figures(evaluation: Evaluation, config: ReportConfig) -> dict[str, dict[str, bytes]]:
    curves, metric = [_curve(row) for row in evaluation.curves], _metrics(evaluation, config)[0]
    return {
        CHART: method_dots(evaluation.groups, metric, _baselines(evaluation, metric)),
        "learning-curves": learning_curves(curves, title=config.title),
        "accuracy-by-iteration": accuracy_by_iteration(curves, title=config.title),
        "metrics-against-prior": metrics_against_prior(evaluation.groups, title=config.title),
        "reliability": reliability_diagrams(_diagrams(evaluation.reliability), title=config.title),
    }


def _chart(evaluation: Evaluation, metric: str, images: Mapping[str, bytes]) -> PageFigure | None:
    if not images:
        return None
    caption = dots_caption(evaluation.groups, metric, _baselines(evaluation, metric))
    text = dots_as_text(evaluation.groups, metric)
    return PageFigure(CHART, f"All methods: {metric}", caption, images["svg"], text=text)


def _baselines(evaluation: Evaluation, metric: str) -> dict[DataCell, Baseline]:
    """Values of a constant score by cell; unknown for evaluations of earlier versions."""
    decisions: dict[DataCell, list[dict[str, Any]]] = {}
    for run in evaluation.runs:
        if "decisions" in run:
            decisions.setdefault(cell_of(cast(SummaryRow, run)), []).append(run["decisions"])
    found = {cell: constant_score(metric, members) for cell, members in decisions.items()}
    return {cell: baseline for cell, baseline in found.items() if baseline is not None}


def _page_figure(name: str, svg: bytes, evaluation: Evaluation) -> PageFigure:
    heading, caption = CAPTIONS[name]
    warms_up = any(row.get("warmup_end") is not None for row in evaluation.curves)
    if name == "learning-curves" and warms_up:
        caption = f"{caption} {WARMUP}"
    if name in FIGURES_OF_DATA:
        seeds = sorted({int(run["seed"]) for run in evaluation.runs})
        caption = f"{caption} {data_caption([operating_of(run) for run in evaluation.runs], seeds)}"
    return PageFigure(name, heading, caption, svg)


def _diagrams(rows: Sequence[dict[str, Any]]) -> list[Diagram]:
    """At the prior that scores are probabilities at; a test split without both classes cannot be reweighted to it."""
    return [
        Diagram(label_of(row), group_of(row), row["scaling"], **row["equal_mass"])
        for row in rows
        if row["weighting"] == "at prior" and "equal_mass" in row
    ]


def _curve(row: dict[str, Any]) -> Curve:
    return Curve(
        label=label_of(row),
        group=group_of(row),
        seed=row["seed"],
        epochs=row["epochs"],
        train_loss=row["loss"],
        heldout_risk=row["heldout_risk"],
        accuracy=[(epoch, value) for epoch, value in row["accuracy"]],
        iterations=row.get("iterations", ()),
        warmup_end=row.get("warmup_end"),
    )


def _names(artifacts: Sequence[Artifact]) -> list[str]:
    """sweep-1, sweep-2, prior-1 …: whatever the folders are called."""
    kinds = [artifact.kind for artifact in artifacts]
    return [f"{kind}-{kinds[: index + 1].count(kind)}" for index, kind in enumerate(kinds)]


def _carried(
    artifact: Artifact[SweepSummary] | Artifact[PriorSummary], name: str
) -> tuple[str, dict[str, bytes], PageFigure]:
    """The figure of a sweep or of an estimated prior, as it was plotted, and its caption."""
    images = {kind: artifact.file(f"{artifact.kind}.{kind}").read_bytes() for kind in ("svg", "png")}
    summary = artifact.summary
    if isinstance(summary, PriorSummary):
        sure = "without an interval" if summary.ci is None else f"interval {summary.ci[0]:.4f} to {summary.ci[1]:.4f}"
        caption = (
            f"Class prior {summary.prior:.4f} by {summary.estimator}, {summary.confidence:.0%} {sure}: "
            "densities of scores with the fitted mixture, the tail ratio, the bootstrap."
        )
        return name, images, PageFigure(name, "Estimated class prior", caption, images["svg"], summary.warnings)
    caption = f"Sweep of {summary.sweep}: {summary.trained} of {summary.cells} trainings, judged by {summary.metric}."
    caption += f" {summary.caption}"
    lines = [f"{window_words(window.to_json())}." for window in summary.windows]
    return name, images, PageFigure(name, f"Sweep of {summary.sweep}", caption, images["svg"], lines)


def _lineage(evaluation: Artifact, extras: Sequence[Artifact]) -> dict[str, str]:
    return {"evaluation": evaluation.sha256} | {
        name: extra.sha256 for name, extra in zip(_names(extras), extras, strict=True)
    }
