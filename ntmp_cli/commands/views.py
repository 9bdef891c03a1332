"""Terminal output for artefacts. Views receive values and open no files."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from ntmp_cli.commands.view_text import new_table, print_line, print_pairs, print_table, print_text

if TYPE_CHECKING:
    from ntmp_cli.artifacts.manifest import Artifact
    from ntmp_cli.artifacts.summaries import ExportSummary, RunSummary, TuplesSummary
    from ntmp_cli.artifacts.summary_fields import BySplit, StratumRow
    from ntmp_cli.stages.import_tuples import Understood
    from ntmp_cli.storage import Location

MOST_ROWS = 40
MOST_COLUMNS = 8
# Levels of nested values that are shown: a damaged manifest may nest them without limit.
MOST_LEVELS = 3
# The orientation of a run is reported as certain if z is at least this, as by `train`.
CERTAIN = 3.0
PRIOR_UNKNOWN = "unknown: `train` estimates it unless --prior is given"
PRIOR_NEEDED = "unknown: tuples of one class do not determine it, so `train` needs --prior"


def tuples_view(console: Console, path: Path, summary: TuplesSummary) -> None:
    """Statistics of a tuples directory that need no labels: sizes, strata and their rates, the gap."""
    from ntmp_cli.artifacts.feature_rows import number_of_columns

    shape = "×".join(map(str, summary.instance.shape))
    instances = _by_split(summary.instances)
    if summary.reuse is not None:
        uses = f"{summary.reuse.positive:.2f} (positive), {summary.reuse.negative:.2f} (negative)"
        instances += f", mean uses of a pool member {uses}"
    prior, gap = PRIOR_NEEDED if summary.mean_rate in (0, 1) else PRIOR_UNKNOWN, "unknown without π"
    if not summary.unlabeled.train:
        prior = "none, no unlabeled pool"
    elif summary.prior is not None:
        prior = f"{summary.prior:.4f}, |π − ᾱ| = {abs(summary.prior - summary.mean_rate):.4f}"
        gap = f"{summary.effective_gap:.4f}"
    print_pairs(
        console,
        {
            "directory": path,
            "kind": summary.kind,
            "data set": f"{summary.dataset}, instances {shape} {summary.instance.dtype}",
            "tuples": _by_split(summary.tuples),
            "instances": instances,
            "unlabeled": _by_split(summary.unlabeled),
            "test": f"{summary.test:,}",
            "mean rate ᾱ": f"{summary.mean_rate:.4f}",
            "prior π of U": prior,
            "effective gap √D/S₀": gap,
        },
    )
    _strata(console, summary.strata.train)
    rows = [(feature.name, feature.kind, feature.missing) for feature in summary.features]
    _features(console, rows, number_of_columns(summary.features))


def understood_view(console: Console, source: Location, understood: Understood) -> None:
    """How an import interprets the user's files."""
    labels = " with labels" if understood.test_labels else ""
    print_pairs(
        console,
        {
            "read": f"{source}; nothing was written",
            "tuples": _by_split(understood.tuples),
            "instances": _by_split(understood.instances),
            "unlabeled": _by_split(understood.unlabeled),
            "test": f"{understood.test:,}{labels if understood.test else ''}",
        },
    )
    _strata(console, understood.strata.train)
    rows = [(f.name, f.kind + _categories(f.categories), f.missing) for f in understood.features]
    _features(console, rows, len(rows))
    if understood.first_rows:
        console.print("first rows")
        for row in understood.first_rows:
            shown = [f"{name}={'' if value is None else value}" for name, value in list(row.items())[:MOST_COLUMNS]]
            console.print(Text("  " + ", ".join([*shown, *(["…"] if len(row) > MOST_COLUMNS else [])])))


def _categories(categories: Sequence[str] | None) -> str:
    return f" ({', '.join(categories[:5])}{' …' if len(categories) > 5 else ''})" if categories else ""


def _strata(console: Console, strata: Sequence[StratumRow]) -> None:
    table = new_table()
    recorded = any(row.counts is not None for row in strata)
    for name in ("n", *(["recorded"] if recorded else []), "m", "rate", "tuples", "instances"):
        table.add_column(name, justify="right")
    for row in strata[:MOST_ROWS]:
        m = str(row.m) if isinstance(row.m, int) else f"{row.m:.4g}"
        said = [row.counts or m] if recorded else []
        table.add_row(str(row.n), *said, m, f"{row.rate:.4f}", f"{row.tuples:,}", f"{row.instances:,}")
    print_table(console, table)
    if len(strata) > MOST_ROWS:
        console.print(f"… and {len(strata) - MOST_ROWS} more strata")
    if recorded:
        print_text(console, "m: expected true count given the recorded one")


