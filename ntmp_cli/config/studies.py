"""Settings of whole studies and of sweeps."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
)

from ntmp_cli.config.stages import EvaluateConfig, ReportConfig
from ntmp_cli.config.tuples import quoted_specs
from ntmp_cli.settings import Settings

# Folders that a sweep makes below its output folder. Defined here, so that --help imports nothing about the disk.
SWEEP_FOLDERS = ("tuples", "cells", "features", "logs", "results")


class PipelineConfig(Settings):
    """A study in one file: tuples, trainings, evaluation, report, for several seeds."""

    seeds: tuple[int, ...] = Field(
        (0, 1, 2, 3, 4), min_length=1, description="Seeds of tuples and training. Default: five, as in the paper."
    )
    make_tuples: dict[str, Any] = Field(default_factory=dict, description="Settings of make-tuples, without seed.")
    vary: dict[Literal["make_tuples"], dict[str, list[Any]]] = Field(
        default_factory=dict,
        description="Settings of make-tuples with several values each; all combinations are made.",
    )
    estimate_prior: dict[str, Any] | None = Field(
        None, description="Settings of estimate-prior, without seed; trainings without a prior use it."
    )
    train: dict[str, Any] = Field(default_factory=dict, description="Settings that all trainings share, without seed.")
    train_on: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Settings of trainings by data set; those in runs override them."
    )
    runs: dict[str, dict[str, Any]] = Field(
        min_length=1, description="Trainings by name, each with the settings in which it differs; null removes one."
    )
    evaluate: EvaluateConfig = Field(EvaluateConfig(), description="Settings of evaluate.")
    report: ReportConfig = Field(ReportConfig(), description="Settings of report.")

    @field_validator("runs", mode="before")
    @classmethod
    def _left_out(cls, runs: Any) -> Any:
        """`--set runs.uu=null` leaves a run of the file out."""
        return {name: run for name, run in runs.items() if run is not None} if isinstance(runs, dict) else runs


class SweepConfig(Settings):
    """What all sweeps share: how tuples are sampled and trained on, and how the outcome is judged."""

    seeds: tuple[int, ...] = Field(
        (0, 1, 2, 3, 4), min_length=1, description="Seed of every repetition; repeat for several."
    )
    make_tuples: dict[str, Any] = Field(default_factory=dict, description="Settings of make-tuples, without seed.")
    train: dict[str, Any] = Field(default_factory=dict, description="Settings that all trainings share, without seed.")
    runs: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="Trainings by name, each with the settings in which it differs. Default: one."
    )
    metrics: tuple[str, ...] = Field(
        ("accuracy", "tpr", "fpr", "f1"),
        min_length=1,
        description="Metric to plot in a panel, see `ntmp list metrics`; repeat for several. The rows have all.",
    )
    judge: str = Field("ap", description="Metric M that the window, critical points and tests are judged by.")
    reference: str | None = Field(
        None, description="Run that the others are tested against at every point. Default: the first."
    )
    band: Literal["ci", "std"] = Field(
        "ci", description="Bands of the figure: the 95 % t interval of the mean, or one standard deviation over seeds."
    )
    max_width: float = Field(0.05, gt=0, description="Widest 95 % t interval w* of M over seeds that counts as stable.")
    title: str = Field("", description="Heading of the figure. Default: what was swept.")

    @field_validator("seeds")
    @classmethod
    def _each_seed_once(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) != len(seeds):
            raise ValueError("a seed is given twice")
        return seeds

    @field_validator("reference")
    @classmethod
    def _names_a_run(cls, reference: str | None, info: ValidationInfo) -> str | None:
        runs = info.data.get("runs", {})
        if reference is not None and reference not in runs:
            raise ValueError(f"no run of this name; the runs are {', '.join(runs) or 'one without a name'}")
        return reference

    @field_validator("offsets", "rates", "priors", check_fields=False)
    @classmethod
    def _each_point_once(cls, points: tuple[float, ...]) -> tuple[float, ...]:
        if len(set(points)) != len(points):
            raise ValueError("a point is given twice")
        return tuple(sorted(points))


class PriorSweepConfig(SweepConfig):
    """Train with class priors around the estimate π̂, and find the offsets without loss."""

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
    """Train with a growing share of counts that are off by one."""

    rates: tuple[float, ...] = Field(
        (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3),
        min_length=1,
        description="Probability p that a recorded count is off by one; repeat for several. Default: 0, 0.05 … 0.3.",
    )
    tolerance: float = Field(0.02, ge=0, description="Largest change ε of the mean of M inside the window.")


class GapSweepConfig(SweepConfig):
    """Vary the prior π of U, and with it the gap |π − ᾱ| that the unbiased risk needs."""

    tuples: tuple[str, ...] = Field(
        (), description="Tuple spec; repeat for several on one axis of the gap. Default: make_tuples.tuples."
    )

    priors: tuple[float, ...] = Field(
        tuple(round(0.1 * step, 1) for step in range(1, 10)),
        min_length=1,
        description="Prior π of the unlabeled pool; repeat for several. Default: 0.1, 0.2 … 0.9.",
    )
    margin: float = Field(0.001, ge=0, lt=1, description="Gap |π − ᾱ| below which a point is left out.")

    @field_validator("tuples", mode="before")
    @classmethod
    def _specs(cls, value: Any) -> Any:
        return quoted_specs(value)


class GridSweepConfig(SweepConfig):
    """Train with every combination of given values."""

    vary: dict[Literal["make_tuples", "train"], dict[str, list[Any]]] = Field(
        min_length=1, description="Settings with their values; all combinations are trained."
    )
