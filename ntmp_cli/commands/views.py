"""Results as a person reads them in a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ntmp_cli.artifacts import Artifact, open_artifact
from ntmp_cli.artifacts.layout import SUMMARY
from ntmp_cli.config import ReportConfig

if TYPE_CHECKING:
    from ntmp_cli.reporting.rendering import Table as ResultsTable
    from ntmp_cli.stages.pipeline import Step
    from ntmp_cli.stages.sweep import Sweep
    from ntmp_cli.sweeps.plans import SweepPlan


MOST_ROWS = 40
MOST_COLUMNS = 8


def tuples_view(console: Console, made: Artifact) -> None:
    """Label-free facts of a tuples directory: sizes, strata and their rates, the gap."""
    facts = made.summary
    shape = "×".join(map(str, facts["instance"]["shape"]))
    instances = _by_split(facts["instances"])
    if "reuse" in facts:
        instances += f", mean uses of a pool member {_reuse(facts['reuse'])}"
    prior, gap = facts["prior"], facts["effective_gap"]
    known = prior is not None
    _pairs(
        console,
        {
            "directory": made.path,
            "kind": made.kind,
            "data set": f"{facts['dataset']}, instances {shape} {facts['instance']['dtype']}",
            "tuples": _by_split(facts["tuples"]),
            "instances": instances,
            "unlabeled": _by_split(facts["unlabeled"]),
            "test": f"{facts['test']:,}",
            "mean rate ᾱ": f"{facts['mean_rate']:.4f}",
            "prior π of U": f"{prior:.4f}, |π − ᾱ| = {abs(prior - facts['mean_rate']):.4f}" if known else PRIOR_UNKNOWN,
            "effective gap √D/S₀": f"{gap:.4f}" if known else "unknown without π",
        },
    )
    _strata(console, facts["strata"]["train"])
    if facts.get("features"):
        _features(console, facts["features"])


PRIOR_UNKNOWN = "unknown: training needs it, --prior"


def understood_view(console: Console, source: Path, facts: Mapping[str, Any]) -> None:
    """What an import would make of the user's files."""
    labels = " with labels" if facts["test_labels"] else ""
    _pairs(
        console,
        {
            "read": f"{source}; nothing was written",
            "tuples": _by_split(facts["tuples"]),
            "instances": _by_split(facts["instances"]),
            "unlabeled": _by_split(facts["unlabeled"]),
            "test": f"{facts['test']:,}{labels if facts['test'] else ''}",
        },
    )
    _strata(console, facts["strata"]["train"])
    _features(console, facts["features"])
    rows = facts["first_rows"]
    if rows:
        console.print("first rows")
        for row in rows:
            shown = [f"{name}={'' if value is None else value}" for name, value in list(row.items())[:MOST_COLUMNS]]
            console.print(Text("  " + ", ".join([*shown, *(["…"] if len(row) > MOST_COLUMNS else [])])))


def _strata(console: Console, strata: Sequence[Mapping[str, Any]]) -> None:
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("n", "m", "rate", "tuples", "instances"):
        table.add_column(name, justify="right")
    for row in strata[:MOST_ROWS]:
        table.add_row(str(row["n"]), str(row["m"]), f"{row['rate']:.4f}", f"{row['tuples']:,}", f"{row['instances']:,}")
    console.print(table)
    if len(strata) > MOST_ROWS:
        console.print(f"… and {len(strata) - MOST_ROWS} more strata")


def _features(console: Console, features: Sequence[Mapping[str, Any]]) -> None:
    if not features:
        return
    table = Table("feature", "class", box=box.SIMPLE_HEAD)
    table.add_column("missing", justify="right")
    for feature in features[:MOST_ROWS]:
        categories = feature.get("categories")
        more = f" ({', '.join(categories[:5])}{' …' if len(categories) > 5 else ''})" if categories else ""
        table.add_row(Text(feature["name"]), Text(feature["kind"] + more), f"{feature['missing']:,}")
    console.print(table)
    if len(features) > MOST_ROWS:
        console.print(f"… and {len(features) - MOST_ROWS} more features")


def _by_split(sizes: Mapping[str, int]) -> str:
    heldout = f" (+ {sizes['heldout']:,} held out)" if "heldout" in sizes else ""
    return f"{sizes['train']:,}{heldout}"


def _reuse(reuse: Mapping[str, float]) -> str:
    return f"{reuse['positive']:.2f} (positive), {reuse['negative']:.2f} (negative)"