def _features(console: Console, features: Sequence[tuple[str, str, int]], number: int) -> None:
    """Name, class and missing values of every column."""
    if not features:
        return
    table = new_table("feature", "class")
    table.add_column("missing", justify="right")
    for name, kind, missing in features[:MOST_ROWS]:
        table.add_row(Text(name), Text(kind), f"{missing:,}")
    print_table(console, table)
    if number > MOST_ROWS:
        console.print(f"… and {number - MOST_ROWS} more features")


def _by_split(sizes: BySplit[int]) -> str:
    heldout = "" if sizes.heldout is None else f" (+ {sizes.heldout:,} held out)"
    return f"{sizes.train:,}{heldout}"


def _learner_words(learner: Mapping[str, Any]) -> str:
    if "rounds" in learner:
        return f"{learner['rounds']} rounds of EM"
    return f"penalty {learner['penalty']:g}" if "penalty" in learner else f"{learner['stages']} trees"


def run_view(
    console: Console, path: Path, run: RunSummary, history: Sequence[Mapping[str, Any]], *, stored: bool = False
) -> None:
    """Results of a training; `stored` if a run is inspected."""
    last = history[run.selected_epoch - 1] if history else {}
    shown = {
        "directory": path,
        **({"kind": run.kind} if stored else {}),
        "method": run.method,
        "trained on": f"{run.dataset} {run.tuples}",
        "prior": _prior_words(run),
        "model": f"{run.model}, {run.parameters:,} parameters",
    }
    if run.learner == "network":
        shown["epoch kept"] = f"{run.selected_epoch} of {run.epochs}"
        shown["training loss"] = "none, not trained in epochs" if run.loss is None else f"{run.loss:.5f}"
    for learner in last.get("learners", ()):
        what = _learner_words(learner)
        shown[f"  {learner['learner']}"] = f"weight {learner['weight']:.2f}, {what}, loss {learner['nll']:.4f}"
    if run.spread:
        shown["spread of tuples"] = f"{run.spread:g} (standard deviation of the random intercept per tuple)"
    shown["held-out risk"] = "none" if run.heldout_risk is None else f"{run.heldout_risk:.5f} (label-free)"
    if run.orientation_z is not None:
        shown["orientation"] = f"z = {run.orientation_z:.1f}, {_certainty_words(run.orientation_z)}"
    if run.encoder:
        shown["features"] = f"{run.encoder}, {run.features.shape[0]} numbers"
    if "negative_rate" in last:
        shown["risk terms < 0"] = ", ".join(f"{k} {v:.0%}" for k, v in last["negative_rate"].items())
    if (ratio := last.get("tuple_weight_variance_ratio")) is not None:
        shown["random tuple weights"] = f"{ratio:.2f} times the variance of equal ones"
    print_pairs(console, shown)


def _certainty_words(z: float) -> str:
    """How certain the orientation of the classes is."""
    return "certain" if z >= CERTAIN else "uncertain: the classes may be exchanged"


def _prior_words(run: RunSummary) -> str:
    """The training prior and its source."""
    origin = {
        "given": "given",
        "known": "known by construction",
        "estimated": "estimated on the unlabeled pool",
        "tuples": "the rate of the tuples, because there is no estimate",
    }[run.prior_source]
    interval = "" if run.prior_ci is None else f", interval {run.prior_ci[0]:.3f} to {run.prior_ci[1]:.3f}"
    return f"{run.trained_prior:.4g}, {origin}{interval}"


def prior_view(console: Console, path: Path, estimate: Mapping[str, Any]) -> None:
    """The estimate, then all estimators, the bound and the warnings."""
    level, interval, bound = f"{estimate['confidence']:.0%}", _interval(estimate["ci"]), estimate["upper_bound"]
    value = f"{estimate['prior']:.4f}" + ("" if estimate["identified"] else f" or {1 - estimate['prior']:.4f}")
    print_pairs(
        console,
        {
            "directory": path,
            **_paper_words(estimate),
            "class prior π": f"{value}, {level} interval {interval} ({estimate['estimator']})",
            "rate of the tuples": f"{estimate['tuple_rate']:.4f}",
            "upper bound": f"{bound['value']:.4f}, {bound['confident']:.4f} at {level}",
            "from": f"{estimate['tuples']:,} tuples, {estimate['unlabeled']:,} unlabeled "
            "that no score model was trained on",
        },
    )
    table = new_table("estimator")
    for name in ("π", f"{level} interval"):
        table.add_column(name, justify="right")
    for name, row in estimate["estimators"].items():
        value = "undefined" if row["value"] is None else f"{row['value']:.4f}"
        table.add_row(Text(name, style="bold" if name == estimate["estimator"] else ""), value, _interval(row["ci"]))
    print_table(console, table)
    for warning in estimate["warnings"]:
        print_text(console, f"warning: {warning}")


