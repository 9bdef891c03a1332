"""Runs of an evaluation on the page: one table of all of them, and the details of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ntmp_cli.evaluation.summary import Row
from ntmp_cli.reporting.formatting import ABSENT, UNDEFINED, metric_header, metric_number
from ntmp_cli.reporting.operating import operating_of, strata_text
from ntmp_cli.reporting.page import PageRun
from ntmp_cli.reporting.rendering import Column, Table, TableCell

MOST_METRICS = 4


def run_table(runs: Sequence[Mapping[str, Any]], rows: Iterable[Row], metrics: Sequence[str]) -> Table:
    """A row per run, with the first metrics of the report."""
    shown = metrics[:MOST_METRICS]
    values = {(row["run"], row["metric"]): row["value"] for row in rows}
    columns = (
        Column("run", ("run",)),
        Column("data set", ("dataset",)),
        Column("tuples", ("tuples",)),
        Column("π", ("prior",), numeric=True),
        Column("method", ("method", "variant")),
        Column("seed", ("seed",), numeric=True),
        *(Column(metric_header(metric), (metric,), numeric=True) for metric in shown),
        Column("epoch kept", ("selected_epoch",), numeric=True),
    )
    cells = tuple(
        (
            *(TableCell(str(run[name]), (run[name],)) for name in ("run", "dataset", "tuples")),
            TableCell(f"{run['prior']:g}", (run["prior"],)),
            TableCell(label_of(run), (run["method"], run["variant"])),
            TableCell(str(run["seed"]), (run["seed"],)),
            *(_value(metric, values, run["run"]) for metric in shown),
            TableCell(f"{run['selected_epoch']} of {run['epochs']}", (run["selected_epoch"],)),
        )
        for run in runs
    )
    return Table("The name of a run opens its settings and its lineage.", columns, (cells,))


def page_run(run: Mapping[str, Any]) -> PageRun:
    """Results, settings and lineage of one run."""
    trained_prior = run["trained_prior"]
    facts = {
        "method": label_of(run),
        "model": f"{run['model']}, {run['parameters']:,} parameters",
        "epoch kept": f"{run['selected_epoch']} of {run['epochs']}",
        "mean rate ᾱ": f"{run['mean_rate']:.4f}",
        "prior π": f"{run['prior']:g}"
        + ("" if trained_prior == run["prior"] else f", trained with {trained_prior:.4f}"),
        "strata": strata_text(operating_of(dict(run)).strata),
        "unlabeled": f"{run['task']['unlabeled']:,}",
        **_decisions(run.get("decisions")),
        "written by": f"ntmp {run['package_version']}",
    }
    lineage = {"this run": run["sha256"], **{entry["kind"]: entry["sha256"] for entry in run["inputs"]}}
    about = f"{label_of(run)} on {group_of(run)}, seed {run['seed']}"
    return PageRun(run["run"], about, facts, run["config"], run["tuples_config"], lineage)


def label_of(row: Mapping[str, Any]) -> str:
    """The method with its variant."""
    return f"{row['method']} ({row['variant']})" if row["variant"] else str(row["method"])


def group_of(row: Mapping[str, Any]) -> str:
    """Data set, tuples and prior."""
    return f"{row['dataset']} {row['tuples']} π={row['prior']:g}"


def _decisions(decisions: Mapping[str, Any] | None) -> dict[str, str]:
    if decisions is None:
        return {}
    right = f"{decisions['tp']:,} positives and {decisions['tn']:,} negatives"
    return {"correct": right, "errors": f"{decisions['fp']:,} false positives, {decisions['fn']:,} false negatives"}


def _value(metric: str, values: Mapping[tuple[str, str], float | None], run: str) -> TableCell:
    if (run, metric) not in values:
        return TableCell(ABSENT, (None,))
    value = values[run, metric]
    return TableCell(UNDEFINED if value is None else metric_number(metric, value), (value,))
