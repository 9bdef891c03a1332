"""One frozen model per stage: the only place where a setting has a name, a default and a meaning."""

from __future__ import annotations

from ntmp_cli.config.stages import (
    AuditConfig,
    DesignConfig,
    DesignLoss,
    EstimatePriorConfig,
    EvaluateConfig,
    ExplainConfig,
    ExportConfig,
    HolmFamily,
    PredictConfig,
    ReportConfig,
)
from ntmp_cli.config.training import (
    ESTIMATE,
    METHOD_PANEL,
    NETWORK_PANEL,
    OPTIMISATION_PANEL,
    PANELS,
    RUN_PANEL,
    TrainConfig,
)
from ntmp_cli.config.tuples import (
    ImportTuplesConfig,
    MakeTuplesConfig,
)

__all__ = [
    "ESTIMATE",
    "METHOD_PANEL",
    "NETWORK_PANEL",
    "OPTIMISATION_PANEL",
    "PANELS",
    "RUN_PANEL",
    "AuditConfig",
    "DesignConfig",
    "DesignLoss",
    "EstimatePriorConfig",
    "EvaluateConfig",
    "ExplainConfig",
    "ExportConfig",
    "HolmFamily",
    "ImportTuplesConfig",
    "MakeTuplesConfig",
    "PredictConfig",
    "ReportConfig",
    "TrainConfig",
]
