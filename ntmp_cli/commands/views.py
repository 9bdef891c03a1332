"""Results as a person reads them in a terminal."""

from __future__ import annotations

import json
import string
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ntmp_cli.artifacts import Artifact
from ntmp_cli.artifacts.layout import SUMMARY

if TYPE_CHECKING:
    from ntmp_cli.reporting.overview import Overview
    from ntmp_cli.reporting.rendering import Table as ResultsTable
    from ntmp_cli.stages.pipeline import Step
    from ntmp_cli.stages.sweep import Sweep
    from ntmp_cli.sweeps.plans import SweepPlan


MOST_ROWS = 40
MOST_COLUMNS = 8
# Between columns, and the least room for a name.
GAP, NAME = 2, 8


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
    table = _table()
    for name in ("n", "m", "rate", "tuples", "instances"):
        table.add_column(name, justify="right")
    for row in strata[:MOST_ROWS]:
        table.add_row(str(row["n"]), str(row["m"]), f"{row['rate']:.4f}", f"{row['tuples']:,}", f"{row['instances']:,}")
    _print_table(console, table)
    if len(strata) > MOST_ROWS:
        console.print(f"… and {len(strata) - MOST_ROWS} more strata")


def _features(console: Console, features: Sequence[Mapping[str, Any]]) -> None:
    if not features:
        return
    table = _table("feature", "class")
    table.add_column("missing", justify="right")
    for feature in features[:MOST_ROWS]:
        categories = feature.get("categories")
        more = f" ({', '.join(categories[:5])}{' …' if len(categories) > 5 else ''})" if categories else ""
        table.add_row(Text(feature["name"]), Text(feature["kind"] + more), f"{feature['missing']:,}")
    _print_table(console, table)
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
        shown["risk terms < 0"] = ", ".join(f"{k} {v:.0%}" for k, v in last["negative_rate"].items())
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
    table = _table("estimator")
    for name in ("π", f"{level} interval"):
        table.add_column(name, justify="right")
    for name, row in found["estimators"].items():
        value = "undefined" if row["value"] is None else f"{row['value']:.4f}"
        table.add_row(Text(name, style="bold" if name == found["estimator"] else ""), value, _interval(row["ci"]))
    _print_table(console, table)
    for warning in found["warnings"]:
        _say(console, f"warning: {warning}")


def _interval(ci: Sequence[float] | None) -> str:
    return "none" if ci is None else f"{ci[0]:.4f} to {ci[1]:.4f}"


def overview_view(console: Console, overview: Overview, *, wide: bool = False) -> None:
    """The verdict, then the table."""
    _show_verdict(console, overview)
    _show_table(console, overview.table, wide=wide)


def _show_verdict(console: Console, overview: Overview) -> None:
    _say(console, overview.verdict, style="bold")
    _say(console, overview.upper_bound)
    console.print()


def _show_table(console: Console, table: ResultsTable, *, wide: bool) -> None:
    """All columns above their legend; or the first of them below a line that says what they are."""
    if wide:
        console.print(results_view(table))
        _say(console, table.caption, width=max(_natural_width(table), 80))
    else:
        _say(console, table.caption)
        console.print(results_view(_fitting(table, console.width), console.width))
        _say(console, "More columns and the tests: --wide", style="dim")
    console.print()


def _fitting(table: ResultsTable, width: int) -> ResultsTable:
    """The table without its last metrics, as many as are needed to fit; never without the first."""
    metrics = [at for at, column in enumerate(table.columns) if column.fields[0].endswith("_mean")]
    while len(metrics) > 1 and _natural_width(table) > width:
        last = metrics.pop()
        columns = tuple(replace(c, shown=c.shown and at != last) for at, c in enumerate(table.columns))
        table = replace(table, columns=columns)
    return table


def _natural_width(table: ResultsTable) -> int:
    widths = _column_widths(table)
    return sum(widths) + GAP * (len(widths) - 1)


def _column_widths(table: ResultsTable) -> list[int]:
    texts = [table.headers, *(tuple(cell.text for cell in table.shown(row)) for row in table.rows)]
    return [max(map(cell_len, column)) for column in zip(*texts, strict=True)]


