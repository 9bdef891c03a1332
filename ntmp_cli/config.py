"""One frozen model per stage: the only place where a setting has a name, a default and a meaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal

from pydantic import (
    Field,
    SerializeAsAny,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic.fields import FieldInfo

from ntmp_cli.errors import UsageError
from ntmp_cli.registry import REGISTRIES
from ntmp_cli.settings import MethodSettings, Settings

ESTIMATE: Literal["estimate"] = "estimate"
HolmFamily = Literal["cell", "dataset", "metric", "all"]
# Panels of `--help`, in this order; an option without panel is shown before them.
PANELS = METHOD_PANEL, NETWORK_PANEL, OPTIMISATION_PANEL, RUN_PANEL = "Method", "Network", "Optimisation", "Run"
METHOD: dict[str, Any] = {"panel": METHOD_PANEL}
NETWORK: dict[str, Any] = {"panel": NETWORK_PANEL}
OPTIMISATION: dict[str, Any] = {"panel": OPTIMISATION_PANEL}
RUN: dict[str, Any] = {"panel": RUN_PANEL}


def _quoted_specs(value: Any) -> Any:
    """Tuple specs as a sequence; one that YAML has read as a number is refused."""
    specs = (value,) if isinstance(value, str | int) else value
    if isinstance(specs, Sequence) and any(isinstance(spec, int) for spec in specs):
        raise ValueError('write tuple specs in quotes, as in ["3:1"]: YAML reads a bare 3:1 as the number 181')
    return specs


def _one_kind_per_column(config: MakeTuplesConfig | ImportTuplesConfig) -> None:
    for option, other in (("numeric", "categorical"), ("ignore", "categorical"), ("ignore", "numeric")):
        if twice := sorted({*getattr(config, option)} & {*getattr(config, other)}):
            raise ValueError(f"{option}: '{twice[0]}' is named as {other} too")


class MakeTuplesConfig(Settings):
    """Simulate counted tuples and an unlabeled pool from a labelled data set."""

    dataset: str = Field(
        "digits", description="Data set: a name of `ntmp list datasets`, table:PATH, npz:PATH or folder:PATH."
    )
    positive: tuple[str, ...] = Field(
        (),
        description="Class that counts as positive; repeat for several. "
        "Default: the paper's choice; of your own data 1, true or yes.",
    )
    tuples: tuple[str, ...] = Field(
        ("3:1",), description="Tuple spec N:M, N:M1-M2, N:~P or N1-N2:..., with @WEIGHT; repeat to mix."
    )
    prior: float | None = Field(
        None, gt=0, lt=1, description="Share of positives in the unlabeled pool. Default: as in the data."
    )
    num_tuples: int | None = Field(
        None, ge=1, description="Training tuples. Default: as many instances as the training split has."
    )
    unlabeled_size: int | None = Field(
        None, ge=1, description="Unlabeled training instances. Default: all that the prior allows."
    )
    tuple_share: float = Field(0.5, gt=0, lt=1, description="Share of the training split that tuples are sampled from.")
    heldout_share: float = Field(
        0.1, ge=0, lt=1, description="Share of tuples and of U held out for label-free model selection."
    )
    count_noise: float = Field(0.0, ge=0, le=1, description="Probability that a recorded count is off by one.")
    resize: int | None = Field(None, ge=1, description="Resize images of a folder to this height and width.")
    shard_size: int | None = Field(None, ge=1, description="Tuples per shard. Default: about 16 MiB of instances.")
    seed: int = Field(0, ge=0, description="Seed of every random choice.")
    label_column: str | None = Field(None, description="Column of the labels of a table. Default: label.")
    categorical: tuple[str, ...] = Field(
        (),
        description="Column of a table that holds categories though its values are numbers; repeat for several.",
    )
    numeric: tuple[str, ...] = Field(
        (),
        description="Column of a table that holds numbers, so that texts in it are mistakes; repeat for several.",
    )
    ignore: tuple[str, ...] = Field((), description="Column of a table that is no feature; repeat for several.")
    test_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of a table's rows that are the test split, the same for every seed. Default: 0.2.",
    )

    @model_validator(mode="before")
    @classmethod
    def _fold_short_form(cls, values: Any) -> Any:
        """`n` and `m` are the short form of one tuple spec."""
        if not isinstance(values, dict) or not {"n", "m"} & values.keys():
            return values
        values = dict(values)
        n, m = values.pop("n", None), values.pop("m", None)
        if n is None or m is None:
            raise ValueError("n and m need each other: --n 3 --m 1 is the short form of --tuple 3:1")
        if values.get("tuples"):
            raise ValueError("give either n and m or tuple specs, not both")
        return {**values, "tuples": (f"{n}:{m}",)}

    @model_validator(mode="after")
    def _one_kind(self) -> MakeTuplesConfig:
        _one_kind_per_column(self)
        return self

    @field_validator("tuples", mode="before")
    @classmethod
    def _specs(cls, value: Any) -> Any:
        specs = _quoted_specs(value)
        if isinstance(specs, Sequence) and not specs:
            raise ValueError("at least one tuple spec is needed")
        return specs

    @field_validator("positive", mode="before")
    @classmethod
    def _class_names(cls, value: Any) -> Any:
        """Classes are names; a YAML file may give digits as numbers."""
        names = (value,) if isinstance(value, str | int) else value
        return tuple(map(str, names)) if isinstance(names, Sequence) else names


class ImportTuplesConfig(Settings):
    """Counted tuples and an unlabeled pool from the user's table, arrays or folder of images."""

    tuple_column: str = Field("tuple_id", description="Column that says which tuple a row belongs to; empty: none.")
    count_column: str = Field("count", description="Column of the tuple's number of positives.")
    label_column: str = Field("label", description="Column of true labels in the test file; never a feature.")
    id_column: str = Field("id", description="Column that names a row, if there is one; never a feature.")
    image_column: str = Field("image", description="Column of image paths, if there is one; from the table's folder.")
    block_column: str | None = Field(
        None,
        description="Column of what tuples have in common (the patient of slides): tuples of one block are never "
        "divided between training and validation; never a feature.",
    )
    categorical: tuple[str, ...] = Field(
        (), description="Column that holds categories though its values are numbers; repeat for several."
    )
    numeric: tuple[str, ...] = Field(
        (), description="Column that holds numbers, so that texts in it are mistakes; repeat for several."
    )
    ignore: tuple[str, ...] = Field((), description="Column that is no feature; repeat for several.")
    max_categories: int = Field(
        50, ge=1, description="A column with more categories is hashed instead of having a feature for each."
    )
    hash_width: int = Field(64, ge=1, description="Features that a hashed column has.")
    positive: tuple[str, ...] = Field(
        (), description="Label of the test file that counts as positive; repeat for several. Default: 1, true or yes."
    )
    resize: int | None = Field(None, ge=1, description="Resize images to this height and width.")
    heldout_share: float = Field(
        0.1, ge=0, lt=1, description="Share of tuples and of unlabeled rows set aside for label-free model selection."
    )
    seed: int = Field(0, ge=0, description="Seed of the choice of what is set aside.")

    @model_validator(mode="after")
    def _one_kind(self) -> ImportTuplesConfig:
        _one_kind_per_column(self)
        return self


