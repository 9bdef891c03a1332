"""The tables of an evaluation directory, as computed or as read back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from ntmp_cli.artifacts.layout import COMPARISONS, CURVES, RANKINGS, RELIABILITY, ROWS, RUNS, SUMMARY
from ntmp_cli.artifacts.manifest import Artifact
from ntmp_cli.artifacts.row_types import CurveRow, ReliabilityRow, RunRow, typed_lines, typed_rows
from ntmp_cli.artifacts.summaries import EvaluationSummary

if TYPE_CHECKING:
    from ntmp_cli.evaluation.comparisons import Comparison
    from ntmp_cli.evaluation.rankings import Ranking
    from ntmp_cli.evaluation.summary import Row, SummaryRow


@dataclass(frozen=True)
class Evaluation:
    """An evaluation directory and its tables."""

    artifact: Artifact[EvaluationSummary]
    rows: list[Row]
    groups: list[SummaryRow]
    comparisons: list[Comparison]
    rankings: list[Ranking]
    curves: list[dict[str, Any]]
    reliability: list[dict[str, Any]]
    runs: list[dict[str, Any]]

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.artifact.summary.metrics

    @property
    def reference(self) -> str | None:
        return self.artifact.summary.reference


def read_evaluation(artifact: Artifact[EvaluationSummary]) -> Evaluation:
    """Read every table that a report or the terminal shows."""
    from ntmp_cli.evaluation.comparisons import Comparison
    from ntmp_cli.evaluation.rankings import Ranking
    from ntmp_cli.evaluation.summary import Row, SummaryRow

    return Evaluation(
        artifact,
        cast(list[Row], typed_lines(artifact, ROWS, Row)),
        cast(list[SummaryRow], typed_rows(artifact, SUMMARY, SummaryRow)),
        cast(list[Comparison], typed_lines(artifact, COMPARISONS, Comparison)),
        cast(list[Ranking], typed_lines(artifact, RANKINGS, Ranking)),
        typed_lines(artifact, CURVES, CurveRow),
        typed_lines(artifact, RELIABILITY, ReliabilityRow),
        typed_lines(artifact, RUNS, RunRow),
    )
