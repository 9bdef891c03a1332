"""From the name of a model to a network or a learner for tables. No torch."""

from __future__ import annotations

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import UsageError
from ntmp_cli.tuple_source import InstanceFormat

AUTO, TREES = "auto", "trees"
# Before the class of a scikit-learn classifier, which EM fits to the counts.
SKLEARN = "sklearn:"
# On tables these are fitted to whole tuples by the count likelihood; `linear` is a network elsewhere.
TABLE_MODELS = (AUTO, "linear", TREES)
TABLE_METHOD = "count"
# The meaning of `auto` for data other than tables.
NETWORK = "mlp"
# Settings of every training that a learner for tables uses as well.
TABLE_SETTINGS = {"method", "settings", "prior", "seed", "model", "ranks", "memory_mb", "ignored", "estimator"}
TABLE_SETTINGS |= {"count_law"}
# Settings of a training by steps; a method that is computed at once uses none of them.
STEP_SETTINGS = {"epochs", "augment", "precision", "batch_size", "optimizer", "lr", "schedule", "weight_decay"}
STEP_SETTINGS |= {"grad_clip", "ema", "select", "trace_every"}


def is_estimator(model: str) -> bool:
    """Whether a model's name stands for a scikit-learn classifier."""
    return model.startswith(SKLEARN)


def is_table_training(config: TrainConfig, instance: InstanceFormat) -> bool:
    """Whether a learner for tables is trained: by the count likelihood, on vectors that no encoder made."""
    on_table = len(instance.shape) == 1 and config.encoder is None
    if config.estimator and not is_estimator(config.model):
        raise UsageError(f"estimator: model {config.model} has no such parameters; {SKLEARN}PACKAGE.CLASS has")
    if config.method == TABLE_METHOD and on_table:
        return config.model in TABLE_MODELS or is_estimator(config.model)
    if config.model == TREES or is_estimator(config.model):
        what = "method count" if config.method != TABLE_METHOD else "rows of a table"
        raise UsageError(f"model {config.model} needs {what}", hint="Use --model mlp.")
    return False


def network_name(model: str) -> str:
    """The network that a model's name stands for."""
    return NETWORK if model == AUTO else model


def unused_by_tables(config: TrainConfig) -> set[str]:
    """Settings that were given, but are of networks."""
    given = {name for name in config.model_fields_set if getattr(config, name) is not None} - TABLE_SETTINGS
    return given | (config.settings.model_fields_set - {"count_noise", "assume", "trust"})


def unused_by_closed_form(config: TrainConfig) -> set[str]:
    """Settings of steps and epochs that were given, if the method has none; before defaults are filled in."""
    from ntmp_cli.learning.method import FittedMethod, methods

    if not issubclass(methods.get(config.method), FittedMethod):
        return set()
    return {name for name in config.model_fields_set & STEP_SETTINGS if getattr(config, name) is not None}


def require_model(name: str) -> None:
    """Refuse an unknown name before any work is done."""
    if is_estimator(name):
        from ntmp_cli.learning.tables.estimator_scorer import named_estimator

        named_estimator(name, {})
    elif name not in TABLE_MODELS:
        from ntmp_cli.learning.models import require_network

        require_network(name)
