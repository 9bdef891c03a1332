"""UU learning (Lu et al. 2019, 2020): tuples flattened to one pool of known rate, and U (SPEC sections 2 and 9).

With one stratum (n, m) this is the objective of `ure`; with several it ignores which tuple an instance came from.
"""

from __future__ import annotations

from ntmp_cli.config import Clamp, TrainConfig
from ntmp_cli.learning.method import Task, methods
from ntmp_cli.learning.methods.ure import Ure


@methods.register("uu")
class Uu(Ure):
    """UU learning on the flattened tuples and U, uncorrected (SPEC 2)."""

    clamp: Clamp = "none"
    uses = frozenset({"loss", "margin", "margin_policy"})

    def __init__(self, config: TrainConfig, task: Task) -> None:
        fixed = {"mixing": "flat", "clamp": self.clamp, "clamp_scope": "class"}
        super().__init__(config.model_copy(update=fixed), task)

    @staticmethod
    def label(config: TrainConfig) -> str:
        return config.method


@methods.register("uucor")
class UuCor(Uu):
    """UU learning with the ABS correction by class (Lu et al. 2020; SPEC 3)."""

    clamp: Clamp = "abs"
