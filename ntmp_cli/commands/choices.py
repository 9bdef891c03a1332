"""Shell-completion choices, read from the registries when they are asked for."""

from __future__ import annotations


def dataset_names() -> list[str]:
    from ntmp_cli.data.labelled import datasets

    return datasets.names()


def method_names() -> list[str]:
    from ntmp_cli.learning.method import methods

    return methods.names()


def model_names() -> list[str]:
    from ntmp_cli.learning.models import models

    return models.names()


def encoder_names() -> list[str]:
    from ntmp_cli.learning.encoders import encoders

    return encoders.names()


def prior_names() -> list[str]:
    from ntmp_cli.prior.estimator import priors

    return priors.names()


def metric_names() -> list[str]:
    from ntmp_cli.evaluation.metrics import metrics

    return metrics.names()


def engine_names() -> list[str]:
    from ntmp_cli.sweeps.engine import engines

    return engines.names()
