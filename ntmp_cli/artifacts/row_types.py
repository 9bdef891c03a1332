"""Tables of artefacts, checked when they are read: every row has the fields of its type, with values of their types.

A row type is a TypedDict; fields beyond it are kept as they are.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Any, Self, TypedDict, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model, model_validator

from ntmp_cli.artifacts.jsonlines import read_json_lines, read_json_rows
from ntmp_cli.artifacts.layout import HISTORY, PRIOR
from ntmp_cli.artifacts.manifest import Artifact, RunArtifact
from ntmp_cli.artifacts.summaries import PriorSummary
from ntmp_cli.artifacts.summary_fields import TaskSummary, problems_of
from ntmp_cli.evaluation.summary import RunSetting

# Lists of a row that are plotted against each other.
SAME_LENGTH = {
    "CurveRow": ("epochs", "loss", "heldout_risk"),
    "EqualMassBinsRow": ("confidence", "frequency", "instances"),
    "ReliabilityRow": ("mass", "confidence", "frequency"),
    "HistogramRow": ("positives", "negatives"),
}


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        names = SAME_LENGTH.get(type(self).__name__, ())
        if len({len(getattr(self, name)) for name in names}) > 1:
            raise ValueError(f"{', '.join(names)}: lists of different lengths")
        return self


class LearnerRow(_Row):
    """One learner of an ensemble for tables, with one of the last three fields."""

    learner: str
    weight: float
    nll: float
    rounds: int | None = None
    penalty: float | None = None
    stages: int | None = None

    @model_validator(mode="after")
    def _has_a_setting(self) -> Self:
        if self.rounds is None and self.penalty is None and self.stages is None:
            raise ValueError("one of rounds, penalty and stages: field required")
        return self


class _MethodFields(TypedDict, total=False):
    """Fields of some methods: of risks, of networks by the count likelihood, of learners for tables."""

    negative_rate: dict[str, float]
    tuple_weight_variance_ratio: float | None
    nll: float | None
    closed_form: float | None
    risk_terms: dict[str, float | None]
    batches: int
    skipped: int
    learners: list[LearnerRow]


class HistoryRow(_MethodFields):
    """One epoch of a training, as every later stage and `inspect` read it."""

    epoch: int
    loss: float | None
    heldout_risk: float | None


class RunMark(RunSetting):
    """The run that a row of an evaluation describes."""

    seed: int
    run: str


class _LaterCurveFields(TypedDict, total=False):
    """Fields that evaluations of earlier versions do not have."""

    iterations: list[int]
    warmup_end: int | None


class CurveRow(RunMark, _LaterCurveFields):
    """The history of a run."""

    epochs: list[int]
    loss: list[float | None]
    heldout_risk: list[float | None]
    accuracy: list[tuple[int, float | None]]


class EqualMassBinsRow(_Row):
    """Bins of equal weight."""

    confidence: list[float]
    frequency: list[float]
    instances: list[float]


class _LaterReliabilityFields(TypedDict, total=False):
    equal_mass: EqualMassBinsRow


class ReliabilityRow(RunMark, _LaterReliabilityFields):
    """One reliability diagram of a run."""

    scaling: str
    weighting: str
    mass: list[float]
    confidence: list[float | None]
    frequency: list[float | None]


class HistogramRow(_Row):
    """Numbers of true positives and negatives by score; one edge more than bins."""

    edges: list[float]
    positives: list[int]
    negatives: list[int]

    @model_validator(mode="after")
    def _edges_fit(self) -> Self:
        if len(self.edges) != len(self.positives) + 1:
            raise ValueError(f"edges: {len(self.edges)} of {len(self.positives)} bins")
        return self


class DecisionsRow(_Row):
    """Counts of the decision `score > 0` on the test split."""

    tp: int
    fp: int
    fn: int
    tn: int
    histogram: HistogramRow


class _LaterRunFields(TypedDict, total=False):
    decisions: DecisionsRow


class RunRow(RunMark, _LaterRunFields):
    """What a report says about a run."""

    sha256: str
    inputs: list[dict[str, str]]
    package_version: str
    config: dict[str, Any]
    mean_rate: float
    trained_prior: float
    task: TaskSummary
    tuples_seed: int | None
    tuples_config: dict[str, Any]
    model: str
    encoder: str | None
    parameters: int
    epochs: int
    selected_epoch: int


class EstimateRow(_Row):
    """The prior by one estimator."""

    value: float | None
    ci: tuple[float, float] | None


class UpperBoundRow(_Row):
    value: float
    confident: float


class NeymanPearsonRow(_Row):
    value: float


class PaperProtocolRow(_Row):
    """How the paper's own score model was trained."""

    score_model: str
    validated_by: str
    proxies: int


class _LaterPriorFields(TypedDict, total=False):
    paper_protocol: PaperProtocolRow | None


class PriorRow(_LaterPriorFields):
    """Every estimate of a prior directory."""

    prior: float
    ci: tuple[float, float] | None
    confidence: float
    identified: bool
    estimator: str
    estimators: dict[str, EstimateRow]
    upper_bound: UpperBoundRow
    neyman_pearson_as_in_the_paper: NeymanPearsonRow
    tuple_rate: float
    tuples: int
    unlabeled: int
    warnings: list[str]


def read_prior(estimate: Artifact[PriorSummary]) -> dict[str, Any]:
    """The estimates of a prior directory."""
    return _checked(estimate, PRIOR, [estimate.read_json(PRIOR)], PriorRow)[0]


def read_history(run: RunArtifact) -> list[dict[str, Any]]:
    """The epochs of a training."""
    return typed_lines(run, HISTORY, HistoryRow)


def typed_lines(artifact: Artifact, name: str, row_type: type) -> list[dict[str, Any]]:
    """A table of JSON lines whose rows are of a type."""
    return _checked(artifact, name, read_json_lines(artifact, name), row_type)


def typed_rows(artifact: Artifact, name: str, row_type: type) -> list[dict[str, Any]]:
    """A table that is one JSON list, whose rows are of a type."""
    return _checked(artifact, name, read_json_rows(artifact, name), row_type)


def _checked(artifact: Artifact, name: str, rows: list[dict[str, Any]], row_type: type) -> list[dict[str, Any]]:
    try:
        _model_of(row_type).validate_json(json.dumps(rows))  # as JSON: lists become tuples, and nothing else
    except ValidationError as error:
        raise artifact.damaged(name, f"row {problems_of(error)[0]}") from None
    return rows


@cache
def _model_of(row_type: type) -> TypeAdapter[Any]:
    optional: frozenset[str] = getattr(row_type, "__optional_keys__", frozenset())
    fields: dict[str, Any] = {
        field: (hint, None if field in optional else ...) for field, hint in get_type_hints(row_type).items()
    }
    model = create_model(row_type.__name__, __base__=_Row, **fields)
    return TypeAdapter(list[model])
