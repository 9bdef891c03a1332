"""What a manifest says about its artefact: one model per kind, checked whenever a directory is opened.

Values are finite, in range, and consistent with each other and with the files that the manifest lists. A stage builds
the model, and the next stage reads its attributes. Every key is written, except fields that have a default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue, model_validator

from ntmp_cli.artifacts.feature_rows import FeatureRow
from ntmp_cli.artifacts.layout import (
    COMPARISONS,
    CURVES,
    ENCODER_WEIGHTS,
    ESTIMATOR,
    ESTIMATOR_LINE,
    HISTORY,
    PRIOR,
    RANKINGS,
    RELIABILITY,
    ROWS,
    RUNS,
    SCORES,
    SUMMARY,
    TEMPERATURES,
    TEST_INSTANCES,
    TEST_LABELS,
    WEIGHTS,
)
from ntmp_cli.artifacts.summary_fields import (
    Count,
    Files,
    InstanceSummary,
    KnowledgeSummary,
    MeanCount,
    Name,
    OpenShare,
    PoolSizes,
    Positive,
    Record,
    Sha256,
    Share,
    Sizes,
    Strata,
    Summary,
    TaskSummary,
    by_split,
    close,
    listed,
    missing,
    rows_of,
)
from ntmp_cli.config import HolmFamily
from ntmp_cli.learning.results import Learner
from ntmp_cli.tuple_source import Task

# Given by the user; known from a simulation; estimated on the pool; or the rate of the tuples as a fallback.
PriorSource = Literal["given", "known", "estimated", "tuples"]


# Tuples and features ------------------------------------------------------------------------------


class Reuse(Record):
    """Mean number of times that an instance of each class was sampled into a tuple."""

    positive: Annotated[float, Field(ge=0)]
    negative: Annotated[float, Field(ge=0)]


class TuplesSummary(Summary):
    """Tuples, the unlabeled pool, if any, and test instances. Fields that only a simulation knows are None or empty."""

    kind: ClassVar[str] = "tuples"

    dataset: Name
    spec: Name
    instance: InstanceSummary
    tuples: Sizes
    instances: Sizes
    unlabeled: PoolSizes
    test: Count
    test_labels: bool
    strata: Strata
    mean_rate: Share
    prior: Share | None
    effective_gap: Share | None
    reuse: Reuse | None
    count_noise: Share | None
    positive_classes: tuple[str, ...]
    features: tuple[FeatureRow, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    knowledge: KnowledgeSummary | None
    """What is known of training counts, if not all of them are exact."""
    labelled: PoolSizes | None
    """Number of rows with a known label, which are the last tuples of their split; None if there are none."""

    def task(self) -> Task:
        """The training tuples, as training knows them."""
        rows, knowledge = self.strata.train, self.knowledge
        strata = [(row.n, row.m, row.tuples) for row in rows]
        return Task(strata, self.unlabeled.train, None if knowledge is None else knowledge.as_knowledge())

    @model_validator(mode="after")
    def _consistent(self) -> TuplesSummary:
        if self.knowledge is not None and len(self.knowledge.counts) != len(self.strata.train):
            raise ValueError("knowledge: expected one entry per stratum")
        rows = dict(self.strata.items())
        for name, total in (("tuples", self.tuples), ("instances", self.instances)):
            if dict(total.items()) != {split: sum(getattr(row, name) for row in rows[split]) for split in rows}:
                raise ValueError(f"{name}: {by_split(total)}, but the strata add up to other numbers")
        if not close(self.mean_rate, sum(row.tuples * row.rate for row in rows["train"]) / self.tuples.train):
            raise ValueError(f"mean_rate: {self.mean_rate} is not the mean rate of the strata")
        if self.labelled and any(n > (getattr(self.tuples, split) or 0) for split, n in self.labelled.items()):
            raise ValueError(f"labelled: {by_split(self.labelled)}, but there are fewer tuples")
        if (self.prior is None) != (self.effective_gap is None):
            raise ValueError("effective_gap: must be given if and only if the prior is known")
        if self.test_labels and not self.test:
            raise ValueError("test_labels: there are no test instances")
        width = sum(feature.width for feature in self.features)
        if self.features and len(self.instance.shape) == 1 and width != self.instance.shape[0]:
            raise ValueError(f"features: have {width} numbers, an instance has {self.instance.shape[0]}")
        return self

    def misfits(self, files: Files) -> Iterator[str]:
        for name, sizes in (("tuples", self.tuples), ("unlabeled", self.unlabeled)):
            for split in ("train", "heldout"):
                size = getattr(sizes, split) or 0
                rows = rows_of(files, f"{split}/{name}-")
                if rows is None:
                    yield f"{name}.{split}: a file {split}/{name}-* has no rows"
                elif rows != size:
                    yield f"{name}.{split}: {size}, but the files {split}/{name}-* have {rows} rows"
        if files.get(TEST_INSTANCES, 0) != self.test:
            yield f"test: {self.test}, but {TEST_INSTANCES} has {files.get(TEST_INSTANCES, 0)} rows"
        if self.test_labels != (TEST_LABELS in files):
            yield f"test_labels: {self.test_labels}, but {TEST_LABELS} is {listed(TEST_LABELS in files)}"


class FeaturesSummary(TuplesSummary):
    """The tuples of an input as features of a frozen encoder, without labels of any kind."""

    kind: ClassVar[str] = "features"

    encoder: Name

    def misfits(self, files: Files) -> Iterator[str]:
        yield from super().misfits(files)
        yield from missing("encoder", files, ENCODER_WEIGHTS)


# Runs and priors ----------------------------------------------------------------------------------


class RunSummary(Summary):
    """A training: its data, its prior and its results.

    Results are reported at `prior`, that of the unlabeled pool if it is known; scores are log-odds at
    `trained_prior`. `n` and `m` are those of the only stratum, None if there are several.
    """

    kind: ClassVar[str] = "run"

    method: Name
    is_oracle: bool
    dataset: Name
    tuples: Name
    n: Positive | None
    m: MeanCount | None
    task: TaskSummary
    mean_rate: Share
    prior: Share
    trained_prior: OpenShare
    prior_source: PriorSource
    prior_ci: tuple[Share, Share] | None
    tuple_rate: Share
    unlabeled_prior: Share | None
    count_noise: Annotated[float, Field(ge=0, lt=1)]
    tuples_seed: Count | None
    tuples_config: dict[str, JsonValue]
    tuples_content: Sha256
    model: Name
    learner: Learner
    encoder: Name | None
    parameters: Count
    instance: InstanceSummary
    features: InstanceSummary
    epochs: Positive
    selected_epoch: Positive
    batch_size: Positive | None
    loss: float | None
    heldout_risk: float | None
    spread: Annotated[float, Field(ge=0)] | None
    orientation_z: float | None

    @model_validator(mode="after")
    def _consistent(self) -> RunSummary:
        strata = self.task.strata
        single = strata[0][:2] if len(strata) == 1 else (None, None)
        if (self.n, self.m) != single:
            raise ValueError(f"n, m: ({self.n}, {self.m}), but the strata say {single}")
        total = sum(k for _, _, k in strata)
        if not close(self.mean_rate, sum(k * m / n for n, m, k in strata) / total):
            raise ValueError(f"mean_rate: {self.mean_rate} is not the mean rate of the strata")
        if not close(self.tuple_rate, sum(k * m for _, m, k in strata) / sum(k * n for n, _, k in strata)):
            raise ValueError(f"tuple_rate: {self.tuple_rate} is not the share of positives of the strata")
        is_of_pool = self.prior_source in ("estimated", "tuples") and self.unlabeled_prior is not None
        if self.prior != (self.unlabeled_prior if is_of_pool else self.trained_prior):
            raise ValueError(f"prior: {self.prior} is not the prior that results are reported at")
        if self.selected_epoch > self.epochs:
            raise ValueError(f"selected_epoch: {self.selected_epoch} of {self.epochs} epochs")
        if self.encoder is None and self.features != self.instance:
            raise ValueError("features: differ from the instances, but there is no encoder")
        return self

    def misfits(self, files: Files) -> Iterator[str]:
        weights = (ESTIMATOR, ESTIMATOR_LINE) if self.learner == "estimator" else (WEIGHTS,)
        yield from missing("model", files, *weights, SCORES)
        if files.get(HISTORY) != self.epochs:
            yield f"epochs: {self.epochs}, but {HISTORY} has {files.get(HISTORY)} rows"
        if (self.encoder is not None) != (ENCODER_WEIGHTS in files):
            yield f"encoder: {self.encoder}, but {ENCODER_WEIGHTS} is {listed(ENCODER_WEIGHTS in files)}"


class PriorSummary(Summary):
    """An estimated class prior, its interval and warnings."""

    kind: ClassVar[str] = "prior"

    dataset: Name
    prior: OpenShare
    ci: tuple[Share, Share] | None
    confidence: OpenShare
    estimator: Name
    identified: bool
    """False if 1 − prior fits equally well."""
    warnings: tuple[str, ...]

    @model_validator(mode="after")
    def _consistent(self) -> PriorSummary:
        if self.ci is not None and self.ci[0] > self.ci[1]:
            raise ValueError(f"ci: the lower limit {self.ci[0]} is above the upper one {self.ci[1]}")
        return self

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("prior", files, PRIOR, SCORES, "prior.svg", "prior.png")


# Evaluations and reports --------------------------------------------------------------------------


class EvaluationSummary(Summary):
    """Evaluated runs and their metrics."""

    kind: ClassVar[str] = "evaluation"

    runs: Positive
    metrics: Annotated[tuple[Name, ...], Field(min_length=1)]
    reference: Name | None
    family: HolmFamily
    methods: Annotated[tuple[Name, ...], Field(min_length=1)]
    datasets: Annotated[tuple[Name, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _consistent(self) -> EvaluationSummary:
        for name in ("metrics", "methods", "datasets"):
            if len(set(getattr(self, name))) != len(getattr(self, name)):
                raise ValueError(f"{name}: a name is listed twice")
        if max(len(self.methods), len(self.datasets)) > self.runs:
            raise ValueError(f"runs: {self.runs}, fewer than methods or data sets")
        # The name of a variant is its method and, after a space, the settings that distinguish it.
        if self.reference is not None and not any(f"{self.reference} ".startswith(f"{m} ") for m in self.methods):
            raise ValueError(f"reference: {self.reference} is not among the methods")
        return self

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("metrics", files, SUMMARY, COMPARISONS, RANKINGS, TEMPERATURES, RELIABILITY)
        expected = {RUNS: self.runs, CURVES: self.runs, ROWS: self.runs * len(self.metrics)}
        for file, rows in expected.items():
            if files.get(file) != rows:
                yield f"runs: {self.runs} with {len(self.metrics)} metrics, but {file} has {files.get(file)} rows"


class ReportSummary(Summary):
    """The files of a report."""

    kind: ClassVar[str] = "report"

    files: Annotated[tuple[Name, ...], Field(min_length=1)]

    def misfits(self, files: Files) -> Iterator[str]:
        if sorted(self.files) != sorted(files):
            yield "files: differ from the files that the manifest lists"


# Designs, sweeps, audits, exports -----------------------------------------------------------------


class DesignSummary(Summary):
    """What is identifiable from a design, how wide its gap is, what to change."""

    kind: ClassVar[str] = "design"

    source: Name
    unbiased_risk: bool
    count_likelihood: bool
    gap: Share | None
    """None if too few tuples have a known rate."""
    changes: tuple[str, ...]

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("source", files, "design.json", "design.md")


class WindowSummary(Record):
    """How far a setting may be wrong. A sweep of the gap has no reference point, and only `critical_ci`."""

    run: str
    metric: Name
    max_width: Annotated[float, Field(ge=0)]
    critical_ci: float | None
    tolerance: Annotated[float, Field(ge=0)] | None = None
    window: tuple[float, float] | None = None
    critical_performance: float | None = None

    @model_validator(mode="after")
    def _consistent(self) -> WindowSummary:
        if self.window is not None and self.window[0] > self.window[1]:
            raise ValueError(f"window: the lower limit {self.window[0]} is above the upper one {self.window[1]}")
        return self


class SweepSummary(Summary):
    """Cells of a sweep, trained or failed, points that were left out, and the windows."""

    kind: ClassVar[str] = "sweep"

    sweep: Annotated[str, Field(pattern="^(prior|count-noise|gap|grid)$")]
    complete: bool
    cells: Positive
    trained: Positive
    failed: tuple[Name, ...]
    left_out: tuple[dict[str, JsonValue], ...]
    metric: Name
    windows: tuple[WindowSummary, ...]
    caption: str

    @model_validator(mode="after")
    def _consistent(self) -> SweepSummary:
        if self.trained + len(self.failed) != self.cells:
            raise ValueError(f"cells: {self.cells}, but {self.trained} are trained and {len(self.failed)} failed")
        if self.complete != (not self.failed):
            raise ValueError(f"complete: {self.complete}, but {len(self.failed)} cells failed")
        return self

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("metric", files, SUMMARY, "sweep.svg", "sweep.png")
        if files.get("windows.json") != len(self.windows):
            yield f"windows: {len(self.windows)}, but windows.json has {files.get('windows.json')} rows"
        rows = files.get(ROWS)
        if not rows or rows % self.trained:
            yield f"trained: {self.trained} cells, but {ROWS} has {rows} rows"


class AuditSummary(Summary):
    """Number of flagged counts and the noise rate; None if no network judged the tuples."""

    kind: ClassVar[str] = "audit"

    dataset: Name
    flagged: Count | None
    count_noise: Share | None

    @model_validator(mode="after")
    def _consistent(self) -> AuditSummary:
        if (self.flagged is None) != (self.count_noise is None):
            raise ValueError("count_noise: must be given if and only if tuples were judged")
        return self

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("dataset", files, "audit.json", "audit.md")
        judged = files.get("tuples.csv")
        if (self.flagged is None) != (judged is None) or (self.flagged or 0) > (judged or 0):
            yield f"flagged: {self.flagged}, but tuples.csv has {judged} rows"


class ExportInput(Record):
    """The input of an exported graph; the first axis, of any length, is None."""

    name: Name
    shape: Annotated[tuple[Positive | None, ...], Field(min_length=2)]
    dtype: Name


class ExportSummary(Summary):
    """A model file for other programs."""

    kind: ClassVar[str] = "export"

    format: Name
    file: Name
    input: ExportInput
    outputs: Annotated[tuple[Name, ...], Field(min_length=1)]
    prior: OpenShare
    temperature: Annotated[float, Field(gt=0)]

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("file", files, self.file, "export.json")


class ExplanationSummary(Summary):
    """Features whose importance is above zero; empty for images."""

    kind: ClassVar[str] = "explanation"

    dataset: Name
    method: Name
    judged: Positive
    top: tuple[Name, ...]

    def misfits(self, files: Files) -> Iterator[str]:
        yield from missing("judged", files, "explanation.json", "explanation.md", "explanation.svg", "explanation.png")


SUMMARIES: dict[str, type[Summary]] = {
    model.kind: model
    for model in (
        TuplesSummary,
        FeaturesSummary,
        PriorSummary,
        RunSummary,
        EvaluationSummary,
        ReportSummary,
        DesignSummary,
        SweepSummary,
        AuditSummary,
        ExportSummary,
        ExplanationSummary,
    )
}
