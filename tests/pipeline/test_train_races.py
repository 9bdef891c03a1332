"""Two trainings with one output: the slower one leaves nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ntmp_cli.config import TrainConfig
from ntmp_cli.errors import ArtifactError
from ntmp_cli.stages.train import TrainOptions, train


class Faster:
    """Publishes another run while the training is at its first epoch."""

    def __init__(self, run: Path, out: Path) -> None:
        self.run, self.out = run, out

    def step(self, *_: Any) -> None: ...

    def epoch(self, record: Any) -> None:
        if not self.out.exists():
            shutil.copytree(self.run, self.out)


def test_a_training_whose_output_appears_meanwhile_leaves_no_checkpoint(study, tmp_path):
    config = TrainConfig(prior=0.5, model="linear", epochs=2, trust="prior")
    faster = Faster(study.run_none, tmp_path / "run")
    options = TrainOptions(device="cpu", checkpoint_seconds=0.0, watcher=faster)
    with pytest.raises(ArtifactError, match="appeared while this stage was running"):
        train(config, study.tuples, tmp_path / "run", options)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