def run_view(console: Console, run: Artifact, history: Sequence[Mapping[str, Any]]) -> None:
    """How a training ended."""
    facts = run.summary
    last = history[facts["selected_epoch"] - 1]
    risk = last["heldout_risk"]
    shown = {
        "directory": run.path,
        "method": facts["method"],
        "trained on": f"{facts['dataset']} {facts['tuples']}, prior {facts['prior']:g}",
        "model": f"{facts['model']}, {facts['parameters']:,} parameters",
        "epoch kept": f"{facts['selected_epoch']} of {facts['epochs']}",
        "training loss": "none, computed at once" if last["loss"] is None else f"{last['loss']:.5f}",
        "held-out risk": "none" if risk is None else f"{risk:.5f} (label-free)",
    }
    if facts.get("encoder"):
        shown["features"] = f"{facts['encoder']}, {facts['features']['shape'][0]} numbers"
    if "negative_rate" in last:
        shown["risk terms below 0"] = ", ".join(f"{k} {v:.0%}" for k, v in last["negative_rate"].items())
    _pairs(console, shown)


def prior_view(console: Console, prior: Artifact, found: Mapping[str, Any]) -> None:
    """The estimate, then every estimator's, then the bound and the doubts."""
    level = f"{found['confidence']:.0%}"
    _pairs(
        console,
        {
            "directory": prior.path,
            "class prior π": f"{found['prior']:.4f}, {level} interval {_interval(found['ci'])} ({found['estimator']})",
            "upper bound": f"{found['upper_bound']['value']:.4f}, {found['upper_bound']['confident']:.4f} at {level}",
            "from": f"{found['tuples']:,} tuples, {found['unlabeled']:,} unlabeled that no score model was trained on",
        },
    )
    table = Table("estimator", box=box.SIMPLE_HEAD)
    for name in ("π", f"{level} interval"):
        table.add_column(name, justify="right")
    for name, row in found["estimators"].items():
        value = "undefined" if row["value"] is None else f"{row['value']:.4f}"
        table.add_row(Text(name, style="bold" if name == found["estimator"] else ""), value, _interval(row["ci"]))
    console.print(table)
    for warning in found["warnings"]:
        console.print(Text(f"warning: {warning}"), soft_wrap=True)


def _interval(ci: Sequence[float] | None) -> str:
    return "none" if ci is None else f"{ci[0]:.4f} to {ci[1]:.4f}"


def evaluation_view(console: Console, evaluation: Artifact) -> None:
    """The results table."""
    from ntmp_cli.stages.report import table_of

    asked = tuple(evaluation.manifest.config["metrics"])
    console.print(results_view(table_of(evaluation, ReportConfig(title="Test results", metrics=asked))))


def results_view(table: ResultsTable) -> Table:
    """A results table: blocks set apart by lines, the best cells in bold."""
    # Text objects everywhere: plain strings would have their [brackets] read as markup.
    drawn = Table(caption=Text(table.caption), caption_justify="left", box=box.SIMPLE_HEAD)
    for column in table.columns:
        if column.shown:
            drawn.add_column(Text(column.header), justify="right" if column.numeric else "left", overflow="fold")
    for block in table.blocks:
        for row in block:
            drawn.add_row(*(Text(cell.text, style="bold" if cell.best else "") for cell in table.shown(row)))
        drawn.add_section()
    return drawn


def prediction_view(console: Console, facts: Mapping[str, Any]) -> None:
    """Where scored rows lie, and how many are positive."""
    share = facts["positive"] / facts["rows"]
    _pairs(
        console,
        {
            "table": facts["out"],
            "rows": f"{facts['rows']:,}",
            "labelled positive": f"{facts['positive']:,} ({share:.1%}) at prior {facts['prior']:g}",
        },
    )


def report_view(console: Console, tables: Sequence[ResultsTable], files: Sequence[str]) -> None:
    """Every table of a report, and where its files are."""
    for table in tables:
        console.print(results_view(table))
    for name in files:
        console.print(Text(name), soft_wrap=True)


def design_view(console: Console, facts: Mapping[str, Any], out: Path | None) -> None:
    """One page: what to change, then everything it follows from."""
    from ntmp_cli.reporting.design import changes_of, heading, sections

    console.print(Text(heading(facts), style="bold"))
    console.print("\nWhat to change", style="bold")
    for text in changes_of(facts):
        console.print(Padding(Text(f"• {text}"), (0, 0, 0, 2), expand=False))
    for section in sections(facts):
        _pairs(console, dict(section.lines), section.title)
    if out is not None:
        console.print(Text(f"\npage: {out / 'design.md'}"), soft_wrap=True)


def audit_view(console: Console, facts: Mapping[str, Any], out: Path | None) -> None:
    """What was found before training, then in the eyes of a run, then the most suspicious tuples."""
    from ntmp_cli.reporting.audit import SUSPICIOUS, sections, suspicious_cells

    for title, lines in sections(facts):
        _pairs(console, lines, title)
    after = facts["after_training"]
    if after is not None and after["most_suspicious"]:
        table = Table(*SUSPICIOUS, title=None, box=box.SIMPLE_HEAD)
        for row in after["most_suspicious"]:
            table.add_row(*map(Text, suspicious_cells(row)))
        console.print(table)
    for warning in after["warnings"] if after else ():
        console.print(Text(f"warning: {warning}"), soft_wrap=True)
    if out is not None:
        console.print(Text(f"page: {out / 'audit.md'}"), soft_wrap=True)