def _paper_words(estimate: Mapping[str, Any]) -> dict[str, str]:
    """How the paper's protocol got its number, and its Neyman–Pearson bound as the paper reads it."""
    if (facts := estimate.get("paper_protocol")) is None:
        return {}
    bound = estimate["neyman_pearson_as_in_the_paper"]["value"]
    trained = f"{facts['score_model']} on {facts['proxies']:,} positive proxies against U, by {facts['validated_by']}"
    return {"the paper's protocol": f"{trained}; Neyman–Pearson bound {bound:.4f}"}


def _interval(ci: Sequence[float] | None) -> str:
    return "none" if ci is None else f"{ci[0]:.4f} to {ci[1]:.4f}"


def prediction_view(console: Console, facts: Mapping[str, Any]) -> None:
    """The output file, the number of positives, and the expected metrics of the labels."""
    from ntmp_cli.reporting.audit import expectation

    share = facts["positive"] / max(1, facts["rows"])
    made = {"table": facts["out"]}
    if "tables" in facts:
        kept = f" ({facts['kept']:,} existed already)" if facts["kept"] else ""
        made = {"folder": facts["out"], "tables": f"{facts['tables']:,}{kept}"}
    print_pairs(
        console,
        {
            **made,
            "rows": f"{facts['rows']:,}",
            "labelled positive": f"{facts['positive']:,} ({share:.1%}) at prior {facts['prior']:g}",
            "threshold": _threshold(facts["threshold"]),
            **({} if facts["withheld"] is None else {"probabilities": f"withheld: {facts['withheld']}"}),
            **{f"expected {name}": expectation(one) for name, one in facts["expected"].items()},
        },
    )


def _threshold(threshold: Mapping[str, Any]) -> str:
    """From where on rows are positive; rows with a count are labelled by their posterior."""
    by_score = f"probability {threshold['probability']:.4g}"
    if threshold["posterior"] is None:
        return f"{by_score} ({threshold['rule']})"
    by_count = f"posterior {threshold['posterior']:.4g}"
    return f"{by_count} for rows with a count, {by_score} for rows without ({threshold['rule']})"


def group_prediction_view(console: Console, facts: Mapping[str, Any]) -> None:
    """The output file of group counts, and the guarantee of their intervals."""
    print_pairs(
        console,
        {
            "table": facts["out"],
            "groups": f"{facts['groups']:,} ({facts['rows']:,} rows)",
            "expected positives": f"{facts['expected']:,.1f}",
            "intervals": f"{facts['confidence']:.0%}, calibrated on {facts['calibration_tuples']:,} tuples",
            "guarantee": facts["guarantee"] or "none: too few calibration tuples",
        },
    )


def design_view(console: Console, facts: Mapping[str, Any], out: Path | None) -> None:
    """What to change, then the numbers behind it."""
    from ntmp_cli.reporting.design import changes_of, heading, sections

    print_text(console, heading(facts), style="bold")
    console.print("\nWhat to change", style="bold")
    for text in changes_of(facts):
        print_text(console, f"• {text}", first="  ", then="    ")
    for section in sections(facts):
        print_pairs(console, dict(section.lines), section.title)
    if out is not None:
        console.print()
        print_line(console, f"page: {out / 'design.md'}")


def audit_view(console: Console, facts: Mapping[str, Any], out: Path | None) -> None:
    """Findings before training, then by a run, then the most suspicious tuples."""
    from ntmp_cli.reporting.audit import SUSPICIOUS, sections, suspicious_cells

    for title, lines in sections(facts):
        print_pairs(console, lines, title)
    after = facts["after_training"]
    if after is not None and after["most_suspicious"]:
        table = new_table(*SUSPICIOUS)
        for row in after["most_suspicious"]:
            table.add_row(*map(Text, suspicious_cells(row)))
        print_table(console, table)
    for warning in after["warnings"] if after else ():
        print_text(console, f"warning: {warning}")
    if out is not None:
        print_line(console, f"page: {out / 'audit.md'}")