def results_view(table: ResultsTable, width: int = 0) -> Table:
    """A results table: blocks set apart, the best cells in bold; in `width` columns names are folded, numbers not."""
    columns = [column for column in table.columns if column.shown]
    least = [own if column.numeric else NAME for own, column in zip(_column_widths(table), columns, strict=True)]
    whole = sum(least) + GAP * (len(least) - 1) <= width
    # Text objects everywhere: plain strings would have their [brackets] read as markup.
    drawn = _table()
    for column in columns:
        justify: Literal["left", "right"] = "right" if column.numeric else "left"
        drawn.add_column(Text(column.header), justify=justify, overflow="fold", no_wrap=whole and column.numeric)
    for block in table.blocks:
        for row in block:
            drawn.add_row(*(Text(cell.text, style="bold" if cell.best else "") for cell in table.shown(row)))
        drawn.add_section()
    return drawn


def _print_table(console: Console, table: Table) -> None:
    console.print()
    console.print(table)


def _table(*names: str) -> Table:
    """A table whose first columns are names: folded where they are too long, never cut."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold")
    return table


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


def report_view(
    console: Console,
    overview: Overview,
    tables: Sequence[ResultsTable],
    files: Sequence[str],
) -> None:
    """The verdict, every table of a report, and where its files are."""
    _show_verdict(console, overview)
    for table in tables:
        _show_table(console, table, wide=True)
    for name in files:
        _line(console, name)


def design_view(console: Console, facts: Mapping[str, Any], out: Path | None) -> None:
    """One page: what to change, then everything it follows from."""
    from ntmp_cli.reporting.design import changes_of, heading, sections

    _say(console, heading(facts), style="bold")
    console.print("\nWhat to change", style="bold")
    for text in changes_of(facts):
        _say(console, f"• {text}", first="  ", then="    ")
    for section in sections(facts):
        _pairs(console, dict(section.lines), section.title)
    if out is not None:
        console.print()
        _line(console, f"page: {out / 'design.md'}")


def audit_view(console: Console, facts: Mapping[str, Any], out: Path | None) -> None:
    """What was found before training, then in the eyes of a run, then the most suspicious tuples."""
    from ntmp_cli.reporting.audit import SUSPICIOUS, sections, suspicious_cells

    for title, lines in sections(facts):
        _pairs(console, lines, title)
    after = facts["after_training"]
    if after is not None and after["most_suspicious"]:
        table = _table(*SUSPICIOUS)
        for row in after["most_suspicious"]:
            table.add_row(*map(Text, suspicious_cells(row)))
        _print_table(console, table)
    for warning in after["warnings"] if after else ():
        _say(console, f"warning: {warning}")
    if out is not None:
        _line(console, f"page: {out / 'audit.md'}")


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


def pipeline_view(
    console: Console, overview: Overview, out: Path, steps: Sequence[Step], *, wide: bool = False
) -> None:
    """The verdict and the table of the study, and where its report is."""
    overview_view(console, overview, wide=wide)
    skipped = sum(step.skipped for step in steps)
    console.print(f"{len(steps) - skipped} steps done, {skipped} unchanged")
    _line(console, f"report: {out / 'report' / 'index.html'}")


def plan_view(console: Console, plan: SweepPlan, finished: set[str]) -> None:
    """The cells of a sweep, and which of them are there already."""
    for cell in plan.cells:
        _line(console, f"{'done   ' if cell.name in finished else 'to do  '} {cell.name}")
    for left in plan.left_out:
        _say(console, f"left out {_coordinates(left.position)}: {left.why}")
    console.print(f"{len(plan.cells)} cells, {len(finished)} done, {len(plan.cells) - len(finished)} to train")


def sweep_view(console: Console, sweep: Sweep, *, wide: bool = False) -> None:
    """The metric that is judged at every point, the windows, and where the results are."""
    from ntmp_cli.reporting.words import window_words

    found, tally = sweep.results.summary, sweep.tally
    points = [p for p in json.loads(sweep.results.file(SUMMARY).read_bytes()) if p["metric"] == found["metric"]]
    _print_table(console, _points_table(points, wide=wide))
    for left in sweep.plan.left_out:
        _say(console, f"left out {_coordinates(left.position)}: {left.why}")
    for window in found["windows"]:
        _say(console, window_words(window))
    console.print(f"{tally.trained} cells trained, {tally.kept} unchanged, {len(tally.failures)} failed")
    note = "" if found["complete"] else " (incomplete)"
    _line(console, f"results: {sweep.results.path}{note}")


def _points_table(points: Sequence[Mapping[str, Any]], *, wide: bool) -> Table:
    """A row per point. Unless `wide`, names are short and what tells no rows apart is left out."""
    known = ("run", "metric", "planned", "seeds", "mean", "std", "low", "high")
    keys = [key for key in points[0] if key not in known]
    columns = {
        "run": [p["run"] for p in points],
        **{key: [_shown(p[key]) for p in points] for key in keys},
        "seeds": [f"{p['seeds']}" + f" of {p['planned']}" * (p["seeds"] != p["planned"]) for p in points],
        points[0]["metric"]: [_four_digits(p["mean"]) for p in points],
        "std": [_four_digits(p["std"]) for p in points],
        "95 % interval": ["none" if p["low"] is None else f"{p['low']:.4f} to {p['high']:.4f}" for p in points],
    }
    headers = {name: name for name in columns}
    if not wide:
        del columns["std"]
        for name in ("run", "seeds"):
            if keys and len(set(columns[name])) == 1:
                del columns[name]
        short = [key.rpartition(".")[2] for key in keys]
        headers |= {key: name for key, name in zip(keys, short, strict=True) if short.count(name) == 1}
    table = _table()
    for name in columns:
        table.add_column(Text(headers[name]), justify="left" if name == "run" else "right", overflow="fold")
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _four_digits(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


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
        simple = {k: _shortened(v) for k, v in manifest.summary.items() if not isinstance(v, dict)}
        _pairs(console, {"directory": artifact.path, "kind": artifact.kind, **simple})
    _pairs(console, {k: v for k, v in manifest.config.items() if v not in (None, [], "")}, "settings")
    lineage = {f"{i['kind']} {i.get('name', '')}".strip(): i["sha256"][:16] for i in manifest.inputs}
    _pairs(console, {**lineage, f"this {artifact.kind}": artifact.sha256[:16]}, "lineage (SHA-256)")
    table = _table("file")
    for name in ("rows", "bytes"):
        table.add_column(name, justify="right")
    for entry in manifest.files:
        table.add_row(Text(entry.path), "" if entry.rows is None else f"{entry.rows:,}", f"{entry.bytes:,}")
    _print_table(console, table)
    console.print(f"all {len(manifest.files)} files match their hashes (ntmp {manifest.package_version})")


def _shortened(value: Any) -> Any:
    """Hashes to 16 digits, as in the lineage."""
    is_hash = isinstance(value, str) and len(value) == 64 and set(value) <= set(string.hexdigits)
    return value[:16] if is_hash else value


def _pairs(console: Console, values: Mapping[str, Any], title: str | None = None) -> None:
    if title:
        console.print(f"\n{title}")
    indent = max((cell_len(name) for name in values), default=0) + GAP
    for name, value in values.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        lines = _wrapped(shown, console.width - indent) or [""]
        label = Text(name + " " * (indent - cell_len(name)), style="dim")
        console.print(Text.assemble(label, lines[0]), soft_wrap=True)
        for line in lines[1:]:
            console.print(Text(" " * indent + line), soft_wrap=True)


def _line(console: Console, text: str) -> None:
    """A line that is never wrapped, for paths: a terminal breaks it, a script reads it whole."""
    console.print(Text(text), soft_wrap=True)


def _say(
    console: Console, text: str, *, style: str = "", first: str = "", then: str = "", width: int | None = None
) -> None:
    """A paragraph, wrapped between words: a path that is longer than a line stays whole."""
    lines = _wrapped(text, min(console.width, width or console.width) - max(len(first), len(then)))
    for at, line in enumerate(lines):
        console.print(Text((then if at else first) + line, style=style), soft_wrap=True)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, max(width, 20), break_long_words=False, break_on_hyphens=False)