class PredictConfig(Settings):
    """Score new rows with a run."""

    prior: float | None = Field(
        None, gt=0, lt=1, description="Share of positives where the labels are used. Default: that of the run."
    )
    with_counts: bool = Field(
        False, description="Rows have tuple ids and counts: add the exact posterior given the count."
    )


class TrainConfig(Settings):
    """Train an instance scorer on tuples and unlabeled data.

    The settings of the chosen method are declared beside the method. They are given and stored flat, side by side with
    those below: `TrainConfig(prior=0.5, method="ure", clamp="abs").settings.clamp`.
    """

    method: str = Field(
        "count",
        description="Training method, see `ntmp list methods`; ure where a setting of the risk (clamp …) is given.",
    )
    settings: SerializeAsAny[MethodSettings] = Field(
        default_factory=MethodSettings, description="Settings of the method, declared beside it."
    )
    ignored: tuple[str, ...] = Field((), exclude=True, description="Settings that were given for another method.")
    prior: float | Literal["estimate"] | None = Field(
        None,
        description="Class prior π of the unlabeled pool; it overrides --prior-from. Default: the one that simulated "
        "tuples know, else estimated on the pool by `count`; 'estimate' forces that.",
    )
    epochs: int = Field(30, ge=1, description="Passes over tuples and unlabeled data.")
    seed: int = Field(0, ge=0, description="Seed of initialisation and batch order.")
    model: str = Field(
        "auto",
        description="What is learned, see `ntmp list models`: on tables linear model and trees, else the network mlp; "
        "or sklearn:PACKAGE.CLASS, as in sklearn:linear_model.LogisticRegression.",
    )
    estimator: dict[str, Any] = Field(
        {}, description="Parameters of the scikit-learn classifier: --set estimator.C=0.1."
    )
    encoder: str | None = Field(
        None,
        description="Frozen encoder whose features are learned from, computed once and kept: "
        "pixels, random, pca, torchvision:NAME or clip.",
        json_schema_extra=NETWORK,
    )
    encoder_weights: str | None = Field(
        None,
        description="Weights of a torchvision encoder: a file, or 'default' for the published ones.",
        json_schema_extra=NETWORK,
    )
    clip_model: str = Field(
        "ViT-B-32",
        description="CLIP of the encoder: an open_clip name, or a model's JSON file.",
        json_schema_extra=NETWORK,
    )
    clip_weights: str | None = Field(
        None, description="Weights of that CLIP: a file, or a tag of open_clip.", json_schema_extra=NETWORK
    )
    normalize: Literal["auto", "none", "channel"] = Field(
        "auto",
        description="Input normalisation; auto: per channel for colour images, per feature for vectors.",
        json_schema_extra=NETWORK,
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Arithmetic of the network; bfloat16 is for accelerators, on most CPUs it is slower.",
        json_schema_extra=NETWORK,
    )
    batch_size: int | None = Field(
        None,
        ge=2,
        description="Instances per step, of tuples and of U. "
        "Default: 1024, 256 for the count likelihood; less on small data so that an epoch has 16 steps.",
        json_schema_extra=OPTIMISATION,
    )
    optimizer: Literal["adam", "adamw", "sgd"] = Field("adam", description="Optimiser.", json_schema_extra=OPTIMISATION)
    lr: float = Field(1e-3, gt=0, description="Learning rate at the start.", json_schema_extra=OPTIMISATION)
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="Course of the learning rate.", json_schema_extra=OPTIMISATION
    )
    weight_decay: float = Field(1e-3, ge=0, description="Weight decay.", json_schema_extra=OPTIMISATION)
    grad_clip: float | None = Field(
        None, gt=0, description="Largest norm of a step's gradient. Default: no limit.", json_schema_extra=OPTIMISATION
    )
    ema: float = Field(
        0.99,
        ge=0,
        lt=1,
        description="Decay per step of the averaged weights that are scored and saved; 0 turns it off.",
        json_schema_extra=OPTIMISATION,
    )
    select: Literal["one-se", "best", "last"] = Field(
        "one-se",
        description="Epoch to keep: the latest whose held-out likelihood of counts is within a standard error of the "
        "best (of other label-free risks, the best), the best, or the last.",
        json_schema_extra=OPTIMISATION,
    )
    trace_every: int = Field(
        1, ge=0, description="Score the test instances every so many epochs; 0: only at the end.", json_schema_extra=RUN
    )
    memory_mb: int = Field(
        4096,
        ge=1,
        description="Memory for training instances; larger data are read window by window.",
        json_schema_extra=RUN,
    )
    ranks: int | None = Field(
        None,
        ge=1,
        description="Data-parallel ranks whose batches are reproduced. Default: one per process of torchrun.",
        json_schema_extra=RUN,
    )

    @classmethod
    def described(cls) -> dict[str, FieldInfo]:
        """The settings of every training, then those of all methods."""
        shared = {name: field for name, field in cls.model_fields.items() if name not in ("settings", "ignored")}
        users: dict[str, list[str]] = {}
        fields: dict[str, FieldInfo] = {}
        for method, kind in REGISTRIES["methods"].items():
            for name, field in kind.settings.model_fields.items():
                users.setdefault(name, []).append(method)
                fields.setdefault(name, field)
        for name, field in fields.items():
            fields[name] = copy(field)
            fields[name].description = f"{field.description} ({', '.join(users[name])})"
            fields[name].json_schema_extra = METHOD
        return shared | fields

    @model_validator(mode="before")
    @classmethod
    def _compose(cls, values: Any) -> Any:
        """Gather the settings of the chosen method; those of other methods are set aside by name."""
        if not isinstance(values, dict) or "settings" in values:
            return values
        methods = dict(REGISTRIES["methods"].items())
        implied = (name for name, kind in methods.items() if kind.implied_by & values.keys())
        name = values.get("method") or next(implied, cls.model_fields["method"].default)
        known = REGISTRIES["methods"].get(str(name)).settings.model_fields
        foreign = {setting for kind in methods.values() for setting in kind.settings.model_fields} - set(known)
        # None stands for an option that was left out.
        ignored = tuple(sorted(key for key in foreign & values.keys() if values[key] is not None))
        shared = {key: value for key, value in values.items() if key not in known and key not in foreign}
        chosen = {key: value for key, value in values.items() if key in known}
        return {**shared, "method": name, "settings": chosen, **({"ignored": ignored} if ignored else {})}

    @field_validator("prior", mode="plain")
    @classmethod
    def _share_or_estimate(cls, value: Any) -> float | str | None:
        if value is None or value == ESTIMATE:
            return None if value is None else ESTIMATE
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not 0 < number < 1:
            raise ValueError(f"expected a share between 0 and 1, or '{ESTIMATE}'")
        return number

    @field_validator("settings", mode="wrap")
    @classmethod
    def _of_the_method(cls, value: Any, handler: Any, info: ValidationInfo) -> MethodSettings:
        if isinstance(value, MethodSettings):
            return value
        kind: type[MethodSettings] = REGISTRIES["methods"].get(info.data["method"]).settings
        return kind.model_validate(value)

    @model_serializer(mode="wrap")
    def _flat(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        values: dict[str, Any] = dump(self)
        method_settings = values.pop("settings", {})
        return {**values, **method_settings}

    @property
    def prior_or_none(self) -> float | None:
        """The prior, where it has been given or resolved."""
        return None if self.prior == ESTIMATE else self.prior

    def known_prior(self, where: str = "configuration") -> float:
        """The prior, where it has been resolved."""
        if self.prior is None or self.prior == ESTIMATE:
            raise UsageError(
                f"{where}: prior: required, but not given (--prior X, or --prior-from DIR, written by "
                "`ntmp estimate-prior`)"
            )
        return self.prior


class EstimatePriorConfig(Settings):
    """Estimate the class prior of the unlabeled pool from scores of tuples that their scorer was not trained on."""

    estimator: str = Field(
        "em-affine", description="Estimator whose value is used, see `ntmp list priors`; all are reported."
    )
    score: Literal["count", "discriminant"] = Field(
        "count", description="Score model: a network by the count likelihood, or the closed form (seconds, weaker)."
    )
    model: str = Field("mlp", description="Network, see `ntmp list models`, or torchvision:NAME.")
    encoder: str | None = Field(
        None, description="Frozen encoder whose features are scored: pixels, random, pca, torchvision:NAME or clip."
    )
    encoder_weights: str | None = Field(
        None, description="Weights of a torchvision encoder: a file, or 'default' for the published ones."
    )
    clip_model: str = Field("ViT-B-32", description="CLIP of the encoder: an open_clip name, or a model's JSON file.")
    clip_weights: str | None = Field(None, description="Weights of that CLIP: a file, or a tag of open_clip.")
    epochs: int = Field(6, ge=1, description="Passes of the network over its fold of the data.")
    batch_size: int | None = Field(None, ge=2, description="Instances per step. Default: as in `ntmp train`.")
    lr: float = Field(1e-3, gt=0, description="Learning rate at the start.")
    warmup: Literal["none", "discriminant"] = Field(
        "none", description="What starts the network on hard data: nothing, or the closed form."
    )
    count_noise: float = Field(0.0, ge=0, lt=1, description="Probability that a recorded count is off by one.")
    folds: int | None = Field(
        None,
        ge=2,
        description="Estimate on all tuples, in so many folds, each scored by a model of the others; only for data "
        "whose instances are in one tuple each. Default: estimate on the held-out tuples; 2 where there are none.",
    )
    resamples: int = Field(1000, ge=1, description="Bootstrap resamples B of tuples and U.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals and bands.")
    assume: Literal["prior<0.5", "prior>0.5"] | None = Field(
        None, description="Outside knowledge for tuples that are all half positive: prior<0.5 or prior>0.5."
    )
    memory_mb: int = Field(
        4096, ge=1, description="Memory for training instances; larger data are read window by window."
    )
    seed: int = Field(0, ge=0, description="Seed of initialisation, batch order and bootstrap.")


class DesignConfig(Settings):
    """What tuples and an unlabeled pool can tell, before anything is trained."""

    tuples: tuple[str, ...] = Field(
        (), description="Tuple spec, as for make-tuples, instead of --tuples; repeat to mix."
    )
    prior: float | None = Field(
        None, gt=0, lt=1, description="Class prior π of the unlabeled pool. Default: the known one of simulated tuples."
    )
    num_tuples: int | None = Field(None, ge=1, description="Tuples sampled from the specs. Default: 10000.")
    unlabeled_size: int | None = Field(
        None, ge=1, description="Unlabeled instances beside the specs. Default: as many as the tuples have."
    )
    margin: float = Field(0.05, gt=0, lt=1, description="Operating margin ε₀ that the gap should keep.")
    prior_error: float = Field(0.01, ge=0, lt=1, description="How far the prior that is trained with may be off.")
    count_noise: float | None = Field(
        None, ge=0, lt=1, description="Probability that a count is off by one. Default: that of simulated tuples, or 0."
    )
    target_risk_error: float = Field(
        0.05, gt=0, description="Error of the risk to plan sample sizes for, in units of the loss bound B."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Probability that bounds on the noise hold with.")

    @field_validator("tuples", mode="before")
    @classmethod
    def _specs(cls, value: Any) -> Any:
        return _quoted_specs(value)


class ExplainConfig(Settings):
    """Say what a classifier looks at."""

    repeats: int = Field(5, ge=1, description="Permutations of every feature.")
    folds: int = Field(
        3, ge=2, description="Folds that judge a classifier of a table, fitted again without each of them."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    seed: int = Field(0, ge=0, description="Seed of permutations and folds.")


class ExportConfig(Settings):
    """Write a run for programs without ntmp."""

    format: Literal["onnx", "torchscript"] = Field("onnx", description="Kind of file.")


class AuditConfig(Settings):
    """Do tuples look as their owner thinks: before training, and in the eyes of a run?"""

    prior: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Class prior π of the unlabeled pool. Default: the run's, or that of simulated tuples.",
    )
    folds: int = Field(
        2,
        ge=2,
        description="Folds of the training tuples, each judged by a network of the others: a network that has "
        "seen a wrong count reproduces it.",
    )
    epochs: int = Field(6, ge=1, description="Passes of these networks over their folds.")
    flag_above: float = Field(
        0.5, gt=0, lt=1, description="A tuple is flagged where its count is wrong with more than this probability."
    )
    fdr: float = Field(
        0.1, gt=0, lt=1, description="Level of the Benjamini–Hochberg rule that p-values are also counted by."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    resamples: int = Field(500, ge=100, description="Bootstrap resamples of the drift test.")
    memory_mb: int = Field(
        4096, ge=1, description="Memory for training instances; larger data are read window by window."
    )
    seed: int = Field(0, ge=0, description="Seed of the networks and of the bootstrap.")


class EvaluateConfig(Settings):
    """Score runs on the hidden test labels."""

    reference: str | None = Field(None, description="Method that the others are compared with, e.g. ure+abs.")
    metrics: tuple[str, ...] = Field((), description="Metric to compute; repeat for several. Default: all.")
    family: HolmFamily = Field(
        "metric",
        description="Comparisons with the reference that Holm's correction spans: those of one metric in one cell "
        "(data set, tuples, prior), on one data set, in all cells, or of all metrics together.",
    )


class ReportConfig(Settings):
    """Turn an evaluation into tables and figures."""

    title: str = Field("NTMP results", description="Heading of the report.")
    metrics: tuple[str, ...] = Field(
        (),
        description="Metric column of the table; repeat for several. Default: accuracy, AP, AUROC, Macro-F1.",
    )
    compare: Literal["paper"] | None = Field(
        None,
        description="paper: the paper's cells beside the measured ones, with the difference; "
        "beside a method it lacks, its best.",
    )


class PipelineConfig(Settings):
    """A study in one file: tuples, trainings, evaluation, report, for several seeds."""

    seeds: tuple[int, ...] = Field((0,), min_length=1, description="One tuple construction and training per seed.")
    make_tuples: dict[str, Any] = Field(default_factory=dict, description="Settings of make-tuples, without seed.")
    estimate_prior: dict[str, Any] | None = Field(
        None, description="Settings of estimate-prior, without seed; trainings without a prior use it."
    )
    train: dict[str, Any] = Field(default_factory=dict, description="Settings that all trainings share, without seed.")
    runs: dict[str, dict[str, Any]] = Field(
        min_length=1, description="Name of a training to the settings that set it apart."
    )
    evaluate: EvaluateConfig = Field(EvaluateConfig(), description="Settings of evaluate.")
    report: ReportConfig = Field(ReportConfig(), description="Settings of report.")


class SweepConfig(Settings):
    """What all sweeps share: how tuples are sampled and trained on, and how the outcome is judged."""

    seeds: tuple[int, ...] = Field(
        (0, 1, 2, 3, 4), min_length=1, description="Seed of every repetition; repeat for several."
    )
    make_tuples: dict[str, Any] = Field(default_factory=dict, description="Settings of make-tuples, without seed.")
    train: dict[str, Any] = Field(default_factory=dict, description="Settings that all trainings share, without seed.")
    runs: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Name of a training to the settings that set it apart. Default: one."
    )
    metric: str = Field("ap", description="Metric M that is judged, see `ntmp list metrics`; the rows hold all.")
    max_width: float = Field(0.05, gt=0, description="Widest 95 % interval w* of M over seeds that counts as stable.")
    resamples: int = Field(10_000, ge=100, description="Bootstrap resamples B behind every interval.")
    title: str = Field("", description="Heading of the figure. Default: what was swept.")

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is given twice")
        return seeds

    @field_validator("offsets", "rates", "priors", check_fields=False)
    @classmethod
    def _each_point_once(cls, points: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(points)) != len(points):
            raise ValueError("a point is given twice")
        return tuple(sorted(points))


class PriorSweepConfig(SweepConfig):
    """Train with class priors around the estimate π̂, and find the offsets that cost nothing."""

    prior: float | None = Field(
        None, gt=0, lt=1, description="Estimate π̂ that offsets are added to. Default: make_tuples.prior."
    )
    offsets: tuple[float, ...] = Field(
        tuple(round(0.02 * step, 2) for step in range(-15, 16)),
        description="Signed offset δ of the prior; repeat for several. Default: -0.30, -0.28 … 0.30.",
    )
    margin: float = Field(0.05, ge=0, lt=1, description="Distance ε₀ that π̂+δ keeps from the mean tuple rate ᾱ.")
    tolerance: float = Field(0.02, ge=0, description="Largest change ε of the mean of M inside the window.")

    @field_validator("offsets")
    @classmethod
    def _has_its_reference(cls, offsets: tuple[float, ...]) -> tuple[float, ...]:
        if 0 not in offsets:
            raise ValueError("0 must be among the offsets: the estimate itself is what the others are compared with")
        return offsets


class CountNoiseSweepConfig(SweepConfig):
    """Record counts that are off by one ever more often, and train on them."""

    rates: tuple[float, ...] = Field(
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        min_length=1,
        description="Probability p that a recorded count is off by one; repeat for several. Default: 0, 0.05 … 0.3.",
    )
    tolerance: float = Field(0.02, ge=0, description="Largest change ε of the mean of M inside the window.")


class GapSweepConfig(SweepConfig):
    """Vary the prior π of U, and with it the gap |π − ᾱ| that the unbiased risk lives on."""

    priors: tuple[float, ...] = Field(
        tuple(round(0.1 * step, 1) for step in range(1, 10)),
        min_length=1,
        description="Prior π of the unlabeled pool; repeat for several. Default: 0.1, 0.2 … 0.9.",
    )
    margin: float = Field(0.001, ge=0, lt=1, description="Gap |π − ᾱ| below which a point is left out.")


class GridSweepConfig(SweepConfig):
    """Train with every combination of given values."""

    vary: dict[Literal["make_tuples", "train"], dict[str, list[Any]]] = Field(
        min_length=1, description="Settings to their values, all crossed."
    )
