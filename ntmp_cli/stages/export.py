"""export: a run becomes one file that other programs score raw rows with."""

from __future__ import annotations

from pathlib import Path

from ntmp_cli.artifacts import (
    Artifact,
    IfExists,
    Plan,
    RunArtifact,
    describe_input,
    existing_output,
    open_artifact,
    publishing,
)
from ntmp_cli.artifacts.layout import MODEL_CARD
from ntmp_cli.artifacts.runs import open_run
from ntmp_cli.artifacts.scores import read_scores
from ntmp_cli.artifacts.stored_scorer import load_network, load_table_scorer, read_mapping
from ntmp_cli.artifacts.summaries import ExportInput, ExportSummary
from ntmp_cli.config import ExportConfig
from ntmp_cli.data.user.mapping import FeatureMapping, Numeric, TableFeatures
from ntmp_cli.errors import UsageError
from ntmp_cli.evaluation.temperature import usable_temperature
from ntmp_cli.learning.tables.exporting import INPUT, OUTPUTS, RawColumns, table_onnx
from ntmp_cli.reporting.model_card import export_card

FILES = {"onnx": "model.onnx", "torchscript": "model.pt"}
FACTS = "export.json"


def export(config: ExportConfig, run_path: Path, out: Path, *, if_exists: IfExists = "fail") -> Artifact[ExportSummary]:
    """Write the classifier of a run as one graph from raw rows to probabilities, with a description of its input."""
    run = open_run(run_path)
    plan = Plan("export", config.model_dump(mode="json"), None, (describe_input(run),), (run_path,))
    if kept := existing_output(out, plan, if_exists):
        return kept
    temperature = usable_temperature(run.summary, read_scores(run))
    mapping = read_mapping(run)
    columns = _numeric(mapping)
    dtype, shape = _input(run, columns)
    content = _content(config.format, run, columns, temperature.value)
    summary = ExportSummary(
        format=config.format,
        file=FILES[config.format],
        input=ExportInput(name=INPUT, shape=(None, *shape), dtype=dtype),
        outputs=tuple(OUTPUTS),
        prior=run.summary.trained_prior,
        temperature=temperature.value,
    )
    facts = {
        **summary.to_json(),
        "columns": _names(mapping) if columns is not None else None,
        "features": (features := _encoded(mapping) if columns is None else None),
        "mapping": None if mapping is None or columns is not None else mapping.model_dump(mode="json"),
        "calibration": temperature.fit,
    }
    with publishing(out, plan, if_exists=if_exists) as staging:
        staging.add_bytes(summary.file, content)
        staging.add_json(FACTS, facts)
        of_run = run.read_text(MODEL_CARD) if run.has(MODEL_CARD) else None
        names = _names(mapping)
        card = export_card(of_run, summary, None if names is None else (names, len(names)), features)
        staging.add_bytes(MODEL_CARD, card.encode())
        staging.summary = summary
    return open_artifact(out, "export")


def _content(form: str, run: RunArtifact, columns: RawColumns | None, temperature: float) -> bytes:
    if run.summary.learner == "estimator":
        raise UsageError(
            f"{run.path}: a classifier of scikit-learn cannot be exported",
            hint="`ntmp predict` scores rows with it; a run with --model auto, linear or trees can be exported.",
        )
    if run.summary.learner == "table":
        if form != "onnx":
            raise UsageError(f"{run.path}: a classifier of a table cannot become {form}", hint="Use --format onnx.")
        return table_onnx(load_table_scorer(run), columns, temperature)
    import torch

    from ntmp_cli.learning.exporting import Exported, NumericColumns, exporters

    exporter = exporters.get(form)
    features = None if columns is None else NumericColumns(columns)
    module = Exported(features, load_network(run).eval(), temperature).eval()
    dtype, shape = _input(run, columns)
    with torch.no_grad():
        return exporter(module, torch.zeros((2, *shape), dtype=getattr(torch, dtype)))


def _numeric(mapping: FeatureMapping | None) -> RawColumns | None:
    """The columns of a table of numbers; categories are texts, which a graph of numbers cannot take."""
    if mapping is None or not isinstance(mapping.features, TableFeatures):
        return None
    columns = [column for column in mapping.features.columns if isinstance(column, Numeric)]
    if len(columns) < len(mapping.features.columns):
        return None
    return RawColumns([c.mean for c in columns], [c.scale for c in columns], [c.indicator for c in columns])


def _names(mapping: FeatureMapping | None) -> list[str] | None:
    return mapping.features.names if mapping is not None and isinstance(mapping.features, TableFeatures) else None


def _encoded(mapping: FeatureMapping | None) -> list[str] | None:
    """Names of the numbers that the columns of a table become."""
    if mapping is None or not isinstance(mapping.features, TableFeatures):
        return None
    return mapping.features.feature_names


def _input(run: RunArtifact, columns: RawColumns | None) -> tuple[str, list[int]]:
    if columns is not None:
        return "float64", [len(columns.means)]
    return run.summary.instance.dtype, list(run.summary.instance.shape)
