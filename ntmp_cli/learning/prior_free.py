"""Settings of trainings without a prior: their scores are log-odds at the tuples' rate. No torch."""

from __future__ import annotations

from typing import Any

from ntmp_cli.config import EstimatePriorConfig, TrainConfig
from ntmp_cli.learning.groups import usable_rate
from ntmp_cli.tuple_source import Task


def score_model(config: EstimatePriorConfig, task: Task) -> TrainConfig:
    """The training of estimate-prior's score model."""
    shared = {
        name: getattr(config, name)
        for name in (
            *("model", "encoder", "encoder_weights", "clip_model", "clip_weights"),
            *("epochs", "batch_size", "lr", "count_noise", "memory_mb", "seed"),
        )
    }
    return prior_free_training(task, **shared, warmup=config.warmup)


def prior_free_training(task: Task, **settings: Any) -> TrainConfig:
    """The count likelihood alone, its scores left at the tuples' rate, so that no prior is needed."""
    fixed = {
        # `count` orients by the counts; the counts of tuples that are all half positive do not.
        "method": "count-plain" if task.symmetric else "count",
        "warmup": "none",
        "self_training": 0.0,
        "prior": usable_rate(task.rate, task.instances),
        "select": "last",
        "trace_every": 0,
    }
    return TrainConfig.model_validate({**fixed, **settings})


def table_model(config: TrainConfig) -> TrainConfig:
    """The same for a learner for tables: by the count likelihood, whatever the tuples, and without any prior."""
    fields = {name: getattr(config, name) for name in ("model", "encoder", "seed")}
    noise: float = getattr(config.settings, "count_noise", 0.0)
    return TrainConfig.model_validate({**fields, "method": "count", "count_noise": noise})
