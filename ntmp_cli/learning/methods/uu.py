"""UU learning (Lu et al. 2019, 2020): tuples flattened to one pool of known rate, and U.

With one stratum (n, m) this is the objective of `ure`; with several it ignores which tuple an instance came from.
"""

from __future__ import annotations

from typing import ClassVar

from ntmp_cli.config import TrainConfig
from ntmp_cli.learning.method import methods
from ntmp_cli.learning.methods.ure import Clamp, RiskSettings, Ure, UuSettings


@methods.register("uu")
class Uu(Ure):
    """UU learning on the flattened tuples and U, uncorrected."""

    settings = UuSettings
    implied_by = frozenset()
    clamp: ClassVar[Clamp] = "none"

    @classmethod
    def risk_settings(cls, config: TrainConfig) -> RiskSettings:
        fixed = {"mixing": "flat", "clamp": cls.clamp, "clamp_scope": "class"}
        return RiskSettings.model_validate({**config.settings.model_dump(), **fixed})

    @classmethod
    def label(cls, config: TrainConfig) -> str:
        return config.method


@methods.register("uucor")
class UuCor(Uu):
    """UU learning with the ABS correction by class (Lu et al. 2020)."""

    clamp = "abs"