def export_view(console: Console, made: Artifact) -> None:
    """The file, what goes in and what comes out."""
    facts = made.summary
    shape = "×".join("rows" if size is None else str(size) for size in facts["input"]["shape"])
    _pairs(
        console,
        {
            "file": made.path / facts["file"],
            "input": f"{facts['input']['name']}: {shape} {facts['input']['dtype']}",
            "outputs": facts["outputs"],
            "prior": f"{facts['prior']:g}, temperature {facts['temperature']:.3g}",
        },
    )


def pipeline_view(console: Console, out: Path, steps: Sequence[Step]) -> None:
    """The table of the study and where its report lies."""
    evaluation_view(console, open_artifact(out / "evaluation", "evaluation"))
    skipped = sum(step.skipped for step in steps)
    console.print(f"{len(steps) - skipped} steps done, {skipped} unchanged")
    console.print(Text(f"report: {out / 'report' / 'index.html'}"), soft_wrap=True)


def plan_view(console: Console, plan: SweepPlan, finished: set[str]) -> None:
    """The cells of a sweep, and which of them are there already."""
    for cell in plan.cells:
        console.print(Text(f"{'done   ' if cell.name in finished else 'to do  '} {cell.name}"), soft_wrap=True)
    for left in plan.left_out:
        console.print(Text(f"left out {_coordinates(left.position)}: {left.why}"), soft_wrap=True)
    console.print(f"{len(plan.cells)} cells, {len(finished)} done, {len(plan.cells) - len(finished)} to train")


def sweep_view(console: Console, sweep: Sweep) -> None:
    """The metric that is judged at every point, the windows, and where everything lies."""
    from ntmp_cli.reporting.words import window_words

    found, tally = sweep.results.summary, sweep.tally
    metric = found["metric"]
    points = json.loads(sweep.results.file(SUMMARY).read_bytes())
    known = ("run", "metric", "planned", "seeds", "mean", "std", "low", "high")
    table = Table(box=box.SIMPLE_HEAD)
    keys = [key for key in points[0] if key not in known]
    for name in ("run", *keys, "seeds", metric, "std", "95 % interval"):
        table.add_column(Text(name), justify="left" if name == "run" else "right")
    for p in (p for p in points if p["metric"] == metric):
        interval = "none" if p["low"] is None else f"{p['low']:.4f} to {p['high']:.4f}"
        seeds = f"{p['seeds']}" if p["seeds"] == p["planned"] else f"{p['seeds']} of {p['planned']}"
        numbers = ["none" if p[key] is None else f"{p[key]:.4f}" for key in ("mean", "std")]
        table.add_row(*map(Text, (p["run"], *(_shown(p[key]) for key in keys), seeds, *numbers, interval)))
    console.print(table)
    for left in sweep.plan.left_out:
        console.print(Text(f"left out {_coordinates(left.position)}: {left.why}"), soft_wrap=True)
    for window in found["windows"]:
        console.print(Text(window_words(window)), soft_wrap=True)
    console.print(f"{tally.trained} cells trained, {tally.kept} unchanged, {len(tally.failures)} failed")
    note = "" if found["complete"] else " (incomplete)"
    console.print(Text(f"results: {sweep.results.path}{note}"), soft_wrap=True)


def _coordinates(position: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={_shown(value)}" for key, value in position.items())


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def names_view(console: Console, kind: str, entries: Mapping[str, str]) -> None:
    _pairs(console, entries)


def artifact_view(console: Console, artifact: Artifact) -> None:
    """Any artefact: facts first, then settings, lineage and files."""
    manifest = artifact.manifest
    if artifact.kind == "tuples":
        tuples_view(console, artifact)
    else:
        simple = {k: v for k, v in manifest.summary.items() if not isinstance(v, dict)}
        _pairs(console, {"directory": artifact.path, "kind": artifact.kind, **simple})
    _pairs(console, {k: v for k, v in manifest.config.items() if v not in (None, [], "")}, "settings")
    lineage = {f"{i['kind']} {i.get('name', '')}".strip(): i["sha256"][:16] for i in manifest.inputs}
    _pairs(console, {**lineage, f"this {artifact.kind}": artifact.sha256[:16]}, "lineage (SHA-256)")
    table = Table("file", box=box.SIMPLE_HEAD)
    for name in ("rows", "bytes"):
        table.add_column(name, justify="right")
    for entry in manifest.files:
        table.add_row(Text(entry.path), "" if entry.rows is None else f"{entry.rows:,}", f"{entry.bytes:,}")
    console.print(table)
    console.print(f"all {len(manifest.files)} files match their hashes (ntmp {manifest.package_version})")


def _pairs(console: Console, values: Mapping[str, Any], title: str | None = None) -> None:
    if title:
        console.print(f"\n{title}")
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in values.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        table.add_row(Text(name, style="dim"), Text(shown))
    console.print(table)
