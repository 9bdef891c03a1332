"""Settings of the stages around a training."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    Field,
    field_validator,
    model_validator,
)

from ntmp_cli.config.training import MOST_EPOCHS
from ntmp_cli.config.tuples import RecordSpec, quoted_specs
from ntmp_cli.settings import Settings

HolmFamily = Literal["cell", "dataset", "metric", "all"]
# Losses that bounds are known for.
DesignLoss = Literal["sigmoid", "ramp", "logistic", "clipped-logistic", "hinge"]


class PredictConfig(Settings):
    """Score new rows with a run."""

    prior: float | None = Field(
        None, gt=0, lt=1, description="Share of positives among the new rows. Default: that of the run."
    )
    threshold: str = Field(
        "prior",
        description="Which rows are labelled positive. prior: those with a probability of at least one half. f1, "
        "recall=SHARE (with the fewest false positives) or cost=FN:FP: a threshold that is estimated "
        "from counts, without labels. With --with-counts, cost=FN:FP labels posteriors from FP/(FN+FP) on.",
    )
    with_counts: bool = Field(
        False, description="The rows have tuple ids and counts: add the exact posterior given the count of the tuple."
    )
    probabilities: Literal["confirmed", "always"] = Field(
        "confirmed",
        description="confirmed: write probabilities only if held-out counts confirm the scores. always: write "
        "them in any case.",
    )
    by: str | None = Field(
        None,
        description="Column of groups. Writes one row per group: its expected number of positives, the probability"
        " of at least one, quantiles, and a conformal interval calibrated on tuples that the run has not seen.",
    )
    confidence: float = Field(0.9, gt=0, lt=1, description="Level of the interval of --by.")

    @model_validator(mode="after")
    def _of_groups(self) -> PredictConfig:
        if self.by is None and "confidence" in self.model_fields_set:
            raise ValueError("--confidence is the level of intervals of groups: give --by COLUMN with it")
        return self


class EstimatePriorConfig(Settings):
    """Estimate the class prior of the unlabeled pool from cross-fitted or held-out scores."""

    estimator: str = Field(
        "em-affine",
        description="Estimator whose value is used, see `ntmp list priors`. All of them are reported. paper also "
        "trains the paper's own score model, proxy against U.",
    )
    score: Literal["count", "discriminant"] = Field(
        "count", description="Score model: by the count likelihood, or the closed form (seconds, weaker)."
    )
    model: str = Field(
        "auto",
        description="Score model: auto (learners for tables on rows of a table, mlp on images), or a name of "
        "`ntmp list models`.",
    )
    encoder: str | None = Field(
        None,
        description="Frozen encoder whose features are scored: pixels, random, pca, patches, torchvision:NAME, clip or "
        "run:DIR.",
    )
    encoder_weights: str | None = Field(
        None,
        description="Weights of the encoder. torchvision: a file, or 'default' for the published ones. patches "
        "and pca: the encoder.safetensors of an earlier run, in place of a new fit.",
    )
    clip_model: str = Field("ViT-B-32", description="CLIP of the encoder: an open_clip name, or a model's JSON file.")
    clip_weights: str | None = Field(None, description="Weights of that CLIP: a file, or a tag of open_clip.")
    epochs: int = Field(6, ge=1, le=MOST_EPOCHS, description="Passes of the network over its fold of the data.")
    batch_size: int | None = Field(None, ge=2, description="Instances per step. Default: as in `ntmp train`.")
    lr: float = Field(1e-3, gt=0, description="Learning rate at the start.")
    warmup: Literal["none", "discriminant"] = Field(
        "none", description="Warm-up of the network on hard data: none, or the closed form."
    )
    count_noise: float = Field(0.0, ge=0, lt=1, description="Probability that a recorded count is off by one.")
    folds: int | None = Field(
        None,
        ge=2,
        description="Number of folds for cross-fitting over all tuples. Use it only if no instance is in two "
        "tuples. Default: no folds, the held-out tuples are used; 2 if there are none. Learners for "
        "tables always use all tuples.",
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
    """What can be learned from tuples and an unlabeled pool, before training."""

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
    prior_error: float | None = Field(
        None,
        gt=-1,
        lt=1,
        description="Signed error δ of the prior: training uses π + δ, so -0.02 means a prior that is too low by "
        "0.02. Default: 0.01, less near 1.",
    )
    count_noise: float | None = Field(
        None, ge=0, lt=1, description="Probability that a count is off by one. Default: that of simulated tuples, or 0."
    )
    record: RecordSpec = Field(
        "exact",
        description="What would be recorded of a count, as in make-tuples. The output shows the cost compared "
        "with exact counts.",
    )
    count_law: str | None = Field(
        None,
        description="Law of noise of the recorded counts, e.g. gaussian:2. The output shows the cost compared "
        "with exact counts. Default: the law that is stored with the tuples.",
    )
    target_risk_error: float = Field(
        0.05, gt=0, description="Error of the risk to plan sample sizes for, in units of the loss bound B."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Confidence level of the bounds on the noise.")
    rate_error: float | None = Field(
        None, gt=0, lt=1, description="Largest error ε of the tuples' mean rate, for the paper's bound."
    )
    rate_proxy: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="v of the paper's bound: the error of the tuples' mean rate is sub-Gaussian with variance "
        "proxy v².",
    )
    loss: DesignLoss | None = Field(
        None,
        description="Loss of the bounds. sigmoid and ramp have B = 1, clipped-logistic has B = 2, logistic and "
        "hinge have only L·G. Default: that of the run, or sigmoid.",
    )
    score_bound: float | None = Field(
        None,
        gt=0,
        description="Bound G of the scores, which lie within ±G. An L-Lipschitz loss then has L·G in place of B.",
    )

    @field_validator("tuples", mode="before")
    @classmethod
    def _specs(cls, value: Any) -> Any:
        return quoted_specs(value)


class ExplainConfig(Settings):
    """Explain which features matter to a classifier."""

    repeats: int = Field(5, ge=1, description="Permutations of every feature.")
    folds: int = Field(3, ge=2, description="Folds of cross-fitting for a classifier of a table.")
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals.")
    seed: int = Field(0, ge=0, description="Seed of permutations and folds.")


class ExportConfig(Settings):
    """Write a run for programs without ntmp."""

    format: Literal["onnx", "torchscript"] = Field("onnx", description="File format.")


class AuditConfig(Settings):
    """Check tuples before training, and by a run."""

    prior: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Class prior π of the unlabeled pool. Default: the run's, or that of simulated tuples.",
    )
    folds: int = Field(
        2,
        ge=2,
        description="Folds of the training tuples. Each fold is judged by a network trained on the others, "
        "because a network reproduces the wrong counts that it was trained on.",
    )
    epochs: int = Field(6, ge=1, le=MOST_EPOCHS, description="Passes of these networks over their folds.")
    flag_above: float = Field(
        0.5,
        gt=0,
        lt=1,
        description="Flag a tuple if its count is wrong with more than this probability. No tuple is flagged if "
        "exact counts explain the scores as well as counts that are off by one.",
    )
    fdr: float = Field(
        0.1, gt=0, lt=1, description="Level of the Benjamini–Hochberg procedure, which is reported as well."
    )
    confidence: float = Field(0.95, gt=0, lt=1, description="Level of the intervals, and of the test for wrong counts.")
    resamples: int = Field(500, ge=100, description="Bootstrap resamples of the drift test.")
    memory_mb: int = Field(
        4096, ge=1, description="Memory for training instances; larger data are read window by window."
    )
    seed: int = Field(0, ge=0, description="Seed of the networks and of the bootstrap.")


class EvaluateConfig(Settings):
    """Evaluate runs on the true test labels."""

    reference: str | None = Field(
        None,
        description="Method that the others are compared with, e.g. ure+abs, or a variant as the tables show it, "
        "e.g. 'ure+abs prior=0.5'. Default: count if there is such a run, otherwise the method of the"
        " first run.",
    )
    metrics: tuple[str, ...] = Field((), description="Metric to compute; repeat for several. Default: all.")
    family: HolmFamily = Field(
        "metric",
        description="Family of Holm's correction. A cell is a data set, tuples and a prior. cell, dataset, "
        "metric: the comparisons of one metric in one cell, on one data set, in all cells. all: those"
        " of all metrics together.",
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
        description="paper: show the paper's values beside the measured ones, with the difference. A method that "
        "the paper lacks is marked as ours and compared with its nearest or best method.",
    )
