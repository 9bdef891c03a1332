"""The registries, by the plural that a user types."""

from __future__ import annotations

from typing import Any

from ntmp_cli.registry import Registry


def registry_of(kind: str) -> Registry[Any]:
    if kind == "datasets":
        from ntmp_cli.data.labelled import datasets

        return datasets
    if kind == "methods":
        from ntmp_cli.learning.method import methods

        return methods
    if kind == "models":
        from ntmp_cli.learning.models import models

        return models
    if kind == "encoders":
        from ntmp_cli.learning.encoders import encoders

        return encoders
    if kind == "metrics":
        from ntmp_cli.evaluation.metrics import metrics

        return metrics
    if kind == "engines":
        from ntmp_cli.sweeps.engine import engines

        return engines
    from ntmp_cli.prior.estimator import priors

    return priors