def explanation_view(console: Console, path: Path, facts: Mapping[str, Any]) -> None:
    """The most important features."""
    from ntmp_cli.reporting.explanation import cells

    if facts["kind"] == "saliency":
        print_pairs(console, {"directory": path, "images": f"{facts['images']:,}", "map": path / "explanation.png"})
        return
    print_pairs(console, {"directory": path, "tuples": f"{facts['tuples']:,} that the classifier was not trained on"})
    table = new_table("feature")
    for name in ("loss", f"{facts['confidence']:.0%} interval"):
        table.add_column(name, justify="right")
    rows = facts["features"]
    for row in rows[:MOST_ROWS]:
        name, *numbers = cells(row)
        table.add_row(Text(name), *numbers)
    print_table(console, table)
    if len(rows) > MOST_ROWS:
        console.print(f"… and {len(rows) - MOST_ROWS} more features")


def export_view(console: Console, path: Path, summary: ExportSummary, features: Sequence[str] | None) -> None:
    """The model file, its input and outputs. `features` are the names of encoded columns, if those are its input."""
    shape = "×".join("rows" if size is None else str(size) for size in summary.input.shape)
    print_pairs(
        console,
        {
            "file": path / summary.file,
            "input": f"{summary.input.name}: {shape} {summary.input.dtype}",
            **({} if features is None else {"": _encoded_words(features)}),
            "outputs": summary.outputs,
            "prior": f"{summary.prior:g}, temperature {summary.temperature:.3g}",
        },
    )


def _encoded_words(features: Sequence[str]) -> str:
    more = f" and {len(features) - MOST_COLUMNS} more" if len(features) > MOST_COLUMNS else ""
    named = json.dumps(features[:MOST_COLUMNS], ensure_ascii=False)[1:-1]  # names may hold commas
    return f"encoded features, not raw columns: {named}{more}; export.json has their order and their mapping"


def names_view(console: Console, kind: str, entries: Mapping[str, str]) -> None:
    print_pairs(console, entries)


def artifact_view(console: Console, path: Path, artifact: Artifact[Any], history: Sequence[Mapping[str, Any]]) -> None:
    """Any artefact: summary, settings, lineage and files; of a run also its history."""
    from ntmp_cli.artifacts.summaries import FeaturesSummary, RunSummary, TuplesSummary

    manifest, summary = artifact.manifest, artifact.summary
    if isinstance(summary, TuplesSummary) and not isinstance(summary, FeaturesSummary):
        tuples_view(console, path, summary)
    elif isinstance(summary, RunSummary):
        run_view(console, path, summary, history, stored=True)
    else:
        known = {name.replace("_", " "): text for name, value in summary.to_json().items() if (text := _plain(value))}
        print_pairs(console, {"directory": path, "kind": manifest.kind, **known})
    print_pairs(console, {name: text for name, value in manifest.config.items() if (text := _plain(value))}, "settings")
    lineage = {f"{i['kind']} {i.get('name', '')}".strip(): i["sha256"][:16] for i in manifest.inputs}
    print_pairs(console, {**lineage, f"this {manifest.kind}": artifact.sha256[:16]}, "lineage (SHA-256)")
    table = new_table("file")
    for name in ("rows", "bytes"):
        table.add_column(name, justify="right")
    for entry in manifest.files:
        table.add_row(Text(entry.path), "" if entry.rows is None else f"{entry.rows:,}", f"{entry.bytes:,}")
    print_table(console, table)
    console.print(f"all {len(manifest.files)} files match their hashes (ntmp {manifest.package_version})")


def _plain(value: Any, levels: int = MOST_LEVELS) -> str:
    """A value as short text, empty for None; hashes are cut to 16 digits. `--json` prints full values."""
    if isinstance(value, Mapping | list | tuple) and value and levels == 0:
        return "…"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, one in value.items() if (text := _plain(one, levels - 1)))
    if isinstance(value, list | tuple):
        more = f" and {len(value) - MOST_COLUMNS} more" if len(value) > MOST_COLUMNS else ""
        return ", ".join(_plain(one, levels - 1) or "any" for one in value[:MOST_COLUMNS]) + more
    is_hash = isinstance(value, str) and len(value) == 64 and set(value) <= set(string.hexdigits)
    return value[:16] if is_hash else "" if value is None else str(value)
